
/*
 * The LMDB store: a directory, which the master makes for its workers, and
 * which outlives them all.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"


static ngx_int_t ngx_http_idempotency_lmdb_address(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *address);
static ngx_int_t ngx_http_idempotency_lmdb_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option);
static ngx_int_t ngx_http_idempotency_lmdb_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_lmdb_twice(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_lmdb_make(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, struct passwd *user);
static ngx_int_t ngx_http_idempotency_lmdb_check(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static int ngx_http_idempotency_lmdb_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log);


static ngx_str_t  ngx_http_idempotency_lmdb_schemes[] = {
    ngx_string("lmdb:"),
    ngx_null_string
};


const ngx_http_idempotency_store_kind_t  ngx_http_idempotency_lmdb_store = {
    ngx_http_idempotency_lmdb_schemes,
    "\"lmdb:DIRECTORY\", or "
    "\"lmdb:DIRECTORY?size=SIZE&sync=full|completion|process\"",
    "\"size=SIZE\", \"sync=full\", \"sync=completion\", \"sync=process\" and "
    "\"timeout=TIME\"",
    "1m to 16t",
    (off_t) IDEM_LMDB_MIN_BYTES,
    (off_t) IDEM_LMDB_MAX_BYTES,
    IDEM_LMDB_DEFAULT_BYTES,
    ngx_http_idempotency_lmdb_address,
    ngx_http_idempotency_lmdb_option,
    ngx_http_idempotency_lmdb_prepare,
    ngx_http_idempotency_lmdb_open
};


/* As other paths: relative to the prefix. */

static ngx_int_t
ngx_http_idempotency_lmdb_address(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *address)
{
    store->path.len = address->len;
    store->path.data = ngx_pnalloc(cf->pool, address->len + 1);
    if (store->path.data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(store->path.data, address->data, address->len) = '\0';

    if (ngx_conf_full_name(cf->cycle, &store->path, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a slash at the end is a matter of taste */

    while (store->path.len > 1 && store->path.data[store->path.len - 1] == '/')
    {
        store->path.data[--store->path.len] = '\0';
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_lmdb_option(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_str_t *option)
{
    ngx_uint_t                     i;

    static struct {
        ngx_str_t                  value;
        enum idem_lmdb_sync        sync;
    } syncs[] = {
        { ngx_string("sync=full"), IDEM_LMDB_SYNC_FULL },
        { ngx_string("sync=completion"), IDEM_LMDB_SYNC_COMPLETION },
        { ngx_string("sync=process"), IDEM_LMDB_SYNC_PROCESS },
    };

    for (i = 0; i < sizeof(syncs) / sizeof(syncs[0]); i++) {

        if (option->len == syncs[i].value.len
            && ngx_strncmp(option->data, syncs[i].value.data, option->len)
               == 0)
        {
            if (store->sync_set) {
                return NGX_BUSY;
            }

            store->sync = syncs[i].sync;
            store->sync_set = 1;

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/*
 * A directory that cannot be used is told while the configuration is read.
 * One that is full can: what is stored is still replayed.
 */

static ngx_int_t
ngx_http_idempotency_lmdb_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    struct passwd  *user;

    if (ngx_process == NGX_PROCESS_SIGNALLER) {

        /* "nginx -s stop" must not fail because of a store */

        return NGX_OK;
    }

    if (ngx_http_idempotency_lmdb_twice(cf, store) != NGX_OK) {
        return NGX_ERROR;
    }

    user = NULL;

    if (geteuid() == 0) {
        user = ngx_http_idempotency_worker_user(cf);
        if (user == NULL) {
            return NGX_ERROR;
        }
    }

    if (user == NULL || user->pw_uid == 0) {
        return ngx_http_idempotency_lmdb_check(cf, store);
    }

    if (ngx_http_idempotency_lmdb_make(cf, store, user) != NGX_OK) {
        return NGX_ERROR;
    }

    /* so that its files are its own */

    return ngx_http_idempotency_check_as(cf, store, user,
                                         ngx_http_idempotency_lmdb_check);
}


/* Two stores on one directory would be one, whose options disagree. */

static ngx_int_t
ngx_http_idempotency_lmdb_twice(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    ngx_uint_t                          i;
    ngx_http_idempotency_store_t      **other;
    ngx_http_idempotency_main_conf_t   *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    other = mcf->stores.elts;

    for (i = 0; i < mcf->stores.nelts && other[i] != store; i++) {

        if (other[i]->path.len == store->path.len
            && ngx_strncmp(other[i]->path.data, store->path.data,
                           store->path.len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idempotency stores \"%V\" and \"%V\" have the "
                               "same directory \"%V\", give each its own or "
                               "use one of them for both", &other[i]->name,
                               &store->name, &store->path);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The worker may not be allowed to make it. */

static ngx_int_t
ngx_http_idempotency_lmdb_make(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, struct passwd *user)
{
    ngx_fd_t  fd;

    if (mkdir((char *) store->path.data, 0700) == -1) {

        if (ngx_errno == NGX_EEXIST) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "mkdir() \"%V\" for idempotency store \"%V\" "
                           "failed, make the directory above it, or choose "
                           "another path", &store->path, &store->name);
        return NGX_ERROR;
    }

    /* by its descriptor: whoever owns the parent may put a link in its place */

    fd = open((char *) store->path.data, O_RDONLY|O_DIRECTORY|O_NOFOLLOW);

    if (fd == -1 || fchown(fd, user->pw_uid, user->pw_gid) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "chown() \"%V\" for idempotency store \"%V\" "
                           "failed", &store->path, &store->name);

        if (fd != -1) {
            (void) close(fd);
        }

        return NGX_ERROR;
    }

    (void) close(fd);

    return NGX_OK;
}


static void
ngx_http_idempotency_lmdb_options(ngx_http_idempotency_store_t *store,
    struct idem_lmdb_options *options)
{
    ngx_memzero(options, sizeof(struct idem_lmdb_options));

    options->path = (char *) store->path.data;
    options->size = store->size;
    options->sync = store->sync;
    options->report = ngx_http_idempotency_store_report;
    options->report_data = store;
}


static ngx_int_t
ngx_http_idempotency_lmdb_check(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    int                       status;
    char                      why[NGX_HTTP_IDEMPOTENCY_WHY_MAX];
    struct idem_lmdb_options  options;

    ngx_http_idempotency_lmdb_options(store, &options);

    status = idem_lmdb_check(&options, why, sizeof(why));

    if (status == IDEM_OK) {
        return NGX_OK;
    }

    if (status == IDEM_E_FULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "idempotency store \"%V\": %s", &store->name, why);
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idempotency store \"%V\" cannot be used: %s",
                       &store->name, why);
    return NGX_ERROR;
}


static int
ngx_http_idempotency_lmdb_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log)
{
    int                       status;
    char                      why[NGX_HTTP_IDEMPOTENCY_WHY_MAX];
    struct idem_lmdb_options  options;

    ngx_http_idempotency_lmdb_options(store, &options);

    options.loop = store->env.loop;

    status = idem_lmdb_open(&options, &store->env.store, why, sizeof(why));

    if (status != IDEM_OK) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "idempotency store \"%V\" cannot be opened: %s",
                      &store->name, why);
    }

    return status;
}
