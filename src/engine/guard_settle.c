/* What a guard does with a lock it holds: renew it, settle it, and see it through behind its host. */
#include <stdlib.h>

#include "guard_internal.h"

static void try_behind(struct idem_guard *guard);

void
idem_guard_destroy(struct idem_guard *guard)
{
	idem_guard_op_cancel(guard);
	idem_guard_op_release(guard);
	idem_guard_wait_end(guard);
	free(guard->record);
	guard->env->busy--;
	free(guard);
}

static void
over(struct idem_guard *guard)
{
	guard->phase = IDEM_GUARD_OVER;
	if (guard->detached)
		idem_guard_destroy(guard);
}

/* ---- renewal ---- */

static void
renewed(struct idem_guard *guard)
{
	if (guard->op.status == IDEM_OK && guard->op.verdict == IDEM_LOST) {
		guard->lost = true;
		if (guard->events->lost != NULL)
			guard->events->lost(guard, guard->host);
		return;
	}
	if (guard->op.status == IDEM_OK) {
		guard->owner = guard->op.won;
		guard->lease_until_ms = guard->op_since_ms + guard->request.policy.lease_ms;
	}
	idem_guard_keep_alive(guard);
}

static void
renew(struct idem_guard *guard)
{
	guard->op.verb = IDEM_RENEW;
	guard->op.owner = guard->owner;
	guard->op.attempt = guard->attempt;
	if (idem_guard_op_start(guard, renewed) == IDEM_OK)
		renewed(guard);
}

void
idem_guard_keep_alive(struct idem_guard *guard)
{
	uint64_t pause = guard->request.policy.lease_ms / 3;

	if (guard->op.status != IDEM_OK && pause > IDEM_GUARD_MAX_DELAY_MS)
		pause = IDEM_GUARD_MAX_DELAY_MS;
	idem_guard_timer_start(guard, pause > 0 ? pause : 1, renew);
}

/* ---- behind the host ---- */

/* Waits for the next try of what has just failed; false: there is none. */
static bool
will_try_behind(struct idem_guard *guard)
{
	if (guard->op.status == IDEM_OK || idem_guard_now(guard) >= guard->lease_until_ms)
		return false;
	guard->phase = IDEM_GUARD_BACKGROUND;
	idem_guard_timer_start(guard, IDEM_GUARD_MAX_DELAY_MS, try_behind);
	return true;
}

static void
tried_behind(struct idem_guard *guard)
{
	if (!will_try_behind(guard))
		over(guard);
}

static void
try_behind(struct idem_guard *guard)
{
	if (idem_guard_op_repeat(guard, tried_behind) == IDEM_OK)
		tried_behind(guard);
}

static void
start_behind(struct idem_guard *guard)
{
	guard->phase = IDEM_GUARD_BACKGROUND;
	if (idem_guard_op_start(guard, tried_behind) == IDEM_OK)
		tried_behind(guard);
}

void
idem_guard_release_behind(struct idem_guard *guard, const struct idem_tag *owner, uint32_t attempt)
{
	guard->op.verb = IDEM_RELEASE;
	guard->op.owner = *owner;
	guard->op.attempt = attempt;
	start_behind(guard);
}

void
idem_guard_give_up_behind(struct idem_guard *guard)
{
	idem_guard_op_cancel(guard);
	if (guard->lost) {
		over(guard);
		return;
	}
	guard->op.verb = IDEM_GIVE_UP;
	guard->op.owner = guard->owner;
	guard->op.attempt = guard->attempt;
	start_behind(guard);
}

/* ---- settlement ---- */

static bool
worth_repeating(int status)
{
	return status == IDEM_E_INDOUBT || status == IDEM_E_UNAVAILABLE || status == IDEM_E_FULL ||
	       status == IDEM_E_NOMEM || status == IDEM_E_RANDOM;
}

/* The first answer of the store, for the host; what failed is tried again behind it. */
static void
note_settlement(struct idem_guard *guard)
{
	guard->settled_status = guard->op.status;
	guard->settled_verdict = guard->op.verdict;
	if (!worth_repeating(guard->op.status) || !will_try_behind(guard))
		guard->phase = IDEM_GUARD_OVER;
}

static void
settled(struct idem_guard *guard)
{
	note_settlement(guard);
	if (!guard->detached)
		guard->events->settled(guard, guard->host);
	else if (guard->phase == IDEM_GUARD_OVER)
		idem_guard_destroy(guard);
}

/* Also a second time, with a record that may fit where the first one did not. */
static bool
can_settle(const struct idem_guard *guard)
{
	return guard->phase == IDEM_GUARD_EXECUTING ||
	       (guard->phase == IDEM_GUARD_BACKGROUND && guard->settled_status == IDEM_E_FULL);
}

static int
settle(struct idem_guard *guard, enum idem_verb verb)
{
	if (!can_settle(guard))
		return IDEM_E_INVALID;
	idem_guard_op_cancel(guard); /* a renewal, or the record before */
	guard->op.verb = verb;
	guard->op.owner = guard->owner;
	guard->op.attempt = guard->attempt;
	if (guard->lost) {
		guard->phase = IDEM_GUARD_OVER;
		guard->settled_status = IDEM_OK;
		guard->settled_verdict = IDEM_LOST;
		return IDEM_OK;
	}
	guard->phase = IDEM_GUARD_SETTLING;
	if (idem_guard_op_start(guard, settled) == IDEM_PENDING)
		return IDEM_PENDING;
	note_settlement(guard);
	return IDEM_OK;
}

int
idem_guard_complete(struct idem_guard *guard, void *record, size_t len)
{
	if (!can_settle(guard)) {
		free(record);
		return IDEM_E_INVALID;
	}
	idem_guard_op_cancel(guard);
	free(guard->record);
	guard->record = record;
	guard->op.payload.data = record;
	guard->op.payload.len = len;
	return settle(guard, IDEM_COMPLETE);
}

int
idem_guard_release(struct idem_guard *guard)
{
	return settle(guard, IDEM_RELEASE);
}

int
idem_guard_give_up(struct idem_guard *guard)
{
	return settle(guard, IDEM_GIVE_UP);
}

int
idem_guard_settled_status(const struct idem_guard *guard)
{
	return guard->settled_status;
}

enum idem_verdict
idem_guard_settled_verdict(const struct idem_guard *guard)
{
	return guard->settled_verdict;
}
