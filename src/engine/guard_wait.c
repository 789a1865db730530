/* How a duplicate waits for the execution that is under way: hints, and a slow poll as a net. */
#include "guard_internal.h"

/* How often to ask when hints are expected, and when they are not. */
#define POLL_WITH_HINTS_MS 1000
#define POLL_WITHOUT_HINTS_MS 100

static void
ask_again(struct idem_guard *guard)
{
	guard->hinted = false;
	idem_guard_claim_again(guard);
}

static void
changed(struct idem_watch *watch)
{
	struct idem_guard *guard =
		(struct idem_guard *)(void *)((char *)watch - offsetof(struct idem_guard, watch));

	guard->hinted = true;
	if (guard->phase == IDEM_GUARD_WAITING)
		ask_again(guard);
}

static void
start_watching(struct idem_guard *guard)
{
	struct idem_store *store = guard->env->store;

	if (store->ops->watch == NULL)
		return;
	guard->watch.id = guard->request.id;
	guard->watch.changed = changed;
	guard->watching = store->ops->watch(store, &guard->watch) == IDEM_OK;
	/* It may have changed between the claim and the watch. */
	guard->hinted = guard->watching;
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Until the poll, the end of the other's lease, or the end of the wait. */
static uint64_t
pause_ms(const struct idem_guard *guard, uint64_t now)
{
	uint64_t pause = guard->watching ? POLL_WITH_HINTS_MS : POLL_WITHOUT_HINTS_MS;

	pause = smaller(pause, guard->lease_left_ms);
	if (pause < POLL_WITHOUT_HINTS_MS)
		pause = POLL_WITHOUT_HINTS_MS;
	return smaller(pause, guard->wait_until_ms - now);
}

int
idem_guard_wait(struct idem_guard *guard)
{
	uint64_t now = idem_guard_now(guard);

	if (guard->request.wait_ms == 0)
		return IDEM_OK;
	if (guard->wait_until_ms == 0) {
		guard->wait_since_ms = now;
		guard->wait_until_ms =
			guard->request.wait_ms < UINT64_MAX - now ? now + guard->request.wait_ms : UINT64_MAX;
		start_watching(guard);
	}
	if (now >= guard->wait_until_ms)
		return IDEM_OK;
	guard->phase = IDEM_GUARD_WAITING;
	idem_guard_timer_start(guard, guard->hinted ? 0 : pause_ms(guard, now), ask_again);
	return IDEM_PENDING;
}

void
idem_guard_wait_end(struct idem_guard *guard)
{
	if (guard->wait_until_ms != 0)
		guard->waited_ms = idem_guard_now(guard) - guard->wait_since_ms;
	if (!guard->watching)
		return;
	guard->watching = false;
	guard->env->store->ops->unwatch(guard->env->store, &guard->watch);
}
