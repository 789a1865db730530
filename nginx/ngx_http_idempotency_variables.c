
/*
 * $idempotency_result and its like, for logs and header fields.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_result_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_attempt_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_sha256_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_idempotency_set_variable(ngx_http_variable_value_t *v,
    u_char *data, size_t len);


static ngx_str_t  ngx_http_idempotency_results[] = {
    ngx_null_string,
    ngx_string("executed"),
    ngx_string("replayed"),
    ngx_string("in_progress"),
    ngx_string("mismatch"),
    ngx_string("missing"),
    ngx_string("invalid"),
    ngx_string("in_doubt"),
    ngx_string("released"),
    ngx_string("not_kept"),
    ngx_string("store_error"),
    ngx_string("bypass")
};


static ngx_http_variable_t  ngx_http_idempotency_vars[] = {

    { ngx_string("idempotency_result"), NULL,
      ngx_http_idempotency_result_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_attempt"), NULL,
      ngx_http_idempotency_attempt_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_wait_time"), NULL,
      ngx_http_idempotency_time_variable,
      offsetof(ngx_http_idempotency_ctx_t, wait_time),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_store_time"), NULL,
      ngx_http_idempotency_time_variable,
      offsetof(ngx_http_idempotency_ctx_t, store_time),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_body_sha256"), NULL,
      ngx_http_idempotency_sha256_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_idempotency_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_idempotency_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static void
ngx_http_idempotency_set_variable(ngx_http_variable_value_t *v, u_char *data,
    size_t len)
{
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = data;
    v->len = len;
}


static ngx_int_t
ngx_http_idempotency_result_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   *name;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || ctx->result == NGX_HTTP_IDEMPOTENCY_NONE) {
        v->not_found = 1;
        return NGX_OK;
    }

    name = &ngx_http_idempotency_results[ctx->result];
    ngx_http_idempotency_set_variable(v, name->data, name->len);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_attempt_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || ctx->attempt == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_idempotency_set_variable(v, p,
                                   ngx_sprintf(p, "%uD", ctx->attempt) - p);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p;
    ngx_msec_t                   ms;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || !ctx->has_id) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ms = *(ngx_msec_t *) ((char *) ctx + data);

    ngx_http_idempotency_set_variable(v, p,
                                      ngx_sprintf(p, "%T.%03M",
                                                  (time_t) ms / 1000,
                                                  ms % 1000)
                                      - p);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_sha256_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || !ctx->body_hashed) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, 2 * IDEM_SHA256_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_hex_dump(p, (u_char *) idem_body_sha256(ctx->body), IDEM_SHA256_LEN);

    ngx_http_idempotency_set_variable(v, p, 2 * IDEM_SHA256_LEN);

    return NGX_OK;
}
