
/*
 * nginx's events, lent to the library as a struct idem_loop.
 */


#include "ngx_http_idempotency_module.h"


static uint64_t ngx_http_idempotency_now(struct idem_loop *loop);
static void ngx_http_idempotency_timer_start(struct idem_loop *loop,
    struct idem_timer *timer, uint64_t after);
static void ngx_http_idempotency_timer_stop(struct idem_loop *loop,
    struct idem_timer *timer);
static void ngx_http_idempotency_timer_handler(ngx_event_t *ev);
static int ngx_http_idempotency_fd_watch(struct idem_loop *loop,
    struct idem_fd *watch, unsigned readiness);
static int ngx_http_idempotency_fd_start(struct idem_fd *watch);
static ngx_int_t ngx_http_idempotency_fd_interest(ngx_event_t *ev,
    ngx_int_t event, ngx_uint_t wanted);
static void ngx_http_idempotency_fd_stop(struct idem_fd *watch);
static void ngx_http_idempotency_readable(ngx_event_t *ev);
static void ngx_http_idempotency_writable(ngx_event_t *ev);


static const struct idem_loop_ops  ngx_http_idempotency_loop_ops = {
    ngx_http_idempotency_now,
    ngx_http_idempotency_timer_start,
    ngx_http_idempotency_timer_stop,
    ngx_http_idempotency_fd_watch
};


static struct idem_loop  ngx_http_idempotency_the_loop = {
    &ngx_http_idempotency_loop_ops
};


struct idem_loop *
ngx_http_idempotency_loop(void)
{
    return &ngx_http_idempotency_the_loop;
}


static uint64_t
ngx_http_idempotency_now(struct idem_loop *loop)
{
    return ngx_current_msec;
}


static void
ngx_http_idempotency_timer_start(struct idem_loop *loop,
    struct idem_timer *timer, uint64_t after)
{
    ngx_event_t  *ev;

    _Static_assert(sizeof(ngx_event_t) <= IDEM_LOOP_HOST_BYTES,
                   "an event fits into a timer");

    ev = (ngx_event_t *) timer->host;

    if (ev->handler == NULL) {
        ev->handler = ngx_http_idempotency_timer_handler;
        ev->data = timer;
        ev->log = ngx_cycle->log;
        ev->cancelable = timer->background;
    }

    /* an nginx timer compares 32 bits */

    ngx_add_timer(ev, (ngx_msec_t) ngx_min(after, NGX_MAX_INT32_VALUE / 2));

    timer->armed = 1;
}


static void
ngx_http_idempotency_timer_stop(struct idem_loop *loop,
    struct idem_timer *timer)
{
    ngx_event_t  *ev;

    ev = (ngx_event_t *) timer->host;

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    timer->armed = 0;
}


static void
ngx_http_idempotency_timer_handler(ngx_event_t *ev)
{
    struct idem_timer  *timer = ev->data;

    timer->armed = 0;
    timer->fire(timer);
}


static int
ngx_http_idempotency_fd_watch(struct idem_loop *loop, struct idem_fd *watch,
    unsigned readiness)
{
    ngx_connection_t  *c;

    if (readiness == 0) {
        ngx_http_idempotency_fd_stop(watch);
        return IDEM_OK;
    }

    if (watch->host == NULL && ngx_http_idempotency_fd_start(watch) != IDEM_OK)
    {
        return IDEM_E_NOMEM;
    }

    c = watch->host;

    if (ngx_http_idempotency_fd_interest(c->read, NGX_READ_EVENT,
                                         readiness & IDEM_READABLE)
        != NGX_OK
        || ngx_http_idempotency_fd_interest(c->write, NGX_WRITE_EVENT,
                                            readiness & IDEM_WRITABLE)
           != NGX_OK)
    {
        ngx_http_idempotency_fd_stop(watch);
        return IDEM_E_SYSTEM;
    }

    return IDEM_OK;
}


static int
ngx_http_idempotency_fd_start(struct idem_fd *watch)
{
    ngx_connection_t  *c;

    c = ngx_get_connection(watch->fd, ngx_cycle->log);
    if (c == NULL) {
        return IDEM_E_NOMEM;
    }

    c->data = watch;
    c->log = ngx_cycle->log;

    c->read->log = c->log;
    c->read->handler = ngx_http_idempotency_readable;
    c->write->log = c->log;
    c->write->handler = ngx_http_idempotency_writable;

    /* as nginx's own channel: a worker that ends does not miss it */

    c->read->channel = 1;
    c->write->channel = 1;

    watch->host = c;

    return IDEM_OK;
}


/* Level-triggered: a library that reads less than there is hears again. */

static ngx_int_t
ngx_http_idempotency_fd_interest(ngx_event_t *ev, ngx_int_t event,
    ngx_uint_t wanted)
{
    if (wanted && !ev->active) {
        return ngx_add_event(ev, event, NGX_LEVEL_EVENT);
    }

    if (!wanted && ev->active) {
        return ngx_del_event(ev, event, 0);
    }

    return NGX_OK;
}


static void
ngx_http_idempotency_fd_stop(struct idem_fd *watch)
{
    ngx_connection_t  *c;

    c = watch->host;

    if (c == NULL) {
        return;
    }

    watch->host = NULL;

    (void) ngx_http_idempotency_fd_interest(c->read, NGX_READ_EVENT, 0);
    (void) ngx_http_idempotency_fd_interest(c->write, NGX_WRITE_EVENT, 0);

    ngx_free_connection(c);

    c->fd = (ngx_socket_t) -1;
}


static void
ngx_http_idempotency_readable(ngx_event_t *ev)
{
    ngx_connection_t  *c = ev->data;
    struct idem_fd    *watch = c->data;

    watch->ready(watch, IDEM_READABLE);
}


static void
ngx_http_idempotency_writable(ngx_event_t *ev)
{
    ngx_connection_t  *c = ev->data;
    struct idem_fd    *watch = c->data;

    watch->ready(watch, IDEM_WRITABLE);
}
