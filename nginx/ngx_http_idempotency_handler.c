
/*
 * The request flow, up to the verdict: who asks, with which key, for what, and
 * whether it may be executed.
 */


#include "ngx_http_idempotency_module.h"


static ngx_http_idempotency_ctx_t *ngx_http_idempotency_create_ctx(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *conf);
static void ngx_http_idempotency_cleanup_ctx(void *data);
static void ngx_http_idempotency_cleanup_request(void *data);
static ngx_int_t ngx_http_idempotency_reenter(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_method_guarded(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf);
static void ngx_http_idempotency_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_proceed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc);
static ngx_int_t ngx_http_idempotency_park(ngx_http_request_t *r);
static void ngx_http_idempotency_parked(ngx_http_request_t *r);
static void ngx_http_idempotency_decided(struct idem_guard *guard, void *host);
static ngx_int_t ngx_http_idempotency_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_execute(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_store_failed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, int status);
static ngx_int_t ngx_http_idempotency_set_attempt(ngx_http_request_t *r,
    uint32_t attempt);
static void ngx_http_idempotency_wrap(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_content_handler(ngx_http_request_t *r);
static void ngx_http_idempotency_lost(struct idem_guard *guard, void *host);


static const struct idem_guard_events  ngx_http_idempotency_events = {
    ngx_http_idempotency_decided,
    ngx_http_idempotency_settled,
    ngx_http_idempotency_lost
};


static ngx_str_t  ngx_http_idempotency_attempt_header =
    ngx_string("Idempotency-Attempt");


ngx_int_t
ngx_http_idempotency_handler(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx) {
        return ngx_http_idempotency_reenter(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (conf->store == NULL) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_create_ctx(r, conf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ngx_http_idempotency_method_guarded(r, conf)) {
        return ngx_http_idempotency_pass(ctx, NGX_HTTP_IDEMPOTENCY_BYPASS);
    }

    if (conf->key && conf->key->early) {

        /* a request that will be refused need not send its body first */

        rc = ngx_http_idempotency_identify(r, ctx);

        if (!ctx->has_id) {

            if (rc == NGX_DECLINED) {
                return rc;
            }

            ngx_http_finalize_request(r, rc);
            return NGX_DONE;
        }
    }

    rc = ngx_http_idempotency_body_start(r, ctx);
    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_idempotency_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    r = r->main;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx || !(r->internal || r->filter_finalize || r->error_page)) {
        return ctx;
    }

    /* an internal redirect has cleared the contexts of all modules */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_idempotency_cleanup_ctx) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);
            break;
        }
    }

    return ctx;
}


ngx_int_t
ngx_http_idempotency_pass(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result)
{
    ctx->state = NGX_HTTP_IDEMPOTENCY_PASSING;
    ctx->result = result;

    return NGX_DECLINED;
}


static ngx_http_idempotency_ctx_t *
ngx_http_idempotency_create_ctx(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_pool_cleanup_t          *pcln;
    ngx_http_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    pcln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_idempotency_ctx_t));
    if (pcln == NULL) {
        return NULL;
    }

    ctx = pcln->data;
    ngx_memzero(ctx, sizeof(ngx_http_idempotency_ctx_t));

    /*
     * set by ngx_memzero():
     *
     *     ctx->state = NGX_HTTP_IDEMPOTENCY_READING;
     *     ctx->result = NGX_HTTP_IDEMPOTENCY_NONE;
     *     ctx->body = NULL;
     *     ctx->guard = NULL;
     *     ctx->held = NULL;
     */

    ctx->request = r;
    ctx->conf = conf;
    ctx->last_held = &ctx->held;

    pcln->handler = ngx_http_idempotency_cleanup_ctx;

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_idempotency_cleanup_request;
    cln->data = ctx;

    ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);

    return ctx;
}


/*
 * Runs when the pool is destroyed, after the request was logged: the variables
 * live until then.
 */

static void
ngx_http_idempotency_cleanup_ctx(void *data)
{
    ngx_http_idempotency_ctx_t  *ctx = data;

    idem_body_free(ctx->body);
    ctx->body = NULL;
}


/*
 * Runs when the request ends in whatever way, after the cleanup of an upstream
 * and before the pool is gone.
 */

static void
ngx_http_idempotency_cleanup_request(void *data)
{
    ngx_http_idempotency_ctx_t  *ctx = data;

    if (ctx->guard == NULL) {
        return;
    }

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_EXECUTING
        || ctx->state == NGX_HTTP_IDEMPOTENCY_CAPTURING)
    {
        ngx_http_idempotency_abandon(ctx);
    }

    /* what has been started is finished without us */

    idem_guard_free(ctx->guard);
    ctx->guard = NULL;
}


/* The phases run again: after a body, or after an internal redirect. */

static ngx_int_t
ngx_http_idempotency_reenter(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ctx->state) {

    case NGX_HTTP_IDEMPOTENCY_READING:

        /* the body could not be read, and an error_page leads here */

        return ngx_http_idempotency_pass(ctx, NGX_HTTP_IDEMPOTENCY_BYPASS);

    case NGX_HTTP_IDEMPOTENCY_EXECUTING:
        ngx_http_idempotency_wrap(r, ctx);
        return NGX_DECLINED;

    default:
        return NGX_DECLINED;
    }
}


static ngx_uint_t
ngx_http_idempotency_method_guarded(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_str_t   *method;
    ngx_uint_t   i;

    method = conf->methods->elts;

    for (i = 0; i < conf->methods->nelts; i++) {

        if (method[i].len == r->method_name.len
            && ngx_strncmp(method[i].data, r->method_name.data, method[i].len)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_idempotency_body_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    ngx_http_idempotency_proceed(r, ctx, ngx_http_idempotency_start(r, ctx));
}


/*
 * NGX_DECLINED: on to the content; NGX_AGAIN: the guard will call back; anything
 * else is for ngx_http_finalize_request().
 */

static ngx_int_t
ngx_http_idempotency_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_body_finish(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!ctx->has_id) {

        rc = ngx_http_idempotency_identify(r, ctx);
        if (!ctx->has_id) {
            return rc;
        }
    }

    return ngx_http_idempotency_claim(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    int                               rc;
    ngx_str_t                         name;
    struct idem_bytes                 bytes;
    struct idem_guard_request         request;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ctx->conf;

    rc = ngx_http_idempotency_store_open(conf->store, r->connection->log);
    if (rc != IDEM_OK) {
        return ngx_http_idempotency_store_failed(r, ctx, rc);
    }

    if (ngx_http_complex_value(r, conf->fingerprint, &name) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    bytes.data = name.data;
    bytes.len = name.len;

    rc = idem_fingerprint_make(bytes, ctx->body, &request.fingerprint);
    if (rc != IDEM_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    request.id = ctx->id;
    request.policy.lease_ms = conf->lease;
    request.policy.ttl_ms = conf->ttl;
    request.policy.retry_in_doubt =
                              (conf->in_doubt == NGX_HTTP_IDEMPOTENCY_RETRY);
    request.wait_ms = conf->observe ? 0 : conf->wait;

    rc = idem_guard_new(&conf->store->env, &request,
                        &ngx_http_idempotency_events, ctx, &ctx->guard);
    if (rc != IDEM_OK) {
        return ngx_http_idempotency_store_failed(r, ctx, rc);
    }

    ctx->state = NGX_HTTP_IDEMPOTENCY_CLAIMING;

    if (idem_guard_begin(ctx->guard) == IDEM_PENDING) {
        return ngx_http_idempotency_park(r);
    }

    return ngx_http_idempotency_decide(r, ctx);
}


static void
ngx_http_idempotency_proceed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_AGAIN && ctx->state == NGX_HTTP_IDEMPOTENCY_CLAIMING) {
        return;
    }

    if (rc == NGX_DECLINED) {
        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_core_run_phases;
        ngx_http_core_run_phases(r);
        return;
    }

    ngx_http_finalize_request(r, rc);
}


/*
 * Nothing has been executed yet: a client that leaves now takes its request
 * with it.
 */

static ngx_int_t
ngx_http_idempotency_park(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_idempotency_parked;

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
    }

    c->log->action = "waiting for idempotency store";

    return NGX_AGAIN;
}


static void
ngx_http_idempotency_parked(ngx_http_request_t *r)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency: still waiting");

    if (ngx_handle_write_event(r->connection->write, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static void
ngx_http_idempotency_decided(struct idem_guard *guard, void *host)
{
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx = host;

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_http_idempotency_proceed(r, ctx, ngx_http_idempotency_decide(r, ctx));

    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_idempotency_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    int  status;

    ctx->wait_time = (ngx_msec_t) idem_guard_waited_ms(ctx->guard);
    ctx->store_time = (ngx_msec_t) idem_guard_store_ms(ctx->guard);

    status = idem_guard_status(ctx->guard);

    if (status != IDEM_OK) {
        return ngx_http_idempotency_store_failed(r, ctx, status);
    }

    switch (idem_guard_verdict(ctx->guard)) {

    case IDEM_EXECUTE:
        return ngx_http_idempotency_execute(r, ctx);

    case IDEM_REPLAY:
        return ngx_http_idempotency_replay(r, ctx);

    case IDEM_IN_PROGRESS:
        return ngx_http_idempotency_refuse(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
                                           IDEM_PROBLEM_IN_PROGRESS, NULL);

    case IDEM_MISMATCH:
        return ngx_http_idempotency_refuse(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_MISMATCH,
                                           IDEM_PROBLEM_KEY_REUSED, NULL);

    case IDEM_IN_DOUBT:
        return ngx_http_idempotency_refuse(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_IN_DOUBT,
                                           IDEM_PROBLEM_OUTCOME_UNKNOWN, NULL);

    default:
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      "idempotency: a claim ended without a verdict");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


static ngx_int_t
ngx_http_idempotency_execute(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->attempt = idem_guard_attempt(ctx->guard);
    ctx->result = NGX_HTTP_IDEMPOTENCY_EXECUTED;
    ctx->state = NGX_HTTP_IDEMPOTENCY_EXECUTING;

    if (ctx->conf->observe) {
        return NGX_DECLINED;
    }

    /* a failure from here on finds nothing sent, and releases the key */

    if (ngx_http_idempotency_set_attempt(r, ctx->attempt) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_store_failed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, int status)
{
    ngx_uint_t                     level;
    ngx_http_idempotency_store_t  *store;

    store = ctx->conf->store;

    /* a store that is full or away fails every claim: one line a minute */

    level = NGX_LOG_INFO;

    if (store->claim_failure != status
        || ngx_time() - store->claim_logged >= 60)
    {
        store->claim_failure = status;
        store->claim_logged = ngx_time();
        level = NGX_LOG_ERR;
    }

    ngx_log_error(level, r->connection->log, 0,
                  "idempotency store \"%V\" failed a claim: %s",
                  &store->name, idem_strerror(status));

    if (ctx->conf->store_error_pass) {
        return ngx_http_idempotency_pass(ctx,
                                         NGX_HTTP_IDEMPOTENCY_STORE_ERROR);
    }

    return ngx_http_idempotency_refuse(r, ctx,
                                       NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
                                       IDEM_PROBLEM_STORE_UNAVAILABLE, NULL);
}


/*
 * The backend hears which execution of the key this is, so that it can fence
 * too.  What a client sent under that name is replaced.
 */

static ngx_int_t
ngx_http_idempotency_set_attempt(ngx_http_request_t *r, uint32_t attempt)
{
    u_char           *p;
    ngx_str_t         value;
    ngx_uint_t        i, found;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    p = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%uD", attempt) - p;

    found = 0;
    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == ngx_http_idempotency_attempt_header.len
            && ngx_strncasecmp(h[i].key.data,
                               ngx_http_idempotency_attempt_header.data,
                               h[i].key.len)
               == 0)
        {
            h[i].value = value;
            found = 1;
        }
    }

    if (found) {
        return NGX_OK;
    }

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->key = ngx_http_idempotency_attempt_header;
    h->value = value;

    h->lowcase_key = ngx_pnalloc(r->pool, h->key.len);
    if (h->lowcase_key == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, h->key.data, h->key.len);

    return NGX_OK;
}


/*
 * nginx ends an upstream when the client goes away.  A guarded execution is
 * awaited instead, whatever the upstream's module and its directives: our
 * content handler runs the real one, and then ignores the client's close.
 */

static void
ngx_http_idempotency_wrap(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (r->content_handler == NULL
        || r->content_handler == ngx_http_idempotency_content_handler)
    {
        return;
    }

    ctx->content_handler = r->content_handler;
    r->content_handler = ngx_http_idempotency_content_handler;
}


static ngx_int_t
ngx_http_idempotency_content_handler(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_http_upstream_t         *u;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    ctx->started = 1;

    rc = ctx->content_handler(r);

    /*
     * The request is still there: reading the body has raised its count, and
     * the caller of this handler lowers it.
     */

    u = r->upstream;

    if (rc != NGX_DONE || ctx->conf->observe
        || u == NULL || u->cleanup == NULL || u->header_sent)
    {
        return rc;
    }

    /* the state that "proxy_ignore_client_abort on" leaves */

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return rc;
}


static void
ngx_http_idempotency_lost(struct idem_guard *guard, void *host)
{
    ngx_http_idempotency_ctx_t  *ctx = host;

    u_char  id[IDEM_ID_TEXT_LEN];

    idem_id_text(&ctx->id, (char *) id);

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idempotency: the lease of key %s was lost while its "
                  "request was executed", id);
}
