
/*
 * Whose key it is, and which: from a request to the name of its cell.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_key *key);
static ngx_int_t ngx_http_idempotency_key_member(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_key *key);
static ngx_uint_t ngx_http_idempotency_count_fields(ngx_http_request_t *r,
    ngx_str_t *name);
static ngx_uint_t ngx_http_idempotency_is_field(ngx_table_elt_t *h,
    ngx_str_t *name);
static ngx_int_t ngx_http_idempotency_key_missing(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_key_invalid(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, enum idem_key_fault fault);


/*
 * With ctx->has_id the key is known.  Without it, NGX_DECLINED: the request goes
 * on unguarded; anything else: it was answered, and the result is for
 * ngx_http_finalize_request().
 */

ngx_int_t
ngx_http_idempotency_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_str_t                         scope;
    struct idem_key                   key;
    struct idem_bytes                 bytes;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ctx->conf;

    if (conf->key_pointer) {
        rc = ngx_http_idempotency_key_member(r, ctx, &key);

    } else {
        rc = ngx_http_idempotency_key(r, ctx, &key);
    }

    if (rc != NGX_OK || ctx->state == NGX_HTTP_IDEMPOTENCY_ANSWERED) {
        return rc;
    }

    if (ngx_http_complex_value(r, conf->scope, &scope) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (scope.len == 0 && conf->scope_required) {
        return ngx_http_idempotency_refuse(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_MISSING,
                                           IDEM_PROBLEM_SCOPE_MISSING, NULL);
    }

    bytes.data = scope.data;
    bytes.len = scope.len;

    if (idem_id_make(bytes, &key, &ctx->id) != IDEM_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->has_id = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_key *key)
{
    ngx_str_t                         value, *name;
    ngx_uint_t                        i, n, fields;
    struct idem_bytes                 bytes;
    enum idem_key_fault               fault;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ctx->conf;
    fields = 0;

    /* lines are counted before nginx combines them */

    name = conf->key->headers.elts;

    for (i = 0; i < conf->key->headers.nelts; i++) {

        n = ngx_http_idempotency_count_fields(r, &name[i]);

        if (n > 1) {
            return ngx_http_idempotency_refuse(r, ctx,
                       NGX_HTTP_IDEMPOTENCY_INVALID, IDEM_PROBLEM_KEY_INVALID,
                       "The field that carries the key was sent more than "
                       "once. Send it in one field line.");
        }

        fields += n;
    }

    if (ngx_http_complex_value(r, &conf->key->value, &value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* what is constant around fields that were not sent is no key */

    if (fields == 0 && (value.len == 0 || conf->key->fields)) {
        return ngx_http_idempotency_key_missing(r, ctx);
    }

    bytes.data = value.data;
    bytes.len = value.len;

    fault = idem_key_parse(&conf->key_rules, bytes, key);

    if (fault != IDEM_KEY_OK) {
        return ngx_http_idempotency_key_invalid(r, ctx, fault);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_key_member(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, struct idem_key *key)
{
    struct idem_bytes    text;
    enum idem_key_fault  fault;

    switch (idem_body_member(ctx->body, ctx->conf->key_pointer, &text)) {

    case IDEM_MEMBER_FOUND:
        break;

    case IDEM_MEMBER_NOT_TEXT:
        return ngx_http_idempotency_refuse(r, ctx,
                   NGX_HTTP_IDEMPOTENCY_INVALID, IDEM_PROBLEM_KEY_INVALID,
                   "The member of the request body that holds the key is "
                   "neither a string nor an integer.");

    default:
        return ngx_http_idempotency_key_missing(r, ctx);
    }

    fault = idem_key_from_text(&ctx->conf->key_rules, text, key);

    if (fault != IDEM_KEY_OK) {
        return ngx_http_idempotency_key_invalid(r, ctx, fault);
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_count_fields(ngx_http_request_t *r, ngx_str_t *name)
{
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    n = 0;
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

        if (ngx_http_idempotency_is_field(&h[i], name)) {
            n++;
        }
    }

    return n;
}


/* name is spelled as in a variable: lower case, with underscores */

static ngx_uint_t
ngx_http_idempotency_is_field(ngx_table_elt_t *h, ngx_str_t *name)
{
    u_char      ch;
    ngx_uint_t  i;

    if (h->key.len != name->len) {
        return 0;
    }

    for (i = 0; i < name->len; i++) {
        ch = h->key.data[i];
        ch = (ch == '-') ? '_' : ngx_tolower(ch);

        if (ch != name->data[i]) {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_http_idempotency_key_missing(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (!ctx->conf->required) {
        return ngx_http_idempotency_pass(ctx, NGX_HTTP_IDEMPOTENCY_BYPASS);
    }

    return ngx_http_idempotency_refuse(r, ctx, NGX_HTTP_IDEMPOTENCY_MISSING,
                                       IDEM_PROBLEM_KEY_MISSING, NULL);
}


static ngx_int_t
ngx_http_idempotency_key_invalid(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, enum idem_key_fault fault)
{
    char  text[160];

    (void) idem_key_fault_text(fault, &ctx->conf->key_rules, text,
                               sizeof(text));

    return ngx_http_idempotency_refuse(r, ctx, NGX_HTTP_IDEMPOTENCY_INVALID,
                                       IDEM_PROBLEM_KEY_INVALID, text);
}
