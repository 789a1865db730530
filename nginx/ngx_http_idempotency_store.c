
/*
 * "idempotency_store": its name, its URI, its options; and the handle by which
 * a worker uses it.  What is particular to a kind of store has a file of its
 * own, ngx_http_idempotency_store_KIND.c.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"


/* A store that could not be opened is tried again after this time. */
#define NGX_HTTP_IDEMPOTENCY_STORE_RETRY    500

#define NGX_HTTP_IDEMPOTENCY_STORE_SCHEMES                                    \
    "\"lmdb:\", \"memory:\", \"postgres://\", \"redis://\", "                  \
    "\"rediss://\", \"redis+sentinel://\", \"redis+cluster://\" or "           \
    "\"unix:\""


static char *ngx_http_idempotency_store_name(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *mcf, ngx_str_t *name);
static char *ngx_http_idempotency_store_kind(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *uri);
static ngx_int_t ngx_http_idempotency_store_scheme(ngx_str_t *schemes,
    ngx_str_t *uri, ngx_str_t *scheme);
static char *ngx_http_idempotency_store_uri(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *uri);
static char *ngx_http_idempotency_store_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option);
static ngx_int_t ngx_http_idempotency_store_size(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option);
static ngx_int_t ngx_http_idempotency_store_timeout(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option);


static const ngx_http_idempotency_store_kind_t
    *ngx_http_idempotency_store_kinds[] =
{
    &ngx_http_idempotency_lmdb_store,
    &ngx_http_idempotency_memory_store,
    &ngx_http_idempotency_postgres_store,
    &ngx_http_idempotency_redis_store,
    NULL
};


char *
ngx_http_idempotency_set_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_main_conf_t *mcf = conf;

    char                           *rv;
    ngx_str_t                      *value;
    ngx_uint_t                      i;
    ngx_http_idempotency_store_t   *store, **p;

    value = cf->args->elts;

    rv = ngx_http_idempotency_store_name(cf, mcf, &value[1]);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    store = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_store_t));
    if (store == NULL) {
        return NGX_CONF_ERROR;
    }

    store->name = value[1];
    store->fd = NGX_INVALID_FILE;

    rv = ngx_http_idempotency_store_uri(cf, store, &value[2]);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    for (i = 3; i < cf->args->nelts; i++) {
        rv = ngx_http_idempotency_store_option(cf, store, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    if (store->size == 0) {
        store->size = store->kind->default_size;
    }

    store->size = ngx_align(store->size, ngx_pagesize);

    if (store->timeout == 0) {
        store->timeout = 1000;
    }

    p = ngx_array_push(&mcf->stores);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    *p = store;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_store_name(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *mcf, ngx_str_t *name)
{
    u_char                          ch;
    ngx_uint_t                      i, valid;
    ngx_http_idempotency_store_t  **store;

    valid = name->len > 0 && name->len <= NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX;

    for (i = 0; valid && i < name->len; i++) {
        ch = name->data[i];
        valid = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
                || (ch >= '0' && ch <= '9') || ch == '_' || ch == '-'
                || ch == '.';
    }

    if (!valid || (name->len == 3 && ngx_strncmp(name->data, "off", 3) == 0)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_store\" "
                           "directive, a name must have 1 to %d letters, "
                           "digits, \"_\", \"-\" or \".\", and not be \"off\"",
                           name, NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    store = mcf->stores.elts;

    for (i = 0; i < mcf->stores.nelts; i++) {

        if (store[i]->name.len == name->len
            && ngx_strncmp(store[i]->name.data, name->data, name->len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate store \"%V\" in "
                               "\"idempotency_store\" directive", name);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_store_kind(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *uri)
{
    u_char                                    *p;
    ngx_str_t                                  scheme;
    const ngx_http_idempotency_store_kind_t  **kind;

    for (kind = ngx_http_idempotency_store_kinds; *kind; kind++) {

        if (ngx_http_idempotency_store_scheme((*kind)->schemes, uri,
                                              &store->scheme)
            == NGX_OK)
        {
            store->kind = *kind;
            return NGX_CONF_OK;
        }
    }

    /* not the whole: there may be a password in it */

    scheme = *uri;

    p = ngx_strlchr(uri->data, uri->data + uri->len, ':');
    if (p) {
        scheme.len = p + 1 - uri->data;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"idempotency_store\" "
                       "directive, it must begin with %s", &scheme,
                       NGX_HTTP_IDEMPOTENCY_STORE_SCHEMES);
    return NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_idempotency_store_scheme(ngx_str_t *schemes, ngx_str_t *uri,
    ngx_str_t *scheme)
{
    for ( /* void */ ; schemes->len; schemes++) {

        if (uri->len >= schemes->len
            && ngx_strncmp(uri->data, schemes->data, schemes->len) == 0)
        {
            *scheme = *schemes;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


static char *
ngx_http_idempotency_store_uri(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *uri)
{
    char       *rv;
    u_char     *p, *last, *end;
    ngx_str_t   address, option;

    rv = ngx_http_idempotency_store_kind(cf, store, uri);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    p = uri->data + store->scheme.len;
    last = uri->data + uri->len;

    end = ngx_strlchr(p, last, '?');
    if (end == NULL) {
        end = last;
    }

    address.data = p;
    address.len = end - p;

    /* a store without addresses has none, and one that needs one has one */

    if ((address.len == 0) != (store->kind->address == NULL)
        || (address.len
            && store->kind->address(cf, store, &address) != NGX_OK))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_store\" "
                           "directive, it must be %s", uri,
                           store->kind->usage);
        return NGX_CONF_ERROR;
    }

    p = end;

    while (p < last) {
        p++;

        end = ngx_strlchr(p, last, '&');
        if (end == NULL) {
            end = last;
        }

        option.data = p;
        option.len = end - p;

        rv = ngx_http_idempotency_store_option(cf, store, &option);
        if (rv != NGX_CONF_OK) {
            return rv;
        }

        p = end;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_store_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_store_size(cf, store, option);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_idempotency_store_timeout(cf, store, option);
    }

    if (rc == NGX_DECLINED && store->kind->option) {
        rc = store->kind->option(cf, store, option);
    }

    switch (rc) {

    case NGX_OK:
        return NGX_CONF_OK;

    case NGX_DECLINED:
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_store\" "
                           "directive, options are %s", option,
                           store->kind->options);
        return NGX_CONF_ERROR;

    case NGX_BUSY:
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate option \"%V\" in \"idempotency_store\" "
                           "directive", option);
        return NGX_CONF_ERROR;

    default: /* NGX_ERROR: it has been said */
        return NGX_CONF_ERROR;
    }
}


static ngx_int_t
ngx_http_idempotency_store_size(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option)
{
    off_t       size;
    ngx_str_t   value;
    ngx_uint_t  tera;

    if (store->kind->sizes == NULL
        || option->len <= 5 || ngx_strncmp(option->data, "size=", 5) != 0)
    {
        return NGX_DECLINED;
    }

    if (store->size) {
        return NGX_BUSY;
    }

    value.data = option->data + 5;
    value.len = option->len - 5;

    /* nginx has no suffix for it */

    tera = value.data[value.len - 1] == 't' || value.data[value.len - 1] == 'T';
    value.len -= tera;

    size = ngx_parse_offset(&value);

    if (tera && size > 0 && size <= store->kind->max_size >> 40
        && value.data[value.len - 1] <= '9')
    {
        size <<= 40;

    } else if (tera) {
        size = NGX_ERROR;
    }

    if (size < store->kind->min_size || size > store->kind->max_size) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_store\" "
                           "directive, \"size\" must be a size from %s",
                           option, store->kind->sizes);
        return NGX_ERROR;
    }

    store->size = (size_t) size;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_store_timeout(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option)
{
    ngx_int_t  ms;
    ngx_str_t  value;

    if (option->len <= 8 || ngx_strncmp(option->data, "timeout=", 8) != 0) {
        return NGX_DECLINED;
    }

    if (store->timeout) {
        return NGX_BUSY;
    }

    value.data = option->data + 8;
    value.len = option->len - 8;

    ms = ngx_parse_time(&value, 0);

    if (ms < 1 || ms > 60000) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_store\" "
                           "directive, \"timeout\" must be a time from "
                           "1ms to 60s", option);
        return NGX_ERROR;
    }

    store->timeout = (ngx_msec_t) ms;

    return NGX_OK;
}


/* Makes ready what all workers share; a configuration is refused here. */

ngx_int_t
ngx_http_idempotency_store_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    return store->kind->prepare(cf, store);
}


/* A worker's handle is opened when it is first needed.  A library status. */

int
ngx_http_idempotency_store_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log)
{
    int  status;

    if (store->env.store) {
        return IDEM_OK;
    }

    if (store->failure != IDEM_OK
        && ngx_current_msec - store->failed < NGX_HTTP_IDEMPOTENCY_STORE_RETRY)
    {
        return store->failure;
    }

    store->env.loop = ngx_http_idempotency_loop();
    store->env.store_timeout_ms = store->timeout;

    status = store->kind->open(store, log);

    store->failure = status;
    store->failed = ngx_current_msec;

    return status;
}


void
ngx_http_idempotency_store_close(ngx_http_idempotency_store_t *store)
{
    if (store->env.busy) {

        /* somebody still uses it, and the process is about to end */

        return;
    }

    idem_store_close(store->env.store);
    store->env.store = NULL;
}


void
ngx_http_idempotency_store_report(void *data, const char *sentence)
{
    ngx_http_idempotency_store_t  *store = data;

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\": %s", &store->name, sentence);
}
