/* A Redis store: its life, and what the engine asks of it. */
#include <stdlib.h>
#include <string.h>

#include "layout.h"

static int
redis_cas(struct idem_store *base, struct idem_io *io)
{
	struct redis_store *store = (struct redis_store *)base;
	int rc;

	memset(&io->seen, 0, sizeof io->seen);
	io->applied = false;
	io->store_data = NULL;
	rc = idem_redis_call_start(store, io);
	if (rc == IDEM_PENDING)
		return IDEM_PENDING;
	io->status = rc;
	return IDEM_OK;
}

static void
redis_cancel(struct idem_store *base, struct idem_io *io)
{
	idem_redis_call_cancel((struct redis_store *)base, io);
}

static void
redis_release(struct idem_store *base, struct idem_io *io)
{
	(void)base;
	free(io->store_data);
	io->store_data = NULL;
}

static int
redis_watch(struct idem_store *base, struct idem_watch *watch)
{
	return idem_redis_hints_watch(&((struct redis_store *)base)->hints, watch);
}

static void
redis_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	idem_redis_hints_unwatch(&((struct redis_store *)base)->hints, watch);
}

static void
redis_close(struct idem_store *base)
{
	struct redis_store *store = (struct redis_store *)base;

	idem_redis_calls_close(store);
	idem_redis_hints_close(&store->hints);
	idem_redis_route_close(store);
	store->hub.loop->ops->timer_stop(store->hub.loop, &store->turn);
	idem_redis_tls_deinit(&store->hub.tls);
	idem_redis_uri_free(&store->hub.uri);
	free(store);
}

static const struct idem_store_ops redis_ops = {
	.name = "redis",
	.cas = redis_cas,
	.cancel = redis_cancel,
	.release = redis_release,
	.watch = redis_watch,
	.unwatch = redis_unwatch,
	.close = redis_close,
};

/* ---- opening ---- */

static int
check(const struct idem_redis_options *options, struct redis_uri *uri, struct tls *tls, char *why, size_t cap)
{
	uint64_t timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : IDEM_REDIS_DEFAULT_TIMEOUT_MS;
	int rc;

	if (options->uri == NULL)
		return idem_redis_say(why, cap, IDEM_E_INVALID, "a Redis store needs a URI");
	rc = idem_redis_uri_parse(uri, options->uri, why, cap);
	if (rc != IDEM_OK)
		return rc;
	if (uri->wait_ms >= timeout_ms)
		rc = idem_redis_say(
			why, cap, IDEM_E_INVALID,
			"wait_replicas waits for %llu ms, and the store's timeout is %llu ms: make the "
			"timeout longer",
			(unsigned long long)uri->wait_ms, (unsigned long long)timeout_ms);
	else
		rc = idem_redis_tls_init(tls, uri, why, cap);
	if (rc != IDEM_OK)
		idem_redis_uri_free(uri);
	return rc;
}

int
idem_redis_check(const struct idem_redis_options *options, char *why, size_t cap)
{
	struct redis_uri uri;
	struct tls tls;
	int rc;

	(void)idem_redis_say(why, cap, 0, "%s", "");
	rc = check(options, &uri, &tls, why, cap);
	if (rc != IDEM_OK)
		return rc;
	idem_redis_tls_deinit(&tls);
	idem_redis_uri_free(&uri);
	return IDEM_OK;
}

static int
open_store(struct redis_store *store, const struct idem_redis_options *options, char *why, size_t cap)
{
	int rc = check(options, &store->hub.uri, &store->hub.tls, why, cap);

	if (rc != IDEM_OK) {
		free(store);
		return rc;
	}
	store->base.ops = &redis_ops;
	store->hub.loop = options->loop;
	store->hub.timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : IDEM_REDIS_DEFAULT_TIMEOUT_MS;
	store->hub.report = options->report;
	store->hub.report_data = options->report_data;
	store->last_waiting = &store->waiting;
	store->turn.background = true;
	idem_redis_hints_init(&store->hints, store);
	rc = idem_redis_scripts_make(store->scripts);
	if (rc == IDEM_OK)
		rc = idem_redis_route_open(store);
	if (rc != IDEM_OK)
		redis_close(&store->base);
	return rc;
}

int
idem_redis_open(const struct idem_redis_options *options, struct idem_store **ret_store, char *why,
                size_t cap)
{
	struct redis_store *store;
	int rc;

	(void)idem_redis_say(why, cap, 0, "%s", "");
	if (options->loop == NULL)
		return idem_redis_say(why, cap, IDEM_E_INVALID, "a Redis store needs a loop");
	store = calloc(1, sizeof *store);
	if (store == NULL)
		return IDEM_E_NOMEM;
	rc = open_store(store, options, why, cap);
	if (rc == IDEM_OK)
		*ret_store = &store->base;
	return rc;
}
