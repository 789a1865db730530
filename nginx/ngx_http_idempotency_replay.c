
/*
 * The response of an earlier execution, again.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_not_kept(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_response *response);
static ngx_int_t ngx_http_idempotency_replay_headers(ngx_http_request_t *r,
    struct idem_response *response);
static ngx_int_t ngx_http_idempotency_replay_field(ngx_http_request_t *r,
    struct idem_response *response, struct idem_field *field);
static ngx_int_t ngx_http_idempotency_replay_trailers(ngx_http_request_t *r,
    struct idem_response *response);
static void ngx_http_idempotency_content_type(ngx_http_request_t *r,
    u_char *data, size_t len);


#define ngx_http_idempotency_is(field, text)                                  \
    ((field)->name.len == sizeof(text) - 1                                    \
     && ngx_strncasecmp((u_char *) (field)->name.data, (u_char *) text,       \
                        sizeof(text) - 1)                                     \
        == 0)


ngx_int_t
ngx_http_idempotency_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    int                   status;
    ngx_int_t             rc;
    ngx_chain_t          *out;
    struct idem_response  response;

    status = idem_response_decode(idem_guard_found(ctx->guard)->payload,
                                  &response);

    if (status != IDEM_OK) {
        char  id[IDEM_ID_TEXT_LEN];

        idem_id_text(&ctx->id, id);

        ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                      "idempotency: the record of key %s cannot be read: %s",
                      id, idem_strerror(status));

        return ngx_http_idempotency_refuse(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
                                           IDEM_PROBLEM_OUTCOME_UNKNOWN, NULL);
    }

    if (!response.body_kept) {
        return ngx_http_idempotency_not_kept(r, ctx, &response);
    }

    if (ctx->conf->observe) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "idempotency: would have replayed a response");

        return ngx_http_idempotency_pass(ctx, NGX_HTTP_IDEMPOTENCY_REPLAYED);
    }

    ctx->result = NGX_HTTP_IDEMPOTENCY_REPLAYED;
    ctx->state = NGX_HTTP_IDEMPOTENCY_ANSWERED;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_idempotency_replay_headers(r, &response) != NGX_OK
        || ngx_http_idempotency_replay_trailers(r, &response) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    out = ngx_http_idempotency_chain(r, (u_char *) response.body.data,
                                     response.body.len);
    if (out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_send_all(r, out);
}


static ngx_int_t
ngx_http_idempotency_not_kept(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_response *response)
{
    struct idem_bytes    run;
    struct idem_field    field;
    struct idem_problem  problem;

    ngx_memzero(&problem, sizeof(struct idem_problem));

    problem.code = IDEM_PROBLEM_RESPONSE_NOT_KEPT;
    problem.original_status = response->status;

    run = response->field_run;

    while (idem_response_next(&run, &field)) {

        if (ngx_http_idempotency_is(&field, "Location")) {
            problem.original_location = field.value;
            break;
        }
    }

    return ngx_http_idempotency_answer(r, ctx, NGX_HTTP_IDEMPOTENCY_NOT_KEPT,
                                       &problem);
}


static ngx_int_t
ngx_http_idempotency_replay_headers(ngx_http_request_t *r,
    struct idem_response *response)
{
    struct idem_bytes  run;
    struct idem_field  field;

    r->headers_out.status = response->status;
    r->headers_out.status_line.data = (u_char *) response->reason.data;
    r->headers_out.status_line.len = response->reason.len;

    if (response->trailer_run.len) {
        r->headers_out.content_length_n = -1;
        r->expect_trailers = 1;

    } else if (response->status != NGX_HTTP_NO_CONTENT
               && response->status != NGX_HTTP_NOT_MODIFIED)
    {
        r->headers_out.content_length_n = response->body.len;
    }

    /* a replay is never answered by a part of it, or by "not modified" */

    r->disable_not_modified = 1;
    r->allow_ranges = 0;

    run = response->field_run;

    while (idem_response_next(&run, &field)) {

        if (ngx_http_idempotency_replay_field(r, response, &field) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (ngx_http_idempotency_push(r, &r->headers_out.headers,
                                  (u_char *) "Idempotent-Replayed",
                                  sizeof("Idempotent-Replayed") - 1,
                                  (u_char *) "true", sizeof("true") - 1)
        == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Sets the slots, too, by which other filters know a field. */

static ngx_int_t
ngx_http_idempotency_replay_field(ngx_http_request_t *r,
    struct idem_response *response, struct idem_field *field)
{
    ngx_table_elt_t  *h;

    if (ngx_http_idempotency_is(field, "Content-Type")) {
        ngx_http_idempotency_content_type(r, (u_char *) field->value.data,
                                          field->value.len);
        return NGX_OK;
    }

    if ((response->host_flags & NGX_HTTP_IDEMPOTENCY_LAST_MODIFIED)
        && ngx_http_idempotency_is(field, "Last-Modified"))
    {
        r->headers_out.last_modified_time =
                       ngx_parse_http_time((u_char *) field->value.data,
                                           field->value.len);
        return NGX_OK;
    }

    h = ngx_http_idempotency_push(r, &r->headers_out.headers,
                                  (u_char *) field->name.data,
                                  field->name.len,
                                  (u_char *) field->value.data,
                                  field->value.len);
    if (h == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_is(field, "Content-Encoding")) {
        r->headers_out.content_encoding = h;

    } else if (ngx_http_idempotency_is(field, "Location")) {

        if (response->host_flags & NGX_HTTP_IDEMPOTENCY_LOCATION) {
            r->headers_out.location = h;
        }

    } else if (ngx_http_idempotency_is(field, "ETag")) {
        r->headers_out.etag = h;

    } else if (ngx_http_idempotency_is(field, "Last-Modified")) {
        r->headers_out.last_modified = h;
        r->headers_out.last_modified_time =
                           ngx_parse_http_time(h->value.data, h->value.len);

    } else if (ngx_http_idempotency_is(field, "Expires")) {
        r->headers_out.expires = h;

    } else if (ngx_http_idempotency_is(field, "Refresh")) {
        r->headers_out.refresh = h;

    } else if (ngx_http_idempotency_is(field, "Content-Range")) {
        r->headers_out.content_range = h;

    } else if (ngx_http_idempotency_is(field, "Accept-Ranges")) {
        r->headers_out.accept_ranges = h;

    } else if (ngx_http_idempotency_is(field, "WWW-Authenticate")) {
        r->headers_out.www_authenticate = h;

    } else if (ngx_http_idempotency_is(field, "Cache-Control")) {
        return ngx_http_idempotency_add_multi(r,
                                        &r->headers_out.cache_control, h);

    } else if (ngx_http_idempotency_is(field, "Link")) {
        return ngx_http_idempotency_add_multi(r, &r->headers_out.link, h);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_replay_trailers(ngx_http_request_t *r,
    struct idem_response *response)
{
    struct idem_bytes  run;
    struct idem_field  field;

    run = response->trailer_run;

    while (idem_response_next(&run, &field)) {

        if (ngx_http_idempotency_push(r, &r->headers_out.trailers,
                                      (u_char *) field.name.data,
                                      field.name.len,
                                      (u_char *) field.value.data,
                                      field.value.len)
            == NULL)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* As an upstream's: the charset stands beside the whole value. */

static void
ngx_http_idempotency_content_type(ngx_http_request_t *r, u_char *data,
    size_t len)
{
    u_char  *p, *last, *charset;

    r->headers_out.content_type.data = data;
    r->headers_out.content_type.len = len;
    r->headers_out.content_type_len = len;
    r->headers_out.content_type_lowcase = NULL;

    last = data + len;

    for (p = data; p < last; p++) {

        if (*p != ';') {
            continue;
        }

        charset = p + 1;

        while (charset < last && *charset == ' ') {
            charset++;
        }

        if ((size_t) (last - charset) < sizeof("charset=") - 1
            || ngx_strncasecmp(charset, (u_char *) "charset=",
                               sizeof("charset=") - 1)
               != 0)
        {
            continue;
        }

        charset += sizeof("charset=") - 1;

        r->headers_out.content_type_len = p - data;

        if (charset < last && *charset == '"') {
            charset++;
        }

        if (last > charset && *(last - 1) == '"') {
            last--;
        }

        r->headers_out.charset.data = charset;
        r->headers_out.charset.len = last - charset;

        return;
    }
}
