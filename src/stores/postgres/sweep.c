/* Cells whose time is over leave the table a few at a time, whenever there are some. */
#include <stddef.h>

#include "layout.h"

#define SWEEP_MAX 500
/* Between two of them, while more is there than one takes. */
#define NEXT_MS 50
#define SOON_MS 1000
#define LATER_MS 5000

static void
start_timer(struct sweep *sweep, uint64_t after_ms)
{
	struct idem_loop *loop = sweep->store->hub.loop;

	loop->ops->timer_start(loop, &sweep->timer, after_ms);
}

static void
swept(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	struct batch *batch = (struct batch *)(void *)((char *)statement - offsetof(struct batch, sweep));
	struct sweep *sweep = &batch->store->sweep;
	char why[WHY_MAX];
	int32_t count = 0;

	sweep->busy = false;
	if (link->state == LINK_CLOSED)
		return;
	if (ending == ENDED_REFUSED) {
		idem_postgres_explain(link->hub, result, why, sizeof why);
		idem_postgres_report(link->hub, TROUBLE_STATEMENT, "%s: sweep: %s", link->server, why);
	} else if (ending == ENDED_DONE && PQntuples(result) == 1) {
		(void)idem_postgres_get_int4(result, 0, 0, &count);
	}
	if (count == SWEEP_MAX)
		start_timer(sweep, NEXT_MS);
	else
		start_timer(sweep, count > 0 ? SOON_MS : LATER_MS);
}

void
idem_postgres_sweep_go(struct sweep *sweep, struct batch *batch)
{
	static const Oid type = OID_INT4;
	unsigned char at_most[4];
	const char *value = (const char *)at_most;
	const int length = sizeof at_most;
	const struct parameters parameters = {1, &type, &value, &length};

	if (!sweep->due || sweep->busy)
		return;
	sweep->due = false;
	idem_postgres_put_int4(at_most, SWEEP_MAX);
	if (idem_postgres_link_send(&batch->link, &batch->sweep, "SELECT %s.sweep($1)", &parameters) ==
	    IDEM_OK)
		sweep->busy = true;
	else
		start_timer(sweep, SOON_MS);
}

static void
is_due(struct idem_timer *timer)
{
	struct sweep *sweep = (struct sweep *)(void *)((char *)timer - offsetof(struct sweep, timer));
	struct postgres_store *store = sweep->store;

	sweep->due = true;
	for (size_t i = 0; i < store->hub.uri.connections && sweep->due; i++)
		if (idem_postgres_link_is_free(&store->batches[i].link))
			idem_postgres_sweep_go(sweep, &store->batches[i]);
}

void
idem_postgres_sweep_init(struct sweep *sweep, struct postgres_store *store)
{
	sweep->store = store;
	sweep->timer.fire = is_due;
	sweep->timer.background = true;
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		store->batches[i].sweep.ended = swept;
	start_timer(sweep, SOON_MS);
}

void
idem_postgres_sweep_close(struct sweep *sweep)
{
	struct idem_loop *loop = sweep->store->hub.loop;

	loop->ops->timer_stop(loop, &sweep->timer);
}
