
/*
 * The memory store: a region that belongs to a configuration cycle, and the
 * handle by which a worker uses it.
 *
 * The memory is a memfd and not one of nginx's zones.  A descriptor outlives a
 * reload, a replaced module, and the exec() of a new binary, and it is found
 * again by its name: keys are forgotten when nginx stops, and only then.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"

#include <sys/mman.h>


static ngx_int_t ngx_http_idempotency_memory_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_fd_t ngx_http_idempotency_find_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_create_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_adopt_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_fd_t fd);
static ngx_int_t ngx_http_idempotency_map(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static void ngx_http_idempotency_unmap(void *data);
static int ngx_http_idempotency_memory_open(
    ngx_http_idempotency_store_t *store, ngx_log_t *log);


static ngx_str_t  ngx_http_idempotency_memory_schemes[] = {
    ngx_string("memory:"),
    ngx_null_string
};


const ngx_http_idempotency_store_kind_t  ngx_http_idempotency_memory_store = {
    ngx_http_idempotency_memory_schemes,
    "\"memory:\", or \"memory:?size=SIZE\"",
    "\"size=SIZE\" and \"timeout=TIME\"",
    "1m to 256g",
    (off_t) IDEM_MEMORY_MIN_BYTES,
    (off_t) 1 << 38,
    64 * 1024 * 1024,
    NULL,
    NULL,
    ngx_http_idempotency_memory_prepare,
    ngx_http_idempotency_memory_open
};


/* Finds the store's memory or makes it, and maps it into this cycle. */

static ngx_int_t
ngx_http_idempotency_memory_prepare(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    ngx_fd_t             fd;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(cf->cycle->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_idempotency_unmap;
    cln->data = store;

    fd = ngx_http_idempotency_find_fd(cf, store);

    if (fd == NGX_INVALID_FILE) {
        return ngx_http_idempotency_create_fd(cf, store);
    }

    return ngx_http_idempotency_adopt_fd(cf, store, fd);
}


/* proc(5): the link of a memfd's descriptor is "/memfd:NAME (deleted)" */

static ngx_fd_t
ngx_http_idempotency_find_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    u_char      wanted[NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX + 64];
    u_char      link[NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX + 64];
    u_char      path[sizeof("/proc/self/fd/") + NAME_MAX];
    size_t      len;
    ssize_t     n;
    ngx_fd_t    fd;
    ngx_dir_t   dir;
    ngx_str_t   name;

    len = ngx_sprintf(wanted, "/memfd:idempotency:%V (deleted)", &store->name)
          - wanted;

    ngx_str_set(&name, "/proc/self/fd");

    if (ngx_open_dir(&name, &dir) == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, ngx_errno,
                           ngx_open_dir_n " \"%V\" failed, a store that is "
                           "in use already cannot be found", &name);
        return NGX_INVALID_FILE;
    }

    fd = NGX_INVALID_FILE;

    while (fd == NGX_INVALID_FILE && ngx_read_dir(&dir) == NGX_OK) {

        *ngx_sprintf(path, "/proc/self/fd/%s", ngx_de_name(&dir)) = '\0';

        n = readlink((char *) path, (char *) link, sizeof(link));

        if (n == (ssize_t) len && ngx_memcmp(link, wanted, len) == 0) {
            fd = ngx_atoi(ngx_de_name(&dir), ngx_de_namelen(&dir));
        }
    }

    (void) ngx_close_dir(&dir);

    return fd;
}


static ngx_int_t
ngx_http_idempotency_create_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    int                status;
    u_char             name[NGX_HTTP_IDEMPOTENCY_STORE_NAME_MAX + 64];
    ngx_err_t          err;
    struct idem_bytes  bytes;

    *ngx_sprintf(name, "idempotency:%V", &store->name) = '\0';

    /* not closed on exec(): a new binary finds it */

    store->fd = memfd_create((char *) name, 0);

    if (store->fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "memfd_create() for idempotency store \"%V\" "
                           "failed", &store->name);
        return NGX_ERROR;
    }

    /* memory that is missing must be missed now, and not by a SIGBUS later */

    if (ngx_test_config) {
        err = (ftruncate(store->fd, store->size) == -1) ? ngx_errno : 0;

    } else {
        err = posix_fallocate(store->fd, 0, store->size);
    }

    if (err) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, err,
                           "cannot get %uz bytes for idempotency store \"%V\", "
                           "give it a smaller \"size\"",
                           store->size, &store->name);
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_map(cf, store) != NGX_OK) {
        return NGX_ERROR;
    }

    bytes.data = store->name.data;
    bytes.len = store->name.len;

    status = idem_memory_format(store->region, store->size, bytes);

    if (status != IDEM_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "cannot make idempotency store \"%V\": %s",
                           &store->name, idem_strerror(status));
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                  "idempotency store \"%V\": its keys live in the memory of "
                  "this machine alone, and until nginx stops", &store->name);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_adopt_fd(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_fd_t fd)
{
    int              status;
    struct stat      st;

    if (fstat(fd, &st) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "fstat() of idempotency store \"%V\" failed",
                           &store->name);
        return NGX_ERROR;
    }

    if ((size_t) st.st_size != store->size) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the size of idempotency store \"%V\" cannot be "
                           "changed from %OK to %uzK while nginx runs, "
                           "because every key in it would be forgotten; keep "
                           "\"size=%OK\", or use a store of another name, "
                           "or stop nginx and start it again",
                           &store->name, st.st_size / 1024,
                           store->size / 1024, st.st_size / 1024);
        return NGX_ERROR;
    }

    /*
     * On a reload the descriptor is the old cycle's, which will close it.  A
     * new binary has inherited it, and it is nobody's.
     */

    store->fd = ngx_is_init_cycle(cf->cycle->old_cycle) ? fd : dup(fd);

    if (store->fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "dup() for idempotency store \"%V\" failed",
                           &store->name);
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_map(cf, store) != NGX_OK) {
        return NGX_ERROR;
    }

    status = idem_memory_check(store->region, store->size);

    if (status != IDEM_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency store \"%V\" was made by another "
                           "version of this module and cannot be used by this "
                           "one: %s; use a store of another name, or stop "
                           "nginx and start it again",
                           &store->name, idem_strerror(status));
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_map(ngx_conf_t *cf, ngx_http_idempotency_store_t *store)
{
    void  *p;

    p = mmap(NULL, store->size, PROT_READ|PROT_WRITE, MAP_SHARED, store->fd,
             0);

    if (p == MAP_FAILED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "mmap() of idempotency store \"%V\" failed",
                           &store->name);
        return NGX_ERROR;
    }

    store->region = p;

#ifdef MADV_HUGEPAGE

    /*
     * A large store is looked up at random, and then costs most in address
     * translation.  It takes effect where the system allows huge pages for
     * shared memory, and is no condition.
     */

    (void) madvise(p, store->size, MADV_HUGEPAGE);

#endif

    return NGX_OK;
}


static void
ngx_http_idempotency_unmap(void *data)
{
    ngx_http_idempotency_store_t  *store = data;

    if (store->region) {
        (void) munmap(store->region, store->size);
        store->region = NULL;
    }

    if (store->fd != NGX_INVALID_FILE) {
        (void) close(store->fd);
        store->fd = NGX_INVALID_FILE;
    }
}


static int
ngx_http_idempotency_memory_open(ngx_http_idempotency_store_t *store,
    ngx_log_t *log)
{
    int                         status;
    struct idem_memory_options  options;

    ngx_memzero(&options, sizeof(struct idem_memory_options));

    options.region = store->region;
    options.len = store->size;
    options.loop = ngx_http_idempotency_loop();

    status = idem_memory_open(&options, &store->env.store);

    if (status != IDEM_OK) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "idempotency store \"%V\" cannot be opened: %s",
                      &store->name, idem_strerror(status));
    }

    return status;
}
