
/*
 * Defaults, and how directives are inherited.
 */


#include "ngx_http_idempotency_module.h"


static char *ngx_http_idempotency_find_store(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_merge_lists(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_merge_expressions(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_array_t *ngx_http_idempotency_default_methods(ngx_conf_t *cf);
static ngx_array_t *ngx_http_idempotency_default_statuses(ngx_conf_t *cf,
    const uint16_t *statuses, size_t n);
static char *ngx_http_idempotency_check_statuses(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);


void *
ngx_http_idempotency_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *mcf;

    mcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_main_conf_t));
    if (mcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&mcf->stores, cf->pool, 2,
                       sizeof(ngx_http_idempotency_store_t *))
        != NGX_OK)
    {
        return NULL;
    }

    return mcf;
}


void *
ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->store_name = { 0, NULL };
     *     conf->store = NULL;
     *     conf->observe = 0;
     *     conf->key_pointer = NULL;
     *     conf->scope_required = 0;
     *     conf->docs_url = { 0, NULL };
     */

    conf->enable = NGX_CONF_UNSET;
    conf->key = NGX_CONF_UNSET_PTR;
    conf->key_syntax = NGX_CONF_UNSET_UINT;
    conf->key_format = NGX_CONF_UNSET_UINT;
    conf->key_min = NGX_CONF_UNSET_UINT;
    conf->key_max = NGX_CONF_UNSET_UINT;
    conf->required = NGX_CONF_UNSET;
    conf->methods = NGX_CONF_UNSET_PTR;
    conf->scope = NGX_CONF_UNSET_PTR;
    conf->fingerprint = NGX_CONF_UNSET_PTR;
    conf->body_rules = NGX_CONF_UNSET_PTR;
    conf->ttl = NGX_CONF_UNSET_MSEC;
    conf->lease = NGX_CONF_UNSET_MSEC;
    conf->wait = NGX_CONF_UNSET_MSEC;
    conf->retry_after = NGX_CONF_UNSET_MSEC;
    conf->conflict_status = NGX_CONF_UNSET_UINT;
    conf->retryable = NGX_CONF_UNSET_PTR;
    conf->unknown = NGX_CONF_UNSET_PTR;
    conf->in_doubt = NGX_CONF_UNSET_UINT;
    conf->store_error_pass = NGX_CONF_UNSET_UINT;
    conf->max_response = NGX_CONF_UNSET_SIZE;
    conf->hide_headers = NGX_CONF_UNSET_PTR;

    return conf;
}


char *
ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    char                             *rv;
    ngx_http_idempotency_loc_conf_t  *prev = parent;
    ngx_http_idempotency_loc_conf_t  *conf = child;

    if (conf->enable == NGX_CONF_UNSET) {
        conf->enable = (prev->enable == NGX_CONF_UNSET) ? 0 : prev->enable;
        conf->store_name = prev->store_name;
        conf->observe = prev->observe;
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_conf_merge_uint_value(conf->key_syntax, prev->key_syntax,
                              IDEM_KEY_LENIENT);
    ngx_conf_merge_uint_value(conf->key_format, prev->key_format,
                              IDEM_KEY_ANY);
    ngx_conf_merge_uint_value(conf->key_min, prev->key_min, 1);
    ngx_conf_merge_uint_value(conf->key_max, prev->key_max, IDEM_KEY_MAX);

    conf->key_rules.syntax = conf->key_syntax;
    conf->key_rules.format = conf->key_format;
    conf->key_rules.min_len = conf->key_min;
    conf->key_rules.max_len = conf->key_max;

    ngx_conf_merge_value(conf->required, prev->required, 1);
    ngx_conf_merge_msec_value(conf->ttl, prev->ttl, 24 * 3600 * 1000);
    ngx_conf_merge_msec_value(conf->lease, prev->lease, 60000);
    ngx_conf_merge_msec_value(conf->wait, prev->wait, 1000);
    ngx_conf_merge_msec_value(conf->retry_after, prev->retry_after, 1000);
    ngx_conf_merge_uint_value(conf->conflict_status, prev->conflict_status,
                              409);
    ngx_conf_merge_uint_value(conf->in_doubt, prev->in_doubt,
                              NGX_HTTP_IDEMPOTENCY_REJECT);
    ngx_conf_merge_uint_value(conf->store_error_pass, prev->store_error_pass,
                              0);
    ngx_conf_merge_size_value(conf->max_response, prev->max_response,
                              1024 * 1024);
    ngx_conf_merge_str_value(conf->docs_url, prev->docs_url, "");

    rv = ngx_http_idempotency_merge_expressions(cf, prev, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    rv = ngx_http_idempotency_merge_lists(cf, prev, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (!conf->enable) {
        conf->store = NULL;
        return NGX_CONF_OK;
    }

    rv = ngx_http_idempotency_find_store(cf, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    return ngx_http_idempotency_check(cf, conf);
}


static char *
ngx_http_idempotency_find_store(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    u_char                            *last, names[512];
    ngx_uint_t                         i;
    ngx_http_idempotency_store_t     **store;
    ngx_http_idempotency_main_conf_t  *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    store = mcf->stores.elts;
    last = names;

    for (i = 0; i < mcf->stores.nelts; i++) {

        if (store[i]->name.len == conf->store_name.len
            && ngx_strncmp(store[i]->name.data, conf->store_name.data,
                           conf->store_name.len)
               == 0)
        {
            conf->store = store[i];
            return NGX_CONF_OK;
        }

        last = ngx_slprintf(last, names + sizeof(names) - 1, "%s\"%V\"",
                            i ? ", " : "", &store[i]->name);
    }

    *last = '\0';

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "unknown store \"%V\" in \"idempotency\" directive, it must "
                  "be \"off\" or the name of an \"idempotency_store\": %s "
                  "in %s:%ui", &conf->store_name,
                  mcf->stores.nelts ? names : (u_char *) "there is none",
                  conf->file, conf->line);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_merge_expressions(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_str_t                          text;
    ngx_http_idempotency_main_conf_t  *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    if (conf->key == NGX_CONF_UNSET_PTR) {
        conf->key = prev->key;
        conf->key_pointer = prev->key_pointer;
    }

    if (conf->key == NGX_CONF_UNSET_PTR) {

        if (mcf->key == NULL) {
            ngx_str_set(&text, "$http_idempotency_key");

            mcf->key = ngx_http_idempotency_compile_key(cf, &text);
            if (mcf->key == NULL) {
                return NGX_CONF_ERROR;
            }
        }

        conf->key = mcf->key;
    }

    if (conf->scope == NGX_CONF_UNSET_PTR) {
        conf->scope = prev->scope;
        conf->scope_required = prev->scope_required;
    }

    if (conf->scope == NGX_CONF_UNSET_PTR) {

        if (mcf->scope == NULL) {
            ngx_str_set(&text, "$http_authorization");

            mcf->scope = ngx_http_idempotency_compile(cf, &text);
            if (mcf->scope == NULL) {
                return NGX_CONF_ERROR;
            }
        }

        conf->scope = mcf->scope;
    }

    if (conf->fingerprint == NGX_CONF_UNSET_PTR) {
        conf->fingerprint = prev->fingerprint;
    }

    if (conf->fingerprint == NGX_CONF_UNSET_PTR) {

        if (mcf->fingerprint == NULL) {
            ngx_str_set(&text, "$request_method $request_uri");

            mcf->fingerprint = ngx_http_idempotency_compile(cf, &text);
            if (mcf->fingerprint == NULL) {
                return NGX_CONF_ERROR;
            }
        }

        conf->fingerprint = mcf->fingerprint;
    }

    if (conf->body_rules == NGX_CONF_UNSET_PTR) {
        conf->body_rules = prev->body_rules;
    }

    ngx_memzero(&conf->body, sizeof(struct idem_body_rules));

    if (conf->body_rules != NGX_CONF_UNSET_PTR) {
        conf->body = *conf->body_rules;
    }

    conf->body.keep_json = (conf->key_pointer != NULL);
    conf->body.json_max = NGX_HTTP_IDEMPOTENCY_JSON_MAX;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_merge_lists(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    const struct idem_outcome_rules   *rules;
    ngx_http_idempotency_main_conf_t  *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    if (mcf->methods == NULL) {
        rules = &idem_outcome_rules_default;

        mcf->methods = ngx_http_idempotency_default_methods(cf);
        mcf->retryable = ngx_http_idempotency_default_statuses(cf,
                                    rules->retryable, rules->retryable_count);
        mcf->unknown = ngx_http_idempotency_default_statuses(cf,
                                    rules->unknown, rules->unknown_count);

        if (mcf->methods == NULL || mcf->retryable == NULL
            || mcf->unknown == NULL)
        {
            return NGX_CONF_ERROR;
        }
    }

    ngx_conf_merge_ptr_value(conf->methods, prev->methods, mcf->methods);
    ngx_conf_merge_ptr_value(conf->retryable, prev->retryable,
                             mcf->retryable);
    ngx_conf_merge_ptr_value(conf->unknown, prev->unknown, mcf->unknown);
    ngx_conf_merge_ptr_value(conf->hide_headers, prev->hide_headers, NULL);

    conf->outcomes.retryable = conf->retryable->elts;
    conf->outcomes.retryable_count = conf->retryable->nelts;
    conf->outcomes.unknown = conf->unknown->elts;
    conf->outcomes.unknown_count = conf->unknown->nelts;

    return ngx_http_idempotency_check_statuses(cf, conf);
}


static ngx_array_t *
ngx_http_idempotency_default_methods(ngx_conf_t *cf)
{
    ngx_str_t    *method;
    ngx_array_t  *methods;

    methods = ngx_array_create(cf->pool, 2, sizeof(ngx_str_t));
    if (methods == NULL) {
        return NULL;
    }

    method = ngx_array_push_n(methods, 2);
    if (method == NULL) {
        return NULL;
    }

    ngx_str_set(&method[0], "POST");
    ngx_str_set(&method[1], "PATCH");

    return methods;
}


static ngx_array_t *
ngx_http_idempotency_default_statuses(ngx_conf_t *cf,
    const uint16_t *statuses, size_t n)
{
    uint16_t     *status;
    ngx_array_t  *list;

    list = ngx_array_create(cf->pool, n, sizeof(uint16_t));
    if (list == NULL) {
        return NULL;
    }

    status = ngx_array_push_n(list, n);
    if (status == NULL) {
        return NULL;
    }

    ngx_memcpy(status, statuses, n * sizeof(uint16_t));

    return list;
}


static char *
ngx_http_idempotency_check_statuses(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    uint16_t    *retryable, *unknown;
    ngx_uint_t   i, n;

    retryable = conf->retryable->elts;
    unknown = conf->unknown->elts;

    for (i = 0; i < conf->retryable->nelts; i++) {

        for (n = 0; n < conf->unknown->nelts; n++) {

            if (retryable[i] == unknown[n]) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "status \"%ui\" stands both in "
                                   "\"idempotency_retryable\" and in "
                                   "\"idempotency_unknown\" (by default 502 "
                                   "504), it must be left out of one of them",
                                   (ngx_uint_t) unknown[n]);
                return NGX_CONF_ERROR;
            }
        }
    }

    return NGX_CONF_OK;
}
