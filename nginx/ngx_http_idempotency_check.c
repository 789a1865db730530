
/*
 * Configurations in which nginx itself would undo what the guard promises: some
 * are refused, of others the operator is warned.
 *
 * This runs while the locations of this module are merged, which comes after the
 * modules that pass requests on have merged theirs.
 */


#include "ngx_http_idempotency_module.h"


typedef struct {
    char  *module;
    char  *next_upstream;
    char  *cache;
} ngx_http_idempotency_upstream_t;


static ngx_http_upstream_conf_t *ngx_http_idempotency_upstream_conf(
    ngx_conf_t *cf, char *name);
static char *ngx_http_idempotency_check_upstream(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_core_loc_conf_t *clcf,
    ngx_http_idempotency_upstream_t *type);
static ngx_uint_t ngx_http_idempotency_resent_method(
    ngx_http_idempotency_loc_conf_t *conf, ngx_str_t *method);
static void ngx_http_idempotency_check_error_pages(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);


static ngx_http_idempotency_upstream_t  ngx_http_idempotency_upstreams[] = {
    { "ngx_http_proxy_module", "proxy_next_upstream", "proxy_cache" },
    { "ngx_http_fastcgi_module", "fastcgi_next_upstream", "fastcgi_cache" },
    { "ngx_http_uwsgi_module", "uwsgi_next_upstream", "uwsgi_cache" },
    { "ngx_http_scgi_module", "scgi_next_upstream", "scgi_cache" },
    { "ngx_http_grpc_module", "grpc_next_upstream", "" },
    { NULL, NULL, NULL }
};


char *
ngx_http_idempotency_check(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    char                             *rv;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_idempotency_upstream_t  *type;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler == NULL) {

        /* a server, or a location that passes nothing on */

        return NGX_CONF_OK;
    }

    for (type = ngx_http_idempotency_upstreams; type->module; type++) {

        rv = ngx_http_idempotency_check_upstream(cf, conf, clcf, type);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    ngx_http_idempotency_check_error_pages(cf, clcf);

    return NGX_CONF_OK;
}


/*
 * The modules' own structures are private, but each of them begins with a
 * ngx_http_upstream_conf_t.  A module that was not built in is not there.
 */

static ngx_http_upstream_conf_t *
ngx_http_idempotency_upstream_conf(ngx_conf_t *cf, char *name)
{
    ngx_uint_t                 i;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_upstream_conf_t  *ucf;

    for (i = 0; cf->cycle->modules[i]; i++) {

        if (cf->cycle->modules[i]->type == NGX_HTTP_MODULE
            && ngx_strcmp(cf->cycle->modules[i]->name, name) == 0)
        {
            ctx = cf->ctx;
            ucf = ctx->loc_conf[cf->cycle->modules[i]->ctx_index];

            /* what is passed on by another module has no upstream here */

            return ucf->upstream ? ucf : NULL;
        }
    }

    return NULL;
}


static char *
ngx_http_idempotency_check_upstream(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_core_loc_conf_t *clcf,
    ngx_http_idempotency_upstream_t *type)
{
    ngx_str_t                  method;
    ngx_http_upstream_conf_t  *ucf;

    ucf = ngx_http_idempotency_upstream_conf(cf, type->module);

    if (ucf == NULL) {
        return NGX_CONF_OK;
    }

#if (NGX_HTTP_CACHE)

    if (ucf->cache && (ucf->cache_methods & NGX_HTTP_POST)) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"%s\" keeps responses to POST in guarded location "
                      "\"%V\", it must be \"off\" there, or \"idempotency\" "
                      "must", type->cache, &clcf->name);
        return NGX_CONF_ERROR;
    }

#endif

    if (ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s ... non_idempotent\" makes nginx itself send a "
                      "request twice in guarded location \"%V\"",
                      type->next_upstream, &clcf->name);
        return NGX_CONF_OK;
    }

    if (!(ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_OFF)
        && ngx_http_idempotency_resent_method(conf, &method))
    {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "nginx itself sends a %V request again when a connection "
                      "fails in guarded location \"%V\", \"%s off\" prevents "
                      "it", &method, &clcf->name, type->next_upstream);
    }

    return NGX_CONF_OK;
}


/* ngx_http_upstream_next() spares POST, LOCK and PATCH alone. */

static ngx_uint_t
ngx_http_idempotency_resent_method(ngx_http_idempotency_loc_conf_t *conf,
    ngx_str_t *method)
{
    ngx_str_t   *m;
    ngx_uint_t   i;

    m = conf->methods->elts;

    for (i = 0; i < conf->methods->nelts; i++) {

        if (ngx_strcmp(m[i].data, "POST") != 0
            && ngx_strcmp(m[i].data, "LOCK") != 0
            && ngx_strcmp(m[i].data, "PATCH") != 0)
        {
            *method = m[i];
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_idempotency_check_error_pages(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf)
{
    ngx_uint_t            i;
    ngx_http_err_page_t  *page;

    if (clcf->error_pages == NULL) {
        return;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {

        if (page[i].status >= NGX_HTTP_INTERNAL_SERVER_ERROR
            && page[i].value.value.len
            && page[i].value.value.data[0] == '@')
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"error_page %i ... %V\" may send a request to a "
                          "second backend in guarded location \"%V\"",
                          page[i].status, &page[i].value.value, &clcf->name);
            return;
        }
    }
}
