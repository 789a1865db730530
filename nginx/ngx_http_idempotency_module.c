
/*
 * The module: what nginx calls when it starts, reloads, and ends.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idempotency_postconfiguration(ngx_conf_t *cf);
static void ngx_http_idempotency_exit_process(ngx_cycle_t *cycle);


static ngx_http_module_t  ngx_http_idempotency_module_ctx = {
    ngx_http_idempotency_preconfiguration,     /* preconfiguration */
    ngx_http_idempotency_postconfiguration,    /* postconfiguration */

    ngx_http_idempotency_create_main_conf,     /* create main configuration */
    NULL,                                      /* init main configuration */

    NULL,                                      /* create server configuration */
    NULL,                                      /* merge server configuration */

    ngx_http_idempotency_create_loc_conf,      /* create location configuration */
    ngx_http_idempotency_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_idempotency_module = {
    NGX_MODULE_V1,
    &ngx_http_idempotency_module_ctx,          /* module context */
    ngx_http_idempotency_commands,             /* module directives */
    NGX_HTTP_MODULE,                           /* module type */
    NULL,                                      /* init master */
    NULL,                                      /* init module */
    NULL,                                      /* init process */
    NULL,                                      /* init thread */
    NULL,                                      /* exit thread */
    ngx_http_idempotency_exit_process,         /* exit process */
    NULL,                                      /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_idempotency_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_idempotency_add_variables(cf);
}


static ngx_int_t
ngx_http_idempotency_postconfiguration(ngx_conf_t *cf)
{
    ngx_uint_t                          i;
    ngx_http_handler_pt                *h;
    ngx_http_core_main_conf_t          *cmcf;
    ngx_http_idempotency_store_t      **store;
    ngx_http_idempotency_main_conf_t   *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    /*
     * Here, and not in an init_module handler: a failure there would end the
     * master, a failure here refuses the configuration.
     */

    store = mcf->stores.elts;

    for (i = 0; i < mcf->stores.nelts; i++) {
        if (ngx_http_idempotency_store_prepare(cf, store[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (mcf->stores.nelts == 0) {
        return NGX_OK;
    }

    /*
     * After access control, so that a replay is only for those who may ask;
     * "satisfy any" would take an access handler's answer for a permission.
     */

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_handler;

    if (ngx_http_idempotency_body_filter_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_capture_init(cf);
}


static void
ngx_http_idempotency_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                          i;
    ngx_http_idempotency_store_t      **store;
    ngx_http_idempotency_main_conf_t   *mcf;

    mcf = ngx_http_cycle_get_module_main_conf(cycle,
                                              ngx_http_idempotency_module);
    if (mcf == NULL) {
        return;
    }

    store = mcf->stores.elts;

    for (i = 0; i < mcf->stores.nelts; i++) {
        ngx_http_idempotency_store_close(store[i]);
    }
}
