/* A PostgreSQL store: its life, and what the engine asks of it. */
#include <stdlib.h>
#include <string.h>

#include "layout.h"

static int
postgres_cas(struct idem_store *base, struct idem_io *io)
{
	int rc;

	memset(&io->seen, 0, sizeof io->seen);
	io->applied = false;
	io->store_data = NULL;
	rc = idem_postgres_call_start((struct postgres_store *)base, io);
	if (rc == IDEM_PENDING)
		return IDEM_PENDING;
	io->status = rc;
	return IDEM_OK;
}

static void
postgres_cancel(struct idem_store *base, struct idem_io *io)
{
	idem_postgres_call_cancel((struct postgres_store *)base, io);
}

static void
postgres_release(struct idem_store *base, struct idem_io *io)
{
	(void)base;
	free(io->store_data);
	io->store_data = NULL;
}

static int
postgres_watch(struct idem_store *base, struct idem_watch *watch)
{
	return idem_postgres_hints_watch(&((struct postgres_store *)base)->hints, watch);
}

static void
postgres_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	idem_postgres_hints_unwatch(&((struct postgres_store *)base)->hints, watch);
}

static void
postgres_close(struct idem_store *base)
{
	struct postgres_store *store = (struct postgres_store *)base;

	idem_postgres_calls_close(store);
	for (size_t i = 0; i < store->hub.uri.connections; i++)
		idem_postgres_batch_close(&store->batches[i]);
	idem_postgres_sweep_close(&store->sweep);
	idem_postgres_hints_close(&store->hints);
	idem_postgres_uri_free(&store->hub.uri);
	free(store);
}

static const struct idem_store_ops postgres_ops = {
	.name = "postgres",
	.cas = postgres_cas,
	.cancel = postgres_cancel,
	.release = postgres_release,
	.watch = postgres_watch,
	.unwatch = postgres_unwatch,
	.close = postgres_close,
};

/* ---- opening ---- */

static int
check(const struct idem_postgres_options *options, struct postgres_uri *uri, char *why, size_t cap)
{
	if (options->uri == NULL)
		return idem_postgres_say(why, cap, IDEM_E_INVALID, "a PostgreSQL store needs a URI");
	return idem_postgres_uri_parse(uri, options->uri, why, cap);
}

int
idem_postgres_check(const struct idem_postgres_options *options, char *why, size_t cap)
{
	struct postgres_uri uri;
	int rc;

	(void)idem_postgres_say(why, cap, 0, "%s", "");
	rc = check(options, &uri, why, cap);
	if (rc == IDEM_OK)
		idem_postgres_uri_free(&uri);
	return rc;
}

static void
begin(struct postgres_store *store, const struct idem_postgres_options *options)
{
	store->base.ops = &postgres_ops;
	store->hub.loop = options->loop;
	store->hub.timeout_ms =
		options->timeout_ms > 0 ? options->timeout_ms : IDEM_POSTGRES_DEFAULT_TIMEOUT_MS;
	if (store->hub.timeout_ms > INT32_MAX)
		store->hub.timeout_ms = INT32_MAX; /* more than PostgreSQL waits */
	store->hub.report = options->report;
	store->hub.report_data = options->report_data;
	store->last_call = &store->calls;
	store->last_waiting = &store->waiting;
	store->turn.background = true;
	store->deadline.background = true;
	idem_postgres_hints_init(&store->hints, store);
	for (size_t i = 0; i < store->hub.uri.connections; i++) {
		idem_postgres_batch_init(&store->batches[i], store);
		idem_postgres_link_open(&store->batches[i].link);
	}
	idem_postgres_sweep_init(&store->sweep, store);
}

int
idem_postgres_open(const struct idem_postgres_options *options, struct idem_store **ret_store, char *why,
                   size_t cap)
{
	struct postgres_store *store;
	int rc;

	(void)idem_postgres_say(why, cap, 0, "%s", "");
	if (options->loop == NULL)
		return idem_postgres_say(why, cap, IDEM_E_INVALID, "a PostgreSQL store needs a loop");
	store = calloc(1, sizeof *store);
	if (store == NULL)
		return IDEM_E_NOMEM;
	rc = check(options, &store->hub.uri, why, cap);
	if (rc != IDEM_OK) {
		free(store);
		return rc;
	}
	begin(store, options);
	*ret_store = &store->base;
	return IDEM_OK;
}
