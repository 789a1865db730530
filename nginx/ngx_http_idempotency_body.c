
/*
 * The request's body, hashed while it arrives.
 */


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_FILE_BUFFER  65536


static ngx_int_t ngx_http_idempotency_request_body_filter(
    ngx_http_request_t *r, ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_body_walk(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_body_file(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_buf_t *b);


static ngx_http_request_body_filter_pt   ngx_http_next_request_body_filter;


ngx_int_t
ngx_http_idempotency_body_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_idempotency_request_body_filter;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_body_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (idem_body_new(&ctx->conf->body, &ctx->body) != IDEM_OK) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                   *b;
    ngx_chain_t                 *cl;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx == NULL
        || ctx->state != NGX_HTTP_IDEMPOTENCY_READING
        || ctx->body == NULL
        || ctx->body_seen)
    {
        return ngx_http_next_request_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)
            && idem_body_add(ctx->body, b->pos, b->last - b->pos) != IDEM_OK)
        {
            ctx->body_failed = 1;
        }

        if (b->last_buf) {
            ctx->body_seen = 1;
        }
    }

    return ngx_http_next_request_body_filter(r, in);
}


/* All of the body is here.  NGX_OK, or a status. */

ngx_int_t
ngx_http_idempotency_body_finish(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->body_failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* somebody else may have read the body before us */

    if (!ctx->body_seen
        && ngx_http_idempotency_body_walk(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (idem_body_finish(ctx->body) != IDEM_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->body_hashed = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_body_walk(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {

            if (idem_body_add(ctx->body, b->pos, b->last - b->pos)
                != IDEM_OK)
            {
                return NGX_ERROR;
            }

        } else if (b->in_file
                   && ngx_http_idempotency_body_file(r, ctx, b) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_body_file(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_buf_t *b)
{
    off_t     pos;
    size_t    size;
    u_char   *buf;
    ssize_t   n;

    buf = ngx_palloc(r->pool, NGX_HTTP_IDEMPOTENCY_FILE_BUFFER);
    if (buf == NULL) {
        return NGX_ERROR;
    }

    for (pos = b->file_pos; pos < b->file_last; pos += n) {

        size = (size_t) ngx_min(b->file_last - pos,
                                NGX_HTTP_IDEMPOTENCY_FILE_BUFFER);

        n = ngx_read_file(b->file, buf, size, pos);

        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (n == 0) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                          "idempotency: the file of the request's body "
                          "\"%V\" ends too early", &b->file->name);
            return NGX_ERROR;
        }

        if (idem_body_add(ctx->body, buf, (size_t) n) != IDEM_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
