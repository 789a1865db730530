
/*
 * A response as the store keeps it: taken from r->headers_out before any other
 * filter has touched it, and from the bytes that are held.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_record_fields(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_response *response);
static ngx_int_t ngx_http_idempotency_record_trailers(ngx_http_request_t *r,
    struct idem_response *response);
static ngx_uint_t ngx_http_idempotency_count(ngx_list_t *list);
static void ngx_http_idempotency_copy_list(ngx_list_t *list,
    ngx_http_idempotency_loc_conf_t *conf, struct idem_field *fields,
    size_t *n);
static ngx_uint_t ngx_http_idempotency_hidden(
    ngx_http_idempotency_loc_conf_t *conf, ngx_table_elt_t *h);
static void ngx_http_idempotency_set_field(struct idem_field *field,
    u_char *name, size_t name_len, u_char *value, size_t value_len);
static void ngx_http_idempotency_copy_body(ngx_http_idempotency_ctx_t *ctx,
    u_char *p);


/* The record is made by malloc(): it outlives the request. */

u_char *
ngx_http_idempotency_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t *len)
{
    size_t                head;
    u_char               *record;
    struct idem_response  response;

    ngx_memzero(&response, sizeof(struct idem_response));

    response.status = r->headers_out.status;
    response.reason.data = r->headers_out.status_line.data;
    response.reason.len = r->headers_out.status_line.len;
    response.host_flags = r->headers_out.location
                          ? NGX_HTTP_IDEMPOTENCY_LOCATION : 0;
    response.body_kept = !ctx->not_kept;
    response.body.len = ctx->not_kept ? 0 : ctx->held_len;

    if (ngx_http_idempotency_record_fields(r, ctx, &response) != NGX_OK
        || ngx_http_idempotency_record_trailers(r, &response) != NGX_OK)
    {
        return NULL;
    }

    head = idem_response_head_len(&response);

    if (head == 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency: a response with these header fields "
                      "cannot be recorded");
        return NULL;
    }

    *len = head + response.body.len;

    record = ngx_alloc(*len, r->connection->log);
    if (record == NULL) {
        return NULL;
    }

    idem_response_encode_head(&response, record);

    if (!ctx->not_kept) {
        ngx_http_idempotency_copy_body(ctx, record + head);
    }

    return record;
}


static ngx_int_t
ngx_http_idempotency_record_fields(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_response *response)
{
    size_t              n;
    u_char             *time;
    struct idem_field  *fields;

    /* two fields that nginx keeps beside its list */

    n = ngx_http_idempotency_count(&r->headers_out.headers) + 2;

    fields = ngx_palloc(r->pool, n * sizeof(struct idem_field));
    if (fields == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    if (r->headers_out.content_type.len) {
        ngx_http_idempotency_set_field(&fields[n++],
                                       (u_char *) "Content-Type",
                                       sizeof("Content-Type") - 1,
                                       r->headers_out.content_type.data,
                                       r->headers_out.content_type.len);
    }

    ngx_http_idempotency_copy_list(&r->headers_out.headers, ctx->conf, fields,
                                   &n);

    if (r->headers_out.last_modified == NULL
        && r->headers_out.last_modified_time != -1)
    {
        time = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT"));
        if (time == NULL) {
            return NGX_ERROR;
        }

        response->host_flags |= NGX_HTTP_IDEMPOTENCY_LAST_MODIFIED;

        ngx_http_idempotency_set_field(&fields[n++],
                            (u_char *) "Last-Modified",
                            sizeof("Last-Modified") - 1, time,
                            ngx_http_time(time,
                                          r->headers_out.last_modified_time)
                            - time);
    }

    response->fields = fields;
    response->field_count = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_record_trailers(ngx_http_request_t *r,
    struct idem_response *response)
{
    size_t              n;
    struct idem_field  *fields;

    n = ngx_http_idempotency_count(&r->headers_out.trailers);

    if (n == 0) {
        return NGX_OK;
    }

    fields = ngx_palloc(r->pool, n * sizeof(struct idem_field));
    if (fields == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    ngx_http_idempotency_copy_list(&r->headers_out.trailers, NULL, fields, &n);

    response->trailers = fields;
    response->trailer_count = n;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_count(ngx_list_t *list)
{
    ngx_uint_t        n;
    ngx_list_part_t  *part;

    n = 0;

    for (part = &list->part; part; part = part->next) {
        n += part->nelts;
    }

    return n;
}


static void
ngx_http_idempotency_copy_list(ngx_list_t *list,
    ngx_http_idempotency_loc_conf_t *conf, struct idem_field *fields,
    size_t *n)
{
    ngx_uint_t         i;
    ngx_list_part_t   *part;
    ngx_table_elt_t   *h;
    struct idem_bytes  name;

    for (part = &list->part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            name.data = h[i].key.data;
            name.len = h[i].key.len;

            if (h[i].hash == 0
                || idem_response_field_left_out(name)
                || (conf && ngx_http_idempotency_hidden(conf, &h[i])))
            {
                continue;
            }

            ngx_http_idempotency_set_field(&fields[(*n)++], h[i].key.data,
                                           h[i].key.len, h[i].value.data,
                                           h[i].value.len);
        }
    }
}


static ngx_uint_t
ngx_http_idempotency_hidden(ngx_http_idempotency_loc_conf_t *conf,
    ngx_table_elt_t *h)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (conf->hide_headers == NULL) {
        return 0;
    }

    name = conf->hide_headers->elts;

    for (i = 0; i < conf->hide_headers->nelts; i++) {

        if (name[i].len == h->key.len
            && ngx_strncasecmp(name[i].data, h->key.data, name[i].len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_idempotency_set_field(struct idem_field *field, u_char *name,
    size_t name_len, u_char *value, size_t value_len)
{
    field->name.data = name;
    field->name.len = name_len;
    field->value.data = value;
    field->value.len = value_len;
}


static void
ngx_http_idempotency_copy_body(ngx_http_idempotency_ctx_t *ctx, u_char *p)
{
    ngx_chain_t  *cl;

    for (cl = ctx->held; cl; cl = cl->next) {

        /* the last buffer may have nothing but its flag */

        if (cl->buf->last > cl->buf->pos) {
            p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
        }
    }
}
