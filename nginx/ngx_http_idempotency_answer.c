
/*
 * The answers that Idem gives itself: problem documents.
 */


#include "ngx_http_idempotency_module.h"


static void ngx_http_idempotency_log_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const struct idem_problem *problem);
static ngx_int_t ngx_http_idempotency_problem_headers(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, enum idem_problem_code code);


ngx_int_t
ngx_http_idempotency_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_result_e result,
    enum idem_problem_code code, const char *detail)
{
    struct idem_problem  problem;

    ngx_memzero(&problem, sizeof(struct idem_problem));

    problem.code = code;

    if (detail) {
        problem.detail.data = detail;
        problem.detail.len = ngx_strlen(detail);
    }

    return ngx_http_idempotency_answer(r, ctx, result, &problem);
}


/*
 * While we only observe, the request goes on, and what would have been answered
 * is logged.
 */

ngx_int_t
ngx_http_idempotency_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_result_e result,
    const struct idem_problem *problem)
{
    ngx_int_t     rc;
    ngx_chain_t  *out;

    ngx_http_idempotency_log_answer(r, ctx, problem);

    if (ctx->conf->observe) {
        return ngx_http_idempotency_pass(ctx, result);
    }

    ctx->result = result;
    ctx->state = NGX_HTTP_IDEMPOTENCY_ANSWERED;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_idempotency_problem(r, ctx, problem, &out);
    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_send_all(r, out);
}


static void
ngx_http_idempotency_log_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const struct idem_problem *problem)
{
    char        id[IDEM_ID_TEXT_LEN];
    ngx_uint_t  level;

    if (ctx->has_id) {
        idem_id_text(&ctx->id, id);

    } else {
        ngx_memcpy(id, "-", sizeof("-"));
    }

    level = (problem->code == IDEM_PROBLEM_OUTCOME_UNKNOWN) ? NGX_LOG_WARN
                                                            : NGX_LOG_INFO;

    ngx_log_error(level, r->connection->log, 0,
                  "idempotency: %s \"%s\" for key %s",
                  ctx->conf->observe ? "would have answered" : "answered",
                  idem_problem_name(problem->code), id);
}


/* Fills r->headers_out; the document is in *out. */

ngx_int_t
ngx_http_idempotency_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const struct idem_problem *problem,
    ngx_chain_t **out)
{
    char                             *json;
    size_t                            len;
    u_char                           *p;
    struct idem_problem               full;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ctx->conf;
    full = *problem;

    full.docs_url.data = conf->docs_url.data;
    full.docs_url.len = conf->docs_url.len;

    full.status = (full.code == IDEM_PROBLEM_IN_PROGRESS)
                  ? conf->conflict_status : idem_problem_status(full.code);

    if (idem_problem_render(&full, &json, &len) != IDEM_OK) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        ngx_free(json);
        return NGX_ERROR;
    }

    ngx_memcpy(p, json, len);
    ngx_free(json);

    r->headers_out.status = full.status;

    if (full.status == 422) {

        /* nginx has no words for it; RFC 9110, section 15.5.21 */

        ngx_str_set(&r->headers_out.status_line, "422 Unprocessable Content");
    }

    r->headers_out.content_length_n = len;
    ngx_str_set(&r->headers_out.content_type, IDEM_PROBLEM_MEDIA_TYPE);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    if (ngx_http_idempotency_problem_headers(r, ctx, full.code) != NGX_OK) {
        return NGX_ERROR;
    }

    *out = ngx_http_idempotency_chain(r, p, len);

    return *out ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_idempotency_problem_headers(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, enum idem_problem_code code)
{
    time_t                            retry_after;
    u_char                           *p;
    ngx_list_t                       *headers;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ctx->conf;
    headers = &r->headers_out.headers;

    if (ngx_http_idempotency_push(r, headers, (u_char *) "Content-Language",
                                  sizeof("Content-Language") - 1,
                                  (u_char *) "en", sizeof("en") - 1)
        == NULL)
    {
        return NGX_ERROR;
    }

    if (conf->docs_url.len) {

        p = ngx_pnalloc(r->pool,
                        conf->docs_url.len + sizeof("<>; rel=\"describedby\""));
        if (p == NULL) {
            return NGX_ERROR;
        }

        if (ngx_http_idempotency_push(r, headers, (u_char *) "Link",
                                      sizeof("Link") - 1, p,
                                      ngx_sprintf(p,
                                                  "<%V>; rel=\"describedby\"",
                                                  &conf->docs_url)
                                      - p)
            == NULL)
        {
            return NGX_ERROR;
        }
    }

    if (code != IDEM_PROBLEM_IN_PROGRESS
        && code != IDEM_PROBLEM_STORE_UNAVAILABLE)
    {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    retry_after = (time_t) ((conf->retry_after + 999) / 1000);

    if (ngx_http_idempotency_push(r, headers, (u_char *) "Retry-After",
                                  sizeof("Retry-After") - 1, p,
                                  ngx_sprintf(p, "%T", retry_after) - p)
        == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_send_all(ngx_http_request_t *r, ngx_chain_t *out)
{
    ngx_int_t  rc;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, out);
}


ngx_table_elt_t *
ngx_http_idempotency_push(ngx_http_request_t *r, ngx_list_t *list,
    u_char *name, size_t name_len, u_char *value, size_t value_len)
{
    u_char           *low;
    ngx_table_elt_t  *h;

    low = ngx_pnalloc(r->pool, name_len);
    if (low == NULL) {
        return NULL;
    }

    ngx_strlow(low, name, name_len);

    h = ngx_list_push(list);
    if (h == NULL) {
        return NULL;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.data = name;
    h->key.len = name_len;
    h->value.data = value;
    h->value.len = value_len;
    h->lowcase_key = low;

    return h;
}


ngx_chain_t *
ngx_http_idempotency_chain(ngx_http_request_t *r, u_char *data, size_t len)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NULL;
    }

    if (len) {
        b->pos = data;
        b->last = data + len;
        b->start = b->pos;
        b->end = b->last;
        b->memory = 1;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


/* Only a replay says that it is one. */

void
ngx_http_idempotency_discard_marker(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].key.len == sizeof("Idempotent-Replayed") - 1
                && ngx_strncasecmp(h[i].key.data,
                                   (u_char *) "Idempotent-Replayed",
                                   sizeof("Idempotent-Replayed") - 1)
                   == 0)
            {
                h[i].hash = 0;
            }
        }
    }
}
