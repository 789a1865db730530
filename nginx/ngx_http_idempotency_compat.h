
/*
 * Where the nginx versions that are supported (1.22 to 1.31) differ.
 */

#ifndef _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * Fields that may come more than once, Cache-Control and Link, stand in an
 * array of pointers before 1.23.0, and in a list through h->next since.
 */

#if (nginx_version >= 1023000)

typedef ngx_table_elt_t  *ngx_http_idempotency_multi_t;

static ngx_inline ngx_int_t
ngx_http_idempotency_add_multi(ngx_http_request_t *r,
    ngx_http_idempotency_multi_t *multi, ngx_table_elt_t *h)
{
    while (*multi) {
        multi = &(*multi)->next;
    }

    *multi = h;

    return NGX_OK;
}

#else

typedef ngx_array_t  ngx_http_idempotency_multi_t;

static ngx_inline ngx_int_t
ngx_http_idempotency_add_multi(ngx_http_request_t *r,
    ngx_http_idempotency_multi_t *multi, ngx_table_elt_t *h)
{
    ngx_table_elt_t  **p;

    if (multi->elts == NULL
        && ngx_array_init(multi, r->pool, 1, sizeof(ngx_table_elt_t *))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = ngx_array_push(multi);
    if (p == NULL) {
        return NGX_ERROR;
    }

    *p = h;

    return NGX_OK;
}

#endif


#endif /* _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_ */
