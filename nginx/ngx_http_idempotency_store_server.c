
/*
 * What stores on servers have in common: their URI is read by the library,
 * and is not logged, for there may be a password in it.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"


static ngx_int_t ngx_http_idempotency_server_append(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *text);


/* The URI as it is written, up to its options. */

ngx_int_t
ngx_http_idempotency_server_address(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *address)
{
    store->uri = store->scheme;

    return ngx_http_idempotency_server_append(cf, store, address);
}


/* What is not ours is the library's, which knows what it knows not. */

ngx_int_t
ngx_http_idempotency_server_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option)
{
    ngx_str_t  separator;

    if (ngx_strlchr(store->uri.data, store->uri.data + store->uri.len, '?')) {
        ngx_str_set(&separator, "&");

    } else {
        ngx_str_set(&separator, "?");
    }

    if (ngx_http_idempotency_server_append(cf, store, &separator) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_server_append(cf, store, option);
}


static ngx_int_t
ngx_http_idempotency_server_append(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *text)
{
    u_char     *p;
    ngx_str_t   uri;

    uri.len = store->uri.len + text->len;

    uri.data = ngx_pnalloc(cf->pool, uri.len + 1);
    if (uri.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(uri.data, store->uri.data, store->uri.len);
    p = ngx_cpymem(p, text->data, text->len);
    *p = '\0';

    store->uri = uri;

    return NGX_OK;
}


/* What the library says of the URI. */

ngx_int_t
ngx_http_idempotency_server_checked(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, int status, const char *why)
{
    if (status == IDEM_OK) {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idempotency store \"%V\" cannot be used: %s",
                       &store->name, *why ? why : idem_strerror(status));
    return NGX_ERROR;
}
