
/*
 * The PostgreSQL store.  The server need not be there when nginx starts.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"


static ngx_int_t ngx_http_idempotency_postgres_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static void ngx_http_idempotency_postgres_options(
    ngx_http_idempotency_store_t *store, struct idem_postgres_options *options);
static ngx_int_t ngx_http_idempotency_postgres_check(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static int ngx_http_idempotency_postgres_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log);


static ngx_str_t  ngx_http_idempotency_postgres_schemes[] = {
    ngx_string("postgres://"),
    ngx_string("postgresql://"),
    ngx_null_string
};


const ngx_http_idempotency_store_kind_t  ngx_http_idempotency_postgres_store = {
    ngx_http_idempotency_postgres_schemes,
    "\"postgres://USER@HOST:PORT/DATABASE\"",
    NULL,
    NULL,
    0,
    0,
    0,
    ngx_http_idempotency_server_address,
    ngx_http_idempotency_server_option,
    ngx_http_idempotency_postgres_prepare,
    ngx_http_idempotency_postgres_open
};


static ngx_int_t
ngx_http_idempotency_postgres_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    if (ngx_process == NGX_PROCESS_SIGNALLER) {

        /* "nginx -s stop" must not fail because of a store */

        return NGX_OK;
    }

    /* keys and certificates are read by workers */

    return ngx_http_idempotency_check_as_worker(cf, store,
                                          ngx_http_idempotency_postgres_check);
}


static void
ngx_http_idempotency_postgres_options(ngx_http_idempotency_store_t *store,
    struct idem_postgres_options *options)
{
    ngx_memzero(options, sizeof(struct idem_postgres_options));

    options->uri = (char *) store->uri.data;
    options->timeout_ms = store->timeout;
    options->report = ngx_http_idempotency_store_report;
    options->report_data = store;
}


static ngx_int_t
ngx_http_idempotency_postgres_check(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    int                           status;
    char                          why[NGX_HTTP_IDEMPOTENCY_WHY_MAX];
    struct idem_postgres_options  options;

    ngx_http_idempotency_postgres_options(store, &options);

    status = idem_postgres_check(&options, why, sizeof(why));

    return ngx_http_idempotency_server_checked(cf, store, status, why);
}


static int
ngx_http_idempotency_postgres_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log)
{
    int                           status;
    char                          why[NGX_HTTP_IDEMPOTENCY_WHY_MAX];
    struct idem_postgres_options  options;

    ngx_http_idempotency_postgres_options(store, &options);

    options.loop = store->env.loop;

    status = idem_postgres_open(&options, &store->env.store, why, sizeof(why));

    if (status != IDEM_OK) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "idempotency store \"%V\" cannot be opened: %s",
                      &store->name, *why ? why : idem_strerror(status));
    }

    return status;
}
