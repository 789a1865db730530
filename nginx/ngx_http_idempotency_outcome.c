
/*
 * What became of the request: was it sent, was it answered, and what is told
 * to the store.
 */


#include "ngx_http_idempotency_module.h"


static void ngx_http_idempotency_examine(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_execution *execution);
static off_t ngx_http_idempotency_bytes_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state, ngx_uint_t last);
static ngx_uint_t ngx_http_idempotency_whole(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_set_result(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_settle_end(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_log_end(ngx_http_idempotency_ctx_t *ctx,
    int status);
static int ngx_http_idempotency_complete(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_too_long(
    ngx_http_idempotency_ctx_t *ctx);


/*
 * The response is here (or, with ctx->cut, will never be): tell the store.
 * NGX_OK: it has acknowledged, or failed; NGX_AGAIN: it will, and
 * ngx_http_idempotency_settled() is called.
 */

ngx_int_t
ngx_http_idempotency_settle(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    int                    rc;
    struct idem_execution  execution;

    ngx_http_idempotency_examine(r, ctx, &execution);

    execution.whole = !ctx->cut && ngx_http_idempotency_whole(r, ctx);

    if (!execution.whole && !ctx->not_kept) {

        /* nothing of it was sent yet: the client gets a clean error instead */

        ctx->cut = 1;
    }

    ctx->outcome = idem_outcome_of(&ctx->conf->outcomes, &execution);
    ctx->state = NGX_HTTP_IDEMPOTENCY_COMMITTING;

    /* a request that does not wait for the store is logged with this */

    ngx_http_idempotency_set_result(ctx);

    switch (ctx->outcome) {

    case IDEM_OUTCOME_KEEP:
        rc = ngx_http_idempotency_complete(r, ctx);
        break;

    case IDEM_OUTCOME_RELEASE:
        rc = idem_guard_release(ctx->guard);
        break;

    default: /* IDEM_OUTCOME_DOUBT */
        rc = idem_guard_give_up(ctx->guard);
    }

    if (rc == IDEM_PENDING) {
        return NGX_AGAIN;
    }

    ngx_http_idempotency_settle_end(ctx);

    return NGX_OK;
}


static void
ngx_http_idempotency_set_result(ngx_http_idempotency_ctx_t *ctx)
{
    switch (ctx->outcome) {

    case IDEM_OUTCOME_KEEP:
        ctx->result = ctx->not_kept ? NGX_HTTP_IDEMPOTENCY_NOT_KEPT
                                    : NGX_HTTP_IDEMPOTENCY_EXECUTED;
        break;

    case IDEM_OUTCOME_RELEASE:
        ctx->result = NGX_HTTP_IDEMPOTENCY_RELEASED;
        break;

    default: /* IDEM_OUTCOME_DOUBT */
        ctx->result = NGX_HTTP_IDEMPOTENCY_IN_DOUBT;
    }
}


/* The store has answered, or its time is over. */

static void
ngx_http_idempotency_settle_end(ngx_http_idempotency_ctx_t *ctx)
{
    int  status;

    ctx->store_time = (ngx_msec_t) idem_guard_store_ms(ctx->guard);
    ctx->state = NGX_HTTP_IDEMPOTENCY_PASSING;

    ngx_http_idempotency_set_result(ctx);

    status = idem_guard_settled_status(ctx->guard);

    if (status != IDEM_OK) {
        ctx->result = NGX_HTTP_IDEMPOTENCY_STORE_ERROR;

    } else if (idem_guard_settled_verdict(ctx->guard) == IDEM_LOST) {
        ctx->lost = 1;
    }

    if (status != IDEM_OK || ctx->lost || ctx->outcome == IDEM_OUTCOME_DOUBT) {
        ngx_http_idempotency_log_end(ctx, status);
    }
}


/* What an operator has to know of the end of an execution. */

static void
ngx_http_idempotency_log_end(ngx_http_idempotency_ctx_t *ctx, int status)
{
    char        id[IDEM_ID_TEXT_LEN];
    ngx_log_t  *log;

    log = ctx->request->connection->log;

    idem_id_text(&ctx->id, id);

    if (ctx->outcome == IDEM_OUTCOME_DOUBT) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "idempotency: key %s is in doubt: attempt %uD was sent "
                      "and brought no whole answer", id, ctx->attempt);
    }

    if (status != IDEM_OK) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "idempotency store \"%V\" failed to record the end of "
                      "key %s: %s; it is tried again while the lease lasts",
                      &ctx->conf->store->name, id, idem_strerror(status));
    }

    if (ctx->lost) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "idempotency: attempt %uD of key %s ended after its key "
                      "was taken over; its response is not kept",
                      ctx->attempt, id);
    }
}


/* The request ends and nothing was settled: the guard does it behind us. */

void
ngx_http_idempotency_abandon(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->cut = 1;

    (void) ngx_http_idempotency_settle(ctx->request, ctx);

    ctx->state = NGX_HTTP_IDEMPOTENCY_PASSING;
}


/*
 * One entry of r->upstream_states is one attempt of nginx; those without a peer
 * only separate internal redirects.
 */

static void
ngx_http_idempotency_examine(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_execution *execution)
{
    ngx_uint_t                  i, sent, answered, lost, tried;
    ngx_http_upstream_state_t  *state;

    ngx_memzero(execution, sizeof(struct idem_execution));

    execution->status = r->headers_out.status;

    tried = 0;
    lost = 0;
    answered = 0;

    if (r->upstream_states) {

        state = r->upstream_states->elts;

        for (i = 0; i < r->upstream_states->nelts; i++) {

            if (state[i].peer == NULL) {
                continue;
            }

            execution->earlier_lost |= lost;

            sent = ngx_http_idempotency_bytes_sent(r, &state[i],
                                       i + 1 == r->upstream_states->nelts)
                   > 0;

            answered = (state[i].header_time != (ngx_msec_t) -1);
            lost = sent && !answered;
            tried = 1;

            if (sent) {
                execution->sent = 1;
            }

            if (answered) {
                execution->sent = 1;
                execution->status = state[i].status;
            }
        }
    }

    if (tried) {
        execution->from_backend = answered;
        return;
    }

    if (r->upstream) {

        /* it ended before its first attempt: nothing was sent */

        return;
    }

    /*
     * No upstream takes part: the location is its own backend.  An error of
     * nginx before it was started is none of its answers.
     */

    execution->sent = ctx->started
                      || (!ctx->cut
                          && r->err_status < NGX_HTTP_INTERNAL_SERVER_ERROR);
    execution->from_backend = 1;
}


/*
 * What the kernel accepted.  nginx notes it when an attempt ends; until then
 * the connection has it.
 */

static off_t
ngx_http_idempotency_bytes_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state, ngx_uint_t last)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (last && u && u->peer.connection && state == u->state) {
        return ngx_max(state->bytes_sent, u->peer.connection->sent);
    }

    return state->bytes_sent;
}


/*
 * nginx ends a response that was cut short without its last buffer, but for
 * two cases, both of them responses whose length was never told or reached.
 */

static ngx_uint_t
ngx_http_idempotency_whole(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (r->headers_out.status < NGX_HTTP_OK) {
        return r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS;
    }

    if (ctx->not_kept || !ctx->upstreamed
        || r->headers_out.status == NGX_HTTP_NO_CONTENT
        || r->headers_out.status == NGX_HTTP_NOT_MODIFIED
        || r->header_only
        || u->cleanup)
    {
        return 1;
    }

    if (u->headers_in.content_length_n > 0
        && (off_t) ctx->held_len < u->headers_in.content_length_n)
    {
        return 0;
    }

    /* FastCGI ends in a record of its own */

    if (u->schema.len == sizeof("fastcgi://") - 1
        && ngx_strncmp(u->schema.data, "fastcgi://", u->schema.len) == 0)
    {
        return u->buffering ? (u->pipe && u->pipe->upstream_done)
                            : (u->length == 0);
    }

    return 1;
}


static int
ngx_http_idempotency_complete(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    int      rc;
    size_t   len;
    u_char  *record;

    record = ngx_http_idempotency_record(r, ctx, &len);

    if (record == NULL) {

        /* it was executed and cannot be recorded: nobody will know */

        ctx->outcome = IDEM_OUTCOME_DOUBT;

        return idem_guard_give_up(ctx->guard);
    }

    rc = idem_guard_complete(ctx->guard, record, len);

    if (rc == IDEM_OK && ngx_http_idempotency_too_long(ctx)) {
        return ngx_http_idempotency_complete(r, ctx);
    }

    return rc;
}


/*
 * A store without room for a response may have some for the fact that there was
 * one.  At most once: ctx->not_kept is set then.
 */

static ngx_uint_t
ngx_http_idempotency_too_long(ngx_http_idempotency_ctx_t *ctx)
{
    if (idem_guard_settled_status(ctx->guard) != IDEM_E_FULL
        || ctx->not_kept)
    {
        return 0;
    }

    ctx->not_kept = 1;

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idempotency store \"%V\" has no room for a response of "
                  "%uz bytes: it is recorded without its body",
                  &ctx->conf->store->name, ctx->held_len);

    return 1;
}


/* The store has answered later.  NGX_AGAIN: it is asked once more. */

ngx_int_t
ngx_http_idempotency_settled_late(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->outcome == IDEM_OUTCOME_KEEP
        && ngx_http_idempotency_too_long(ctx)
        && ngx_http_idempotency_complete(ctx->request, ctx) == IDEM_PENDING)
    {
        return NGX_AGAIN;
    }

    ngx_http_idempotency_settle_end(ctx);

    return NGX_OK;
}
