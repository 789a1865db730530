/* One operation of a guard against the store, with its time limit and its repeats. */
#include <string.h>
#include <unistd.h>

#include "guard_internal.h"

#define FIRST_DELAY_MS 50

static int perform(struct idem_guard *guard);

uint64_t
idem_guard_now(const struct idem_guard *guard)
{
	return guard->env->loop->ops->now_ms(guard->env->loop);
}

static void
fire(struct idem_timer *timer)
{
	struct idem_guard *guard =
		(struct idem_guard *)(void *)((char *)timer - offsetof(struct idem_guard, timer));

	guard->timer_fired(guard);
}

void
idem_guard_timer_start(struct idem_guard *guard, uint64_t after_ms,
                       void (*timer_fired)(struct idem_guard *guard))
{
	guard->timer.fire = fire;
	guard->timer_fired = timer_fired;
	guard->env->loop->ops->timer_start(guard->env->loop, &guard->timer, after_ms);
}

void
idem_guard_timer_stop(struct idem_guard *guard)
{
	if (guard->timer.armed)
		guard->env->loop->ops->timer_stop(guard->env->loop, &guard->timer);
}

void
idem_guard_op_release(struct idem_guard *guard)
{
	if (!guard->io_finished)
		return;
	guard->io_finished = false;
	guard->env->store->ops->release(guard->env->store, &guard->io);
}

static int
end(struct idem_guard *guard, int status)
{
	uint64_t now = idem_guard_now(guard);

	idem_guard_timer_stop(guard);
	guard->op.status = status;
	guard->store_ms += now - guard->op_since_ms;
	return IDEM_OK;
}

static void
go_on(struct idem_guard *guard)
{
	if (perform(guard) == IDEM_OK)
		guard->op_ended(guard);
}

/* The store did not answer in time; what it was asked may still happen. */
static void
time_is_over(struct idem_guard *guard)
{
	idem_guard_op_cancel(guard);
	guard->io_in_doubt = true;
	(void)end(guard, IDEM_E_INDOUBT);
	guard->op_ended(guard);
}

static int
try_again_later(struct idem_guard *guard)
{
	uint64_t now = idem_guard_now(guard);

	if (now >= guard->op_until_ms)
		return end(guard, guard->io_in_doubt ? IDEM_E_INDOUBT : guard->io.status);
	idem_guard_timer_start(guard,
	                       guard->delay_ms < guard->op_until_ms - now ? guard->delay_ms
	                                                                  : guard->op_until_ms - now,
	                       go_on);
	guard->delay_ms =
		2 * guard->delay_ms < IDEM_GUARD_MAX_DELAY_MS ? 2 * guard->delay_ms : IDEM_GUARD_MAX_DELAY_MS;
	return IDEM_PENDING;
}

/*
 * Is the io that failed worth another try while the op has time?  After a write
 * whose fate is unknown every failure leaves it unknown: only an answer tells.
 * Nobody waits for a renewal, and who claims had better be told at once.
 */
static bool
is_worth_another_try(struct idem_guard *guard)
{
	if (guard->io.status == IDEM_OK)
		guard->io_in_doubt = false;
	else if (guard->io.status == IDEM_E_INDOUBT)
		guard->io_in_doubt = true;
	return guard->io_in_doubt || (guard->io.status == IDEM_E_UNAVAILABLE &&
	                              guard->op.verb != IDEM_CLAIM && guard->op.verb != IDEM_RENEW);
}

/* Looks at a finished io.  IDEM_OK: the op has ended; IDEM_PENDING: later; 2: another io is due. */
enum { ANOTHER = 2 };

static int
digest(struct idem_guard *guard)
{
	guard->io_finished = true;
	if (is_worth_another_try(guard)) {
		idem_guard_op_release(guard);
		return try_again_later(guard);
	}
	if (idem_step(&guard->op, &guard->io, &guard->io)) {
		idem_guard_op_release(guard);
		return ANOTHER;
	}
	return end(guard, guard->op.status);
}

static void
io_done(struct idem_io *io)
{
	struct idem_guard *guard =
		(struct idem_guard *)(void *)((char *)io - offsetof(struct idem_guard, io));
	int rc;

	guard->io_pending = false;
	idem_guard_timer_stop(guard);
	rc = digest(guard);
	if (rc == ANOTHER)
		rc = perform(guard);
	if (rc == IDEM_OK)
		guard->op_ended(guard);
}

static int
perform(struct idem_guard *guard)
{
	struct idem_store *store = guard->env->store;
	uint64_t now;
	int rc;

	do {
		if (store->ops->cas(store, &guard->io) == IDEM_PENDING) {
			now = idem_guard_now(guard);
			guard->io_pending = true;
			idem_guard_timer_start(guard, guard->op_until_ms > now ? guard->op_until_ms - now : 0,
			                       time_is_over);
			return IDEM_PENDING;
		}
		rc = digest(guard);
	} while (rc == ANOTHER);
	return rc;
}

/* A tag nobody can guess.  IDEM_E_RANDOM: it is all zero. */
static int
draw_tag(struct idem_guard_env *env, struct idem_tag *ret_tag)
{
	pid_t process = getpid();
	uint8_t *from;

	memset(ret_tag, 0, sizeof *ret_tag);
	/* Two processes with the spare bytes of one would take each other's locks for their own. */
	if (env->spare_random_len == 0 || env->spare_random_process != process) {
		env->spare_random_len = 0;
		if ((env->random != NULL ? env->random : idem_random)(env->random_data, env->spare_random,
		                                                      sizeof env->spare_random) != IDEM_OK)
			return IDEM_E_RANDOM;
		env->spare_random_len = sizeof env->spare_random;
		env->spare_random_process = process;
	}
	env->spare_random_len -= sizeof ret_tag->b;
	from = env->spare_random + env->spare_random_len;
	memcpy(ret_tag->b, from, sizeof ret_tag->b);
	memset(from, 0, sizeof ret_tag->b); /* it is a secret of its owner from now on */
	return IDEM_OK;
}

int
idem_guard_op_repeat(struct idem_guard *guard, void (*op_ended)(struct idem_guard *guard))
{
	struct idem_op *op = &guard->op;

	idem_guard_op_release(guard);
	idem_guard_timer_stop(guard);
	guard->op_ended = op_ended;
	guard->op_since_ms = idem_guard_now(guard);
	guard->op_until_ms = guard->op_since_ms + guard->env->store_timeout_ms;
	guard->io.done = io_done;
	if (op->verb != IDEM_RENEW && idem_tag_is_zero(&op->fresh) &&
	    draw_tag(guard->env, &op->fresh) != IDEM_OK)
		return end(guard, IDEM_E_RANDOM);
	if (!idem_step(op, NULL, &guard->io))
		return end(guard, op->status);
	return perform(guard);
}

int
idem_guard_op_start(struct idem_guard *guard, void (*op_ended)(struct idem_guard *guard))
{
	struct idem_op *op = &guard->op;

	op->policy = guard->request.policy;
	op->id = guard->request.id;
	op->fingerprint = guard->request.fingerprint;
	memset(&op->fresh, 0, sizeof op->fresh);
	guard->delay_ms = FIRST_DELAY_MS;
	guard->io_in_doubt = false;
	return idem_guard_op_repeat(guard, op_ended);
}

void
idem_guard_op_cancel(struct idem_guard *guard)
{
	idem_guard_timer_stop(guard);
	if (!guard->io_pending)
		return;
	guard->io_pending = false;
	guard->env->store->ops->cancel(guard->env->store, &guard->io);
}
