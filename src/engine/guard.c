/* A guard from its making to the verdict, and its end. */
#include <stdlib.h>

#include "guard_internal.h"

int
idem_guard_new(struct idem_guard_env *env, const struct idem_guard_request *request,
               const struct idem_guard_events *events, void *host, struct idem_guard **ret_guard)
{
	struct idem_guard *guard;

	if (env->store_timeout_ms == 0 || request->policy.lease_ms == 0 || request->policy.ttl_ms == 0)
		return IDEM_E_INVALID;
	guard = calloc(1, sizeof *guard);
	if (guard == NULL)
		return IDEM_E_NOMEM;
	guard->env = env;
	guard->events = events;
	guard->host = host;
	guard->request = *request;
	guard->status = IDEM_PENDING;
	guard->settled_status = IDEM_PENDING;
	env->busy++;
	*ret_guard = guard;
	return IDEM_OK;
}

static int
claim_failed(struct idem_guard *guard)
{
	guard->status = guard->op.status;
	guard->phase = IDEM_GUARD_OVER;
	if (guard->op.status == IDEM_E_INDOUBT) {
		/* It may have been won: let go of it. */
		guard->lease_until_ms = idem_guard_now(guard) + guard->request.policy.lease_ms;
		idem_guard_release_behind(guard, &guard->op.won, guard->op.attempt);
	}
	return IDEM_OK;
}

static int
claim_won(struct idem_guard *guard)
{
	guard->status = IDEM_OK;
	guard->verdict = IDEM_EXECUTE;
	guard->owner = guard->op.won;
	guard->attempt = guard->op.attempt;
	guard->lease_until_ms = guard->op_since_ms + guard->request.policy.lease_ms;
	guard->phase = IDEM_GUARD_EXECUTING;
	idem_guard_keep_alive(guard);
	return IDEM_OK;
}

/* IDEM_OK: begin() has its result; IDEM_PENDING: the guard waits for another's execution. */
static int
claim_decided(struct idem_guard *guard)
{
	guard->found = guard->op.found;
	guard->lease_left_ms = guard->op.wait_ms;
	if (guard->op.verdict == IDEM_IN_PROGRESS && idem_guard_wait(guard) == IDEM_PENDING)
		return IDEM_PENDING;
	idem_guard_wait_end(guard);
	if (guard->op.status != IDEM_OK)
		return claim_failed(guard);
	if (guard->op.verdict == IDEM_EXECUTE)
		return claim_won(guard);
	guard->status = IDEM_OK;
	guard->verdict = guard->op.verdict;
	guard->phase = IDEM_GUARD_OVER;
	return IDEM_OK;
}

/* The host has gone meanwhile; nothing was executed. */
static void
claim_ended_alone(struct idem_guard *guard)
{
	if (guard->op.status == IDEM_E_INDOUBT) {
		(void)claim_failed(guard);
	} else if (guard->op.status == IDEM_OK && guard->op.verdict == IDEM_EXECUTE) {
		guard->owner = guard->op.won;
		guard->lease_until_ms = guard->op_since_ms + guard->request.policy.lease_ms;
		idem_guard_release_behind(guard, &guard->owner, guard->op.attempt);
	} else {
		idem_guard_destroy(guard);
	}
}

static void
claim_ended(struct idem_guard *guard)
{
	if (guard->detached)
		claim_ended_alone(guard);
	else if (claim_decided(guard) == IDEM_OK)
		guard->events->decided(guard, guard->host);
}

int
idem_guard_claim(struct idem_guard *guard)
{
	guard->phase = IDEM_GUARD_CLAIMING;
	guard->op.verb = IDEM_CLAIM;
	if (idem_guard_op_start(guard, claim_ended) == IDEM_PENDING)
		return IDEM_PENDING;
	return claim_decided(guard);
}

void
idem_guard_claim_again(struct idem_guard *guard)
{
	if (idem_guard_claim(guard) == IDEM_OK)
		guard->events->decided(guard, guard->host);
}

int
idem_guard_begin(struct idem_guard *guard)
{
	return idem_guard_claim(guard);
}

void
idem_guard_free(struct idem_guard *guard)
{
	if (guard == NULL || guard->detached)
		return;
	guard->detached = true;
	switch (guard->phase) {
	case IDEM_GUARD_CLAIMING:
	case IDEM_GUARD_SETTLING:
	case IDEM_GUARD_BACKGROUND:
		return; /* what is on its way ends by itself */
	case IDEM_GUARD_EXECUTING:
		idem_guard_give_up_behind(guard);
		return;
	default:
		idem_guard_destroy(guard);
	}
}

int
idem_guard_status(const struct idem_guard *guard)
{
	return guard->status;
}

enum idem_verdict
idem_guard_verdict(const struct idem_guard *guard)
{
	return guard->verdict;
}

const struct idem_cell *
idem_guard_found(const struct idem_guard *guard)
{
	return &guard->found;
}

uint32_t
idem_guard_attempt(const struct idem_guard *guard)
{
	return guard->attempt;
}

uint64_t
idem_guard_lease_left_ms(const struct idem_guard *guard)
{
	return guard->lease_left_ms;
}

uint64_t
idem_guard_waited_ms(const struct idem_guard *guard)
{
	return guard->waited_ms;
}

uint64_t
idem_guard_store_ms(const struct idem_guard *guard)
{
	return guard->store_ms;
}
