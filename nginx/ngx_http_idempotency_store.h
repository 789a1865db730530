
/*
 * What a kind of store brings to "idempotency_store".
 */

#ifndef _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_


#include "ngx_http_idempotency_module.h"

#include <pwd.h>


#define NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX  63


/* Why a store cannot be used, in one sentence. */
#define NGX_HTTP_IDEMPOTENCY_WHY_MAX         512


struct ngx_http_idempotency_store_kind_s {
    ngx_str_t   *schemes;  /* up to an empty one */
    char        *usage;    /* of the URI */
    char        *options;
    char        *sizes;    /* NULL: it has no "size" */
    off_t        min_size;
    off_t        max_size;
    size_t       default_size;

    /*
     * What stands between store->scheme and "?"; NULL: nothing may.  NGX_OK
     * or NGX_ERROR.
     */
    ngx_int_t  (*address)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store,
                   ngx_str_t *address);

    /*
     * An option that not every store has; NULL: there is none.  NGX_OK,
     * NGX_DECLINED (no such option), NGX_BUSY (a duplicate), or NGX_ERROR,
     * which it has logged.
     */
    ngx_int_t  (*option)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store,
                   ngx_str_t *option);

    /* While the configuration is read; logs what is wrong. */
    ngx_int_t  (*prepare)(ngx_conf_t *cf,
                   ngx_http_idempotency_store_t *store);

    /* Opens store->env.store in a worker; logs what is wrong. */
    int        (*open)(ngx_http_idempotency_store_t *store, ngx_log_t *log);
};


/* The workers' user; NULL: it has been logged. */
struct passwd *ngx_http_idempotency_worker_user(ngx_conf_t *cf);

/* Calls check() with that user's rights, which need root's. */
ngx_int_t ngx_http_idempotency_check_as(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, struct passwd *user,
    ngx_int_t (*check)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store));

/* Calls check() with a worker's rights, whoever reads the configuration. */
ngx_int_t ngx_http_idempotency_check_as_worker(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store,
    ngx_int_t (*check)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store));

/* Of stores on servers: their URI is the library's to read. */
ngx_int_t ngx_http_idempotency_server_address(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *address);
ngx_int_t ngx_http_idempotency_server_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option);
ngx_int_t ngx_http_idempotency_server_checked(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, int status, const char *why);

/* Logs what a store has to say at run time; data is the store. */
void ngx_http_idempotency_store_report(void *data, const char *sentence);


extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_lmdb_store;
extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_memory_store;
extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_postgres_store;
extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_redis_store;


#endif /* _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_ */
