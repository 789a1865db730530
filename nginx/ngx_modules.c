
/*
 * What nginx's own build generates for a dynamic module: its list, and its
 * place in the order of filters, right after the copy filter.
 */


#include <ngx_config.h>
#include <ngx_core.h>


extern ngx_module_t  ngx_http_idempotency_module;


ngx_module_t  *ngx_modules[] = {
    &ngx_http_idempotency_module,
    NULL
};


char  *ngx_module_names[] = {
    "ngx_http_idempotency_module",
    NULL
};


char  *ngx_module_order[] = {
    "ngx_http_idempotency_module",
    "ngx_http_copy_filter_module",
    NULL
};
