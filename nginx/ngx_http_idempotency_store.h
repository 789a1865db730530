
/*
 * What a kind of store brings to "idempotency_store".
 */

#ifndef _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX  63


struct ngx_http_idempotency_store_kind_s {
    ngx_str_t    scheme;
    char        *usage;    /* of the URI */
    char        *options;
    char        *sizes;
    off_t        min_size;
    off_t        max_size;
    size_t       default_size;

    /*
     * What stands between the scheme and "?"; NULL: nothing may.  NGX_OK or
     * NGX_ERROR.
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


extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_lmdb_store;
extern const ngx_http_idempotency_store_kind_t
    ngx_http_idempotency_memory_store;


#endif /* _NGX_HTTP_IDEMPOTENCY_STORE_H_INCLUDED_ */
