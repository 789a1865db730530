
/*
 * The directives that take expressions and pointers: where a key is, whose it
 * is, and what makes two requests the same.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_find_headers(ngx_conf_t *cf,
    ngx_http_idempotency_key_t *key, ngx_str_t *text);
static ngx_uint_t ngx_http_idempotency_is_name(u_char ch);
static struct idem_pointer *ngx_http_idempotency_pointer(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *text);
static void ngx_http_idempotency_pointer_cleanup(void *data);
static char *ngx_http_idempotency_add_pointer(ngx_conf_t *cf,
    ngx_command_t *cmd, struct idem_body_rules *rules, ngx_str_t *value);


char *
ngx_http_idempotency_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t  *value, text;

    if (lcf->key != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strncmp(value[1].data, "body=", 5) == 0) {

        text.data = value[1].data + 5;
        text.len = value[1].len - 5;

        lcf->key = NULL;
        lcf->key_pointer = ngx_http_idempotency_pointer(cf, cmd, &text);

        return lcf->key_pointer ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_key\" "
                           "directive, it must be an expression with a "
                           "variable, or \"body=POINTER\": a constant would "
                           "be one key for all requests", &value[1]);
        return NGX_CONF_ERROR;
    }

    lcf->key = ngx_http_idempotency_compile_key(cf, &value[1]);

    return lcf->key ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_http_idempotency_key_t *
ngx_http_idempotency_compile_key(ngx_conf_t *cf, ngx_str_t *text)
{
    ngx_http_idempotency_key_t        *key;
    ngx_http_compile_complex_value_t   ccv;

    key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_key_t));
    if (key == NULL) {
        return NULL;
    }

    /* before the expression is compiled, which may change its text */

    if (ngx_http_idempotency_find_headers(cf, key, text) != NGX_OK) {
        return NULL;
    }

    key->fields = (key->headers.nelts
                   == ngx_http_script_variables_count(text));

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = &key->value;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NULL;
    }

    return key;
}


/* The fields that "$http_..." and "${http_...}" name: their lines are counted. */

static ngx_int_t
ngx_http_idempotency_find_headers(ngx_conf_t *cf,
    ngx_http_idempotency_key_t *key, ngx_str_t *text)
{
    u_char     *p, *last, *begin;
    ngx_str_t  *name;

    if (ngx_array_init(&key->headers, cf->pool, 1, sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        if (*p != '$') {
            continue;
        }

        begin = p + 1;

        if (begin < last && *begin == '{') {
            begin++;
        }

        if (last - begin <= 5
            || ngx_strncasecmp(begin, (u_char *) "http_", 5) != 0)
        {
            continue;
        }

        begin += 5;

        for (p = begin; p < last && ngx_http_idempotency_is_name(*p); p++) {
            /* void */
        }

        name = ngx_array_push(&key->headers);
        if (name == NULL) {
            return NGX_ERROR;
        }

        name->len = p - begin;
        name->data = ngx_pnalloc(cf->pool, name->len);
        if (name->data == NULL) {
            return NGX_ERROR;
        }

        ngx_strlow(name->data, begin, name->len);

        /* nothing but one field: known before the body is */

        key->early = (begin == text->data + sizeof("$http_") - 1 && p == last);

        p--;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_is_name(u_char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9') || ch == '_';
}


char *
ngx_http_idempotency_set_key_length(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_int_t   min, max;
    ngx_str_t  *value;

    if (lcf->key_min != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    min = ngx_atoi(value[1].data, value[1].len);
    max = ngx_atoi(value[2].data, value[2].len);

    if (min < 1 || max < min || max > IDEM_KEY_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V %V\" in "
                           "\"idempotency_key_length\" directive, it must be "
                           "two numbers from 1 to %d, the first not larger "
                           "than the second",
                           &value[1], &value[2], IDEM_KEY_MAX);
        return NGX_CONF_ERROR;
    }

    lcf->key_min = min;
    lcf->key_max = max;

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->scope != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 3) {

        if (ngx_strcmp(value[2].data, "required") != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in "
                               "\"idempotency_scope\" directive, it must be "
                               "\"required\" after an expression, or nothing",
                               &value[2]);
            return NGX_CONF_ERROR;
        }

        lcf->scope_required = 1;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "constant value \"%V\" in \"idempotency_scope\" "
                           "directive: all callers share their keys, and who "
                           "knows another's key can get its response",
                           &value[1]);
    }

    lcf->scope = ngx_http_idempotency_compile(cf, &value[1]);

    return lcf->scope ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_idempotency_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->fingerprint != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    lcf->fingerprint = ngx_http_idempotency_compile(cf, &value[1]);

    return lcf->fingerprint ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_http_complex_value_t *
ngx_http_idempotency_compile(ngx_conf_t *cf, ngx_str_t *text)
{
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (cv == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = cv;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NULL;
    }

    return cv;
}


static struct idem_pointer *
ngx_http_idempotency_pointer(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *text)
{
    int                   status;
    struct idem_bytes     bytes;
    struct idem_pointer  *pointer;
    ngx_pool_cleanup_t   *cln;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    bytes.data = text->data;
    bytes.len = text->len;

    status = (text->len == 0) ? IDEM_E_INVALID
                              : idem_pointer_parse(bytes, &pointer);

    if (status != IDEM_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it must "
                           "be a JSON Pointer (RFC 6901) that begins with "
                           "\"/\", such as \"/order/id\"", text, &cmd->name);
        return NULL;
    }

    cln->handler = ngx_http_idempotency_pointer_cleanup;
    cln->data = pointer;

    return pointer;
}


static void
ngx_http_idempotency_pointer_cleanup(void *data)
{
    idem_pointer_free(data);
}


char *
ngx_http_idempotency_set_fingerprint_body(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    char                    *rv;
    ngx_str_t               *value;
    ngx_uint_t               i;
    struct idem_body_rules  *rules;

    if (lcf->body_rules != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    rules = ngx_pcalloc(cf->pool, sizeof(struct idem_body_rules));
    if (rules == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "raw") == 0) {
        rules->mode = IDEM_BODY_RAW;

    } else if (ngx_strcmp(value[1].data, "json") == 0) {
        rules->mode = IDEM_BODY_JSON;

    } else if (ngx_strcmp(value[1].data, "off") == 0) {
        rules->mode = IDEM_BODY_OFF;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it must "
                           "be \"raw\", \"json\" or \"off\"",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        rv = ngx_http_idempotency_add_pointer(cf, cmd, rules, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    lcf->body_rules = rules;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_add_pointer(ngx_conf_t *cf, ngx_command_t *cmd,
    struct idem_body_rules *rules, ngx_str_t *value)
{
    size_t                 len, *count;
    ngx_str_t              text;
    ngx_uint_t             only;
    struct idem_pointer   *pointer, **pointers;

    only = (ngx_strncmp(value->data, "only=", 5) == 0);

    if (rules->mode != IDEM_BODY_JSON
        || (!only && ngx_strncmp(value->data, "ignore=", 7) != 0)
        || (only ? rules->ignore_count : rules->only_count) != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, only "
                           "\"json\" takes more values, and they must all be "
                           "\"ignore=POINTER\" or all \"only=POINTER\"",
                           value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    len = only ? 5 : 7;
    text.data = value->data + len;
    text.len = value->len - len;

    pointer = ngx_http_idempotency_pointer(cf, cmd, &text);
    if (pointer == NULL) {
        return NGX_CONF_ERROR;
    }

    count = only ? &rules->only_count : &rules->ignore_count;

    pointers = ngx_palloc(cf->pool, (*count + 1) * sizeof(*pointers));
    if (pointers == NULL) {
        return NGX_CONF_ERROR;
    }

    if (*count) {
        ngx_memcpy(pointers, only ? rules->only : rules->ignore,
                   *count * sizeof(*pointers));
    }

    pointers[(*count)++] = pointer;

    if (only) {
        rules->only = pointers;

    } else {
        rules->ignore = pointers;
    }

    return NGX_CONF_OK;
}
