
/*
 * The response of a guarded execution: held until the store has it, then sent
 * on to the filters that come after this one.
 */


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_MIN_BUFFER  1024
#define NGX_HTTP_IDEMPOTENCY_MAX_BUFFER  65536


static ngx_int_t ngx_http_idempotency_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_capture_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_unkeepable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_capture_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_observe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);
static ngx_uint_t ngx_http_idempotency_was_cut(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_hold(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_buf_t *b);
static ngx_buf_t *ngx_http_idempotency_hold_buffer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t size);
static ngx_int_t ngx_http_idempotency_hold_last(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_hold_links(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_commit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_send_lost(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


ngx_int_t
ngx_http_idempotency_capture_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_idempotency_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_idempotency_body_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_header_filter(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || ctx->state == NGX_HTTP_IDEMPOTENCY_ANSWERED) {
        return ngx_http_next_header_filter(r);
    }

    ngx_http_idempotency_discard_marker(r);

    if (ctx->state != NGX_HTTP_IDEMPOTENCY_EXECUTING) {
        return ngx_http_next_header_filter(r);
    }

    /* an error page or an X-Accel-Redirect comes after the upstream has ended */

    ctx->upstreamed = (r->upstream && r->upstream->cleanup);

    if (ctx->conf->observe) {
        ctx->state = NGX_HTTP_IDEMPOTENCY_CAPTURING;
        ctx->not_kept = ngx_http_idempotency_unkeepable(r, ctx);

        if (!ctx->not_kept) {
            r->main_filter_need_in_memory = 1;
        }

        return ngx_http_next_header_filter(r);
    }

    if (r->filter_finalize) {

        /*
         * Another filter replaces the response; to hold the replacement too
         * would let the first one's handler go on with a freed request.
         */

        ngx_http_idempotency_abandon(ctx);

        return ngx_http_next_header_filter(r);
    }

    return ngx_http_idempotency_capture_header(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_capture_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->state = NGX_HTTP_IDEMPOTENCY_CAPTURING;
    ctx->not_kept = ngx_http_idempotency_unkeepable(r, ctx);

    /* what is held bypasses the range filter above, which must not announce */

    r->allow_ranges = 0;

    if (ctx->not_kept || r->header_only) {

        ctx->last_seen = r->header_only;

        if (ngx_http_idempotency_commit(r, ctx) == NGX_AGAIN) {
            return NGX_OK;
        }

        return ngx_http_idempotency_send(r, ctx);
    }

    r->main_filter_need_in_memory = 1;

    return NGX_OK;
}


/*
 * A response without an end, or one that is known to be too large, is not held:
 * its key is told that it was executed, and then it goes by.
 */

static ngx_uint_t
ngx_http_idempotency_unkeepable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t  *type;

    if (r->headers_out.status < NGX_HTTP_OK) {
        return 1;
    }

    if (r->headers_out.content_length_n > (off_t) ctx->conf->max_response) {
        return 1;
    }

    type = &r->headers_out.content_type;

    return type->len >= sizeof("text/event-stream") - 1
           && ngx_strncasecmp(type->data, (u_char *) "text/event-stream",
                              sizeof("text/event-stream") - 1)
              == 0;
}


static ngx_int_t
ngx_http_idempotency_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_body_filter(r, in);
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEMPOTENCY_CAPTURING:

        if (ctx->conf->observe) {
            return ngx_http_idempotency_observe_body(r, ctx, in);
        }

        return ngx_http_idempotency_capture_body(r, ctx, in);

    case NGX_HTTP_IDEMPOTENCY_COMMITTING:

        /* what comes meanwhile stays in its buffers, and so upstream waits */

        if (!ctx->conf->observe) {

            if (ngx_http_idempotency_hold_links(r, ctx, in) != NGX_OK) {
                return NGX_ERROR;
            }

            r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;

            return NGX_AGAIN;
        }

        break;

    default:
        break;
    }

    if (r->buffered & NGX_HTTP_IDEMPOTENCY_BUFFERED) {

        /* the store has answered, and nginx's writer calls */

        return ngx_http_idempotency_send(r, ctx);
    }

    if (ctx->discard) {

        for ( /* void */ ; in; in = in->next) {
            in->buf->pos = in->buf->last;
            in->buf->file_pos = in->buf->file_last;
        }

        return NGX_OK;
    }

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_idempotency_capture_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    ctx->cut = ctx->upstreamed && ngx_http_idempotency_was_cut(r, in);

    for (cl = in; cl && !ctx->last_seen; cl = cl->next) {
        b = cl->buf;

        if (ctx->held_len + ngx_buf_size(b) > ctx->conf->max_response
            && !ctx->cut)
        {
            /* too large after all */

            ctx->not_kept = 1;
            ctx->held_len = 0;
            break;
        }

        if (ngx_http_idempotency_hold(r, ctx, b) != NGX_OK) {
            return NGX_ERROR;
        }

        ctx->last_seen = b->last_buf;
    }

    if (ctx->last_seen) {

        if (ngx_http_idempotency_hold_last(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

    } else if (ctx->not_kept) {

        if (ngx_http_idempotency_hold_links(r, ctx, cl) != NGX_OK) {
            return NGX_ERROR;
        }

    } else if (!ctx->cut) {
        return NGX_OK;
    }

    if (ngx_http_idempotency_commit(r, ctx) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    return ngx_http_idempotency_send(r, ctx);
}


/* The response is copied while it goes by; nobody waits for the store. */

static ngx_int_t
ngx_http_idempotency_observe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    u_char       *pos;
    ngx_chain_t  *cl;

    for (cl = in; cl && !ctx->last_seen; cl = cl->next) {

        if (ctx->held_len + ngx_buf_size(cl->buf) > ctx->conf->max_response) {
            ctx->not_kept = 1;
            ctx->held_len = 0;
        }

        if (!ctx->not_kept) {

            pos = cl->buf->pos;

            if (ngx_http_idempotency_hold(r, ctx, cl->buf) != NGX_OK) {
                return NGX_ERROR;
            }

            cl->buf->pos = pos;
        }

        ctx->last_seen = cl->buf->last_buf;
    }

    ctx->cut = ctx->upstreamed && ngx_http_idempotency_was_cut(r, in);

    if (ctx->last_seen || ctx->cut) {
        (void) ngx_http_idempotency_settle(r, ctx);
    }

    return ngx_http_next_body_filter(r, in);
}


/*
 * ngx_http_upstream_finalize_request() ends a response that was cut short in a
 * flush without a last buffer, after it has let go of the upstream.
 */

static ngx_uint_t
ngx_http_idempotency_was_cut(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (in == NULL || r->upstream->cleanup) {
        return 0;
    }

    for (cl = in; cl; cl = cl->next) {
        if (cl->buf->last_buf) {
            return 0;
        }
    }

    return in->buf->flush && ngx_buf_special(in->buf);
}


/* Copies a buffer's bytes and gives it back at once, so that nothing stalls. */

static ngx_int_t
ngx_http_idempotency_hold(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_buf_t *b)
{
    size_t      size, n;
    ngx_buf_t  *held;

    if (b->in_file && !ngx_buf_in_memory(b)) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      "idempotency: a response came in a file");
        return NGX_ERROR;
    }

    size = ngx_buf_in_memory(b) ? (size_t) (b->last - b->pos) : 0;

    while (size) {

        held = ngx_http_idempotency_hold_buffer(r, ctx, size);
        if (held == NULL) {
            return NGX_ERROR;
        }

        n = ngx_min(size, (size_t) (held->end - held->last));

        held->last = ngx_cpymem(held->last, b->pos, n);
        b->pos += n;
        size -= n;
        ctx->held_len += n;
    }

    return NGX_OK;
}


/* The buffer that has room for the next bytes. */

static ngx_buf_t *
ngx_http_idempotency_hold_buffer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t size)
{
    off_t         rest;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ctx->tail;

    if (b && b->last < b->end) {
        return b;
    }

    rest = r->headers_out.content_length_n - (off_t) ctx->held_len;

    if (rest > 0 && (size_t) rest > size) {

        /* the length is known, and below the limit */

        size = (size_t) rest;

    } else if (ctx->held_len) {
        size = ngx_max(size, ngx_min(ctx->held_len,
                                     NGX_HTTP_IDEMPOTENCY_MAX_BUFFER));
        size = ngx_max(size, NGX_HTTP_IDEMPOTENCY_MIN_BUFFER);
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NULL;
    }

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    *ctx->last_held = cl;
    ctx->last_held = &cl->next;
    ctx->tail = b;

    return b;
}


static ngx_int_t
ngx_http_idempotency_hold_last(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (ctx->tail) {
        ctx->tail->last_buf = 1;
        ctx->tail->last_in_chain = 1;
        return NGX_OK;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;
    cl->next = NULL;

    *ctx->last_held = cl;
    ctx->last_held = &cl->next;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_hold_links(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (ctx->last_seen) {

        /* a buffer after the last one can come from other filters */

        return NGX_OK;
    }

    for ( /* void */ ; in; in = in->next) {

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = in->buf;
        cl->next = NULL;

        *ctx->last_held = cl;
        ctx->last_held = &cl->next;

        if (in->buf->last_buf) {
            ctx->last_seen = 1;
            break;
        }
    }

    return NGX_OK;
}


/* NGX_OK: the store has answered; NGX_AGAIN: the request waits for it. */

static ngx_int_t
ngx_http_idempotency_commit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_event_t  *wev;

    if (ngx_http_idempotency_settle(r, ctx) == NGX_OK) {
        return NGX_OK;
    }

    r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;

    /* nothing is being written: send_timeout must not run */

    wev = r->connection->write;

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    wev->delayed = 1;

    r->connection->log->action = "waiting for idempotency store";

    return NGX_AGAIN;
}


void
ngx_http_idempotency_settled(struct idem_guard *guard, void *host)
{
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx = host;

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (ngx_http_idempotency_settled_late(ctx) == NGX_AGAIN) {
        return;
    }

    if (!(r->buffered & NGX_HTTP_IDEMPOTENCY_BUFFERED)) {

        /* nobody waits */

        return;
    }

    c->write->delayed = 0;

    if (!ctx->last_seen && !ctx->cut) {

        /* the rest is still to come, from a handler that has not ended */

        if (ngx_http_idempotency_send(r, ctx) == NGX_ERROR) {
            c->error = 1;
        }
    }

    r->write_event_handler(r);

    ngx_http_run_posted_requests(c);
}


/* Lets go of what is held. */

static ngx_int_t
ngx_http_idempotency_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t     rc;
    ngx_chain_t  *out;

    r->buffered &= ~NGX_HTTP_IDEMPOTENCY_BUFFERED;

    if (ctx->cut) {
        return ngx_http_filter_finalize_request(r,
                                                &ngx_http_idempotency_module,
                                                NGX_HTTP_BAD_GATEWAY);
    }

    if (ctx->lost && ctx->outcome == IDEM_OUTCOME_KEEP) {
        return ngx_http_idempotency_send_lost(r, ctx);
    }

    if (ctx->last_seen && !ctx->not_kept && !r->header_only
        && r->headers_out.content_length_n == -1
        && r->headers_out.status != NGX_HTTP_NO_CONTENT
        && r->headers_out.status != NGX_HTTP_NOT_MODIFIED
        && r->headers_out.trailers.part.nelts == 0)
    {
        /* as its replays will have it */

        r->headers_out.content_length_n = ctx->held_len;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out = ctx->held;
    ctx->held = NULL;
    ctx->last_held = &ctx->held;

    if (out == NULL) {
        return NGX_OK;
    }

    return ngx_http_next_body_filter(r, out);
}


/*
 * Another execution has taken the key over, and its response is the one that
 * retries will see: this one must not be seen.
 */

static ngx_int_t
ngx_http_idempotency_send_lost(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_chain_t         *out, *cl;
    struct idem_problem  problem;

    for (cl = ctx->held; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;
        cl->buf->file_pos = cl->buf->file_last;
    }

    ctx->held = NULL;
    ctx->discard = 1;

    ngx_memzero(&problem, sizeof(struct idem_problem));
    problem.code = IDEM_PROBLEM_IN_PROGRESS;

    ngx_http_clean_header(r);

    if (ngx_http_idempotency_problem(r, ctx, &problem, &out) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_next_body_filter(r, out);
}
