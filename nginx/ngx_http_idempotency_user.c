
/*
 * With whose rights a store is tried while the configuration is read: those
 * of the workers, who will use it.
 */


#include "ngx_http_idempotency_module.h"
#include "ngx_http_idempotency_store.h"

#include <grp.h>


/* The default is known only after all was read. */

struct passwd *
ngx_http_idempotency_worker_user(ngx_conf_t *cf)
{
    char             *name;
    struct passwd    *user;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    name = (ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT) ? NGX_USER
                                                          : ccf->username;
    ngx_set_errno(0);

    user = getpwnam(name);
    if (user == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "getpwnam(\"%s\") for idempotency stores failed",
                           name);
    }

    return user;
}


ngx_int_t
ngx_http_idempotency_check_as(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, struct passwd *user,
    ngx_int_t (*check)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store))
{
    int         n;
    gid_t       gid;
    ngx_int_t   rc;
    gid_t       groups[NGROUPS_MAX];

    gid = getegid();

    n = getgroups(NGROUPS_MAX, groups);
    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "getgroups() for idempotency store \"%V\" failed",
                           &store->name);
        return NGX_ERROR;
    }

    rc = NGX_ERROR;

    if (initgroups(user->pw_name, user->pw_gid) == -1
        || setegid(user->pw_gid) == -1
        || seteuid(user->pw_uid) == -1)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot become user \"%s\" for idempotency store "
                           "\"%V\"", user->pw_name, &store->name);

    } else {
        rc = check(cf, store);
    }

    if (seteuid(0) == -1 || setegid(gid) == -1 || setgroups(n, groups) == -1)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot become root again after idempotency store "
                           "\"%V\"", &store->name);
        return NGX_ERROR;
    }

    return rc;
}


ngx_int_t
ngx_http_idempotency_check_as_worker(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store,
    ngx_int_t (*check)(ngx_conf_t *cf, ngx_http_idempotency_store_t *store))
{
    struct passwd  *user;

    if (geteuid() != 0) {
        return check(cf, store);
    }

    user = ngx_http_idempotency_worker_user(cf);
    if (user == NULL) {
        return NGX_ERROR;
    }

    if (user->pw_uid == 0) {
        return check(cf, store);
    }

    return ngx_http_idempotency_check_as(cf, store, user, check);
}
