
/*
 * The directives, and what they accept.
 */


#include "ngx_http_idempotency_module.h"


typedef struct {
    ngx_msec_t   min;
    ngx_msec_t   max;
    char        *allowed;
} ngx_http_idempotency_time_range_t;


typedef struct {
    char        *name;
    ngx_uint_t   value;
} ngx_http_idempotency_choice_t;


static char *ngx_http_idempotency_set_idempotency(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_idempotency_set_choice(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_idempotency_set_time(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_idempotency_set_methods(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_idempotency_set_statuses(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_idempotency_set_in_doubt(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_idempotency_set_size(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_idempotency_set_hide(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_idempotency_set_docs_url(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static ngx_uint_t ngx_http_idempotency_is_token(ngx_str_t *s);


static ngx_http_idempotency_choice_t  ngx_http_idempotency_syntaxes[] = {
    { "lenient", IDEM_KEY_LENIENT },
    { "strict", IDEM_KEY_STRICT },
    { NULL, 0 }
};


static ngx_http_idempotency_choice_t  ngx_http_idempotency_formats[] = {
    { "any", IDEM_KEY_ANY },
    { "uuid", IDEM_KEY_UUID },
    { NULL, 0 }
};


static ngx_http_idempotency_choice_t  ngx_http_idempotency_conflicts[] = {
    { "409", 409 },
    { "429", 429 },
    { NULL, 0 }
};


static ngx_http_idempotency_choice_t  ngx_http_idempotency_store_errors[] = {
    { "fail", 0 },
    { "pass", 1 },
    { NULL, 0 }
};


#define NGX_HTTP_IDEMPOTENCY_YEAR  (365 * 24 * 3600 * (ngx_msec_t) 1000)


static ngx_http_idempotency_time_range_t  ngx_http_idempotency_ttl_range = {
    1000, 10 * NGX_HTTP_IDEMPOTENCY_YEAR, "a time from 1s to 10y"
};


static ngx_http_idempotency_time_range_t  ngx_http_idempotency_lease_range = {
    100, 24 * 3600 * 1000, "a time from 100ms to 1d"
};


static ngx_http_idempotency_time_range_t  ngx_http_idempotency_wait_range = {
    0, 3600 * 1000, "a time from 0 to 1h"
};


static ngx_http_idempotency_time_range_t  ngx_http_idempotency_retry_range = {
    1000, 24 * 3600 * 1000, "a time from 1s to 1d"
};


#define NGX_HTTP_IDEMPOTENCY_ANYWHERE                                         \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


ngx_command_t  ngx_http_idempotency_commands[] = {

    { ngx_string("idempotency_store"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_idempotency_set_store,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_idempotency_set_idempotency,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_key"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_key_syntax"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, key_syntax),
      &ngx_http_idempotency_syntaxes },

    { ngx_string("idempotency_key_format"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, key_format),
      &ngx_http_idempotency_formats },

    { ngx_string("idempotency_key_length"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE2,
      ngx_http_idempotency_set_key_length,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_required"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, required),
      NULL },

    { ngx_string("idempotency_methods"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idempotency_set_methods,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_scope"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_idempotency_set_scope,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_fingerprint"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_fingerprint_body"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idempotency_set_fingerprint_body,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_ttl"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, ttl),
      &ngx_http_idempotency_ttl_range },

    { ngx_string("idempotency_lease"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, lease),
      &ngx_http_idempotency_lease_range },

    { ngx_string("idempotency_wait"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, wait),
      &ngx_http_idempotency_wait_range },

    { ngx_string("idempotency_retry_after"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, retry_after),
      &ngx_http_idempotency_retry_range },

    { ngx_string("idempotency_conflict_status"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, conflict_status),
      &ngx_http_idempotency_conflicts },

    { ngx_string("idempotency_retryable"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idempotency_set_statuses,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, retryable),
      NULL },

    { ngx_string("idempotency_unknown"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idempotency_set_statuses,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, unknown),
      NULL },

    { ngx_string("idempotency_in_doubt"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_in_doubt,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_store_error"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, store_error_pass),
      &ngx_http_idempotency_store_errors },

    { ngx_string("idempotency_max_response"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, max_response),
      NULL },

    { ngx_string("idempotency_hide_header"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idempotency_set_hide,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_docs_url"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idempotency_set_docs_url,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static char *
ngx_http_idempotency_set_idempotency(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->enable != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    lcf->enable = (ngx_strcmp(value[1].data, "off") != 0);
    lcf->store_name = value[1];
    lcf->file = cf->conf_file->file.name.data;
    lcf->line = cf->conf_file->line;

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (!lcf->enable || ngx_strcmp(value[2].data, "observe") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency\" directive, "
                           "it must be \"observe\" after the name of a store, "
                           "or nothing", &value[2]);
        return NGX_CONF_ERROR;
    }

    lcf->observe = 1;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_set_choice(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    u_char                         *last, allowed[256];
    ngx_str_t                      *value;
    ngx_uint_t                     *np;
    ngx_http_idempotency_choice_t  *choice;

    np = (ngx_uint_t *) (p + cmd->offset);

    if (*np != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    last = allowed;

    for (choice = cmd->post; choice->name; choice++) {

        if (ngx_strcmp(value[1].data, choice->name) == 0) {
            *np = choice->value;
            return NGX_CONF_OK;
        }

        last = ngx_slprintf(last, allowed + sizeof(allowed) - 1, "%s\"%s\"",
                            last == allowed ? "" : " or ", choice->name);
    }

    *last = '\0';

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, "
                       "it must be %s", &value[1], &cmd->name, allowed);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_set_time(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_int_t                           ms;
    ngx_str_t                          *value;
    ngx_msec_t                         *msp;
    ngx_http_idempotency_time_range_t  *range = cmd->post;

    msp = (ngx_msec_t *) (p + cmd->offset);

    if (*msp != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR
        || (ngx_msec_t) ms < range->min
        || (ngx_msec_t) ms > range->max)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be %s",
                           &value[1], &cmd->name, range->allowed);
        return NGX_CONF_ERROR;
    }

    *msp = (ngx_msec_t) ms;

    return NGX_CONF_OK;
}


/* RFC 9110, section 5.6.2 */

static ngx_uint_t
ngx_http_idempotency_is_token(ngx_str_t *s)
{
    u_char   ch;
    size_t   i;

    for (i = 0; i < s->len; i++) {
        ch = s->data[i];

        if (ch <= 0x20 || ch >= 0x7f
            || ngx_strchr("\"(),/:;<=>?@[\\]{}", ch) != NULL)
        {
            return 0;
        }
    }

    return s->len > 0;
}


static char *
ngx_http_idempotency_set_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    u_char      *p;
    ngx_str_t   *value, *method;
    ngx_uint_t   i, valid;

    if (lcf->methods != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    lcf->methods = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
    if (lcf->methods == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        valid = ngx_http_idempotency_is_token(&value[i]);

        for (p = value[i].data; valid && *p; p++) {
            valid = (*p < 'a' || *p > 'z');
        }

        /* safe ones need no key, and a HEAD or a tunnel has no body to keep */

        if (!valid
            || ngx_strcmp(value[i].data, "HEAD") == 0
            || ngx_strcmp(value[i].data, "OPTIONS") == 0
            || ngx_strcmp(value[i].data, "TRACE") == 0
            || ngx_strcmp(value[i].data, "CONNECT") == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in "
                               "\"idempotency_methods\" directive, it must be "
                               "a method in upper case, and not HEAD, OPTIONS, "
                               "TRACE or CONNECT", &value[i]);
            return NGX_CONF_ERROR;
        }

        method = ngx_array_push(lcf->methods);
        if (method == NULL) {
            return NGX_CONF_ERROR;
        }

        *method = value[i];
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_set_statuses(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    char  *p = conf;

    uint16_t     *status;
    ngx_int_t     n;
    ngx_str_t    *value;
    ngx_uint_t    i;
    ngx_array_t **list;

    list = (ngx_array_t **) (p + cmd->offset);

    if (*list != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    *list = ngx_array_create(cf->pool, 8, sizeof(uint16_t));
    if (*list == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "none") == 0) {
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        n = ngx_atoi(value[i].data, value[i].len);

        if (n < 200 || n > 599) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in \"%V\" directive, "
                               "it must be a status from 200 to 599, or "
                               "\"none\" alone", &value[i], &cmd->name);
            return NGX_CONF_ERROR;
        }

        status = ngx_array_push(*list);
        if (status == NULL) {
            return NGX_CONF_ERROR;
        }

        *status = (uint16_t) n;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_set_in_doubt(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->in_doubt != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "reject") == 0) {
        lcf->in_doubt = NGX_HTTP_IDEMPOTENCY_REJECT;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "retry") == 0) {
        lcf->in_doubt = NGX_HTTP_IDEMPOTENCY_RETRY;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[1].data, "ask=", 4) == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "this build lacks \"%V\" in "
                           "\"idempotency_in_doubt\" directive, it must be "
                           "\"reject\" or \"retry\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"idempotency_in_doubt\" "
                       "directive, it must be \"reject\" or \"retry\"",
                       &value[1]);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_set_size(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    off_t       size;
    size_t     *sp;
    ngx_str_t  *value;

    sp = (size_t *) (p + cmd->offset);

    if (*sp != NGX_CONF_UNSET_SIZE) {
        return "is duplicate";
    }

    value = cf->args->elts;

    size = ngx_parse_offset(&value[1]);

    if (size == NGX_ERROR || size > 512 * 1024 * 1024) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be a size from 0 to 512m",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    *sp = (size_t) size;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_set_hide(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    ngx_str_t   *value, *name;
    ngx_uint_t   i;

    /* may be given more than once, as "proxy_hide_header" may */

    if (lcf->hide_headers == NGX_CONF_UNSET_PTR) {
        lcf->hide_headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
        if (lcf->hide_headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (!ngx_http_idempotency_is_token(&value[i])) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in "
                               "\"idempotency_hide_header\" directive, "
                               "it must be the name of a header field",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        name = ngx_array_push(lcf->hide_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_set_docs_url(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *lcf = conf;

    u_char      *p;
    ngx_str_t   *value;
    ngx_uint_t   valid;

    if (lcf->docs_url.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    valid = (value[1].len > 7
             && ngx_strncmp(value[1].data, "http://", 7) == 0)
            || (value[1].len > 8
                && ngx_strncmp(value[1].data, "https://", 8) == 0);

    /* it stands between "<" and ">" in a Link field; RFC 3986, section 2 */

    for (p = value[1].data; valid && *p; p++) {
        valid = (*p > 0x20 && *p < 0x7f
                 && ngx_strchr("<>\"\\^`{|}", *p) == NULL);
    }

    if (!valid || value[1].len > 2048) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_docs_url\" "
                           "directive, it must be an http:// or https:// URL "
                           "of at most 2048 characters", &value[1]);
        return NGX_CONF_ERROR;
    }

    lcf->docs_url = value[1];

    return NGX_CONF_OK;
}
