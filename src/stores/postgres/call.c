/* One compare-and-swap, from the caller and back; and those that wait for a connection, in order. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

static uint64_t
now_of(const struct postgres_store *store)
{
	return store->hub.loop->ops->now_ms(store->hub.loop);
}

/* ---- all that somebody waits for, by age ---- */

static void
enlist(struct call *call)
{
	struct postgres_store *store = call->store;

	call->next = NULL;
	call->link = store->last_call;
	*store->last_call = call;
	store->last_call = &call->next;
}

static void
delist(struct call *call)
{
	*call->link = call->next;
	if (call->next != NULL)
		call->next->link = call->link;
	else
		call->store->last_call = call->link;
}

/* ---- those that wait ---- */

static void
append_waiting(struct call *call)
{
	struct postgres_store *store = call->store;

	call->waiting = true;
	call->next_waiting = NULL;
	*store->last_waiting = call;
	store->last_waiting = &call->next_waiting;
}

struct call *
idem_postgres_call_take(struct postgres_store *store)
{
	struct call *call = store->waiting;

	if (call == NULL)
		return NULL;
	store->waiting = call->next_waiting;
	if (store->waiting == NULL)
		store->last_waiting = &store->waiting;
	call->waiting = false;
	return call;
}

void
idem_postgres_call_again(struct call *call)
{
	struct postgres_store *store = call->store;

	call->waiting = true;
	call->next_waiting = store->waiting;
	if (store->waiting == NULL)
		store->last_waiting = &call->next_waiting;
	store->waiting = call;
}

static void
stop_waiting(struct call *call)
{
	struct postgres_store *store = call->store;
	struct call **place = &store->waiting;

	while (*place != call)
		place = &(*place)->next_waiting;
	*place = call->next_waiting;
	if (call->next_waiting == NULL)
		store->last_waiting = place;
	call->waiting = false;
}

/* ---- the end ---- */

/* Tells the caller.  The call is nobody's but its batch's then. */
static void
tell(struct call *call, int status)
{
	struct idem_io *io = call->io;

	delist(call);
	call->io = NULL;
	io->status = status;
	io->applied = io->applied && status == IDEM_OK;
	io->store_data = NULL;
	if (status == IDEM_OK) {
		io->store_data = call->payload;
		call->payload = NULL;
	} else {
		io->seen = (struct idem_cell){0};
	}
	io->done(io);
}

static void
free_call(struct call *call)
{
	free(call->payload);
	free(call);
}

void
idem_postgres_call_finish(struct call *call, int status)
{
	if (call->io != NULL)
		tell(call, status);
	free_call(call);
}

/* ---- time ---- */

static void
watch_time(struct postgres_store *store)
{
	uint64_t now = now_of(store);

	if (store->calls == NULL)
		store->hub.loop->ops->timer_stop(store->hub.loop, &store->deadline);
	else if (!store->deadline.armed)
		store->hub.loop->ops->timer_start(store->hub.loop, &store->deadline,
		                                  store->calls->until_ms > now ? store->calls->until_ms - now
		                                                               : 0);
}

/* What was sent may take effect still. */
static void
time_is_over(struct idem_timer *timer)
{
	struct postgres_store *store =
		(struct postgres_store *)(void *)((char *)timer - offsetof(struct postgres_store, deadline));
	uint64_t now = now_of(store);
	struct call *call;

	while ((call = store->calls) != NULL && call->until_ms <= now) {
		if (call->waiting) {
			stop_waiting(call);
			idem_postgres_call_finish(call, IDEM_E_UNAVAILABLE);
		} else {
			tell(call, IDEM_E_INDOUBT);
		}
	}
	watch_time(store);
}

/* ---- from the loop ---- */

/* May one of the connections come up yet? */
static bool
is_hope(const struct postgres_store *store)
{
	for (size_t i = 0; i < store->hub.uri.connections; i++)
		if (store->batches[i].link.state == LINK_UP || !store->batches[i].link.tried)
			return true;
	return false;
}

static void
take_turn(struct idem_timer *timer)
{
	struct postgres_store *store =
		(struct postgres_store *)(void *)((char *)timer - offsetof(struct postgres_store, turn));
	struct call *call, *last = NULL;

	for (size_t i = 0; i < store->hub.uri.connections && store->waiting != NULL; i++)
		idem_postgres_batch_go(&store->batches[i]);
	/* Not those that arrive meanwhile: they have a turn of their own. */
	for (call = store->waiting; call != NULL; call = call->next_waiting)
		last = call;
	while (last != NULL && !is_hope(store) && (call = idem_postgres_call_take(store)) != NULL) {
		bool is_last = call == last;

		idem_postgres_call_finish(call, IDEM_E_UNAVAILABLE);
		if (is_last)
			break;
	}
}

void
idem_postgres_calls_go_on(struct postgres_store *store)
{
	store->turn.fire = take_turn;
	if (store->waiting != NULL && !store->turn.armed)
		store->hub.loop->ops->timer_start(store->hub.loop, &store->turn, 0);
}

/* ---- life ---- */

int
idem_postgres_call_start(struct postgres_store *store, struct idem_io *io)
{
	struct call *call;

	if (io->write.payload.len > IDEM_POSTGRES_PAYLOAD_MAX)
		return IDEM_E_FULL;
	if (!is_hope(store))
		return IDEM_E_UNAVAILABLE;
	call = calloc(1, sizeof *call);
	if (call == NULL)
		return IDEM_E_NOMEM;
	call->store = store;
	call->io = io;
	call->until_ms = now_of(store) + store->hub.timeout_ms;
	io->store_data = call;
	enlist(call);
	append_waiting(call);
	store->deadline.fire = time_is_over;
	watch_time(store);
	idem_postgres_calls_go_on(store);
	return IDEM_PENDING;
}

void
idem_postgres_call_cancel(struct postgres_store *store, struct idem_io *io)
{
	struct call *call = io->store_data;

	(void)store;
	io->store_data = NULL;
	delist(call);
	call->io = NULL;
	if (call->waiting) {
		stop_waiting(call);
		free_call(call);
	}
}

void
idem_postgres_calls_close(struct postgres_store *store)
{
	struct call *call;

	store->hub.loop->ops->timer_stop(store->hub.loop, &store->turn);
	store->hub.loop->ops->timer_stop(store->hub.loop, &store->deadline);
	while ((call = store->calls) != NULL) {
		delist(call);
		call->io = NULL;
	}
	while ((call = idem_postgres_call_take(store)) != NULL)
		free_call(call);
}
