/* The protocol as a pure function: what to write to a cell, and what the answer means. */
#include <string.h>

#include <idem/step.h>

static bool
tags_equal(const struct idem_tag *a, const struct idem_tag *b)
{
	return memcmp(a->b, b->b, IDEM_TAG_LEN) == 0;
}

/*
 * Each write needs a tag that was never there before.  A claim that was applied,
 * lost its reply, and was taken over must not bring its tag back; and whoever has
 * seen a lease that was over must not replace it once it was renewed.
 */
static void
count_up(struct idem_tag *tag)
{
	for (size_t i = IDEM_TAG_OWNER_LEN; i < IDEM_TAG_LEN && ++tag->b[i] == 0; i++)
		;
}

static bool
same_request(const struct idem_op *op, const struct idem_cell *cell)
{
	return memcmp(op->fingerprint.b, cell->fingerprint.b, IDEM_FINGERPRINT_LEN) == 0;
}

static uint64_t
add_capped(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static bool
finish(struct idem_op *op, enum idem_verdict verdict)
{
	op->status = IDEM_OK;
	op->verdict = verdict;
	return false;
}

static bool
fail(struct idem_op *op, int status)
{
	op->status = status;
	op->verdict = IDEM_UNDECIDED;
	return false;
}

/* Fills in what every write has in common; the caller sets state and retention. */
static void
prepare(const struct idem_op *op, struct idem_io *next, const struct idem_tag *expect)
{
	memset(&next->write, 0, sizeof next->write);
	next->id = op->id;
	next->expect = *expect;
	next->write.tag = op->verb == IDEM_CLAIM ? op->won : op->fresh;
	next->write.attempt = op->attempt;
	next->write.fingerprint = op->fingerprint;
	next->want_payload = op->verb == IDEM_CLAIM;
	next->status = IDEM_PENDING;
	next->applied = false;
}

/* A lock outlives its lease by the ttl, so that a dead owner's key stays in doubt. */
static void
write_lock(const struct idem_op *op, struct idem_io *next)
{
	next->write.state = IDEM_LOCKED;
	next->write.lease_ms = op->policy.lease_ms;
	next->write.retain_ms = add_capped(op->policy.lease_ms, op->policy.ttl_ms);
}

static bool
ask_for_lock(struct idem_op *op, struct idem_io *next, const struct idem_tag *expect, uint32_t attempt)
{
	op->attempt = attempt;
	prepare(op, next, expect);
	write_lock(op, next);
	return true;
}

static bool
take_over(struct idem_op *op, const struct idem_cell *cell, struct idem_io *next)
{
	struct idem_tag expect = cell->tag;
	uint32_t attempt = cell->attempt == UINT32_MAX ? UINT32_MAX : cell->attempt + 1;

	count_up(&op->won);
	return ask_for_lock(op, next, &expect, attempt);
}

static bool
begin_claim(struct idem_op *op, struct idem_io *next)
{
	static const struct idem_tag nothing;

	return ask_for_lock(op, next, &nothing, 1);
}

static bool
claim_again(struct idem_op *op, struct idem_io *next)
{
	count_up(&op->won);
	return begin_claim(op, next);
}

static bool
claim_found_lock(struct idem_op *op, const struct idem_cell *cell, struct idem_io *next)
{
	op->found = *cell;
	if (cell->age_ms < cell->lease_ms) {
		op->wait_ms = cell->lease_ms - cell->age_ms;
		return finish(op, IDEM_IN_PROGRESS);
	}
	if (op->policy.retry_in_doubt)
		return take_over(op, cell, next);
	return finish(op, IDEM_IN_DOUBT);
}

static bool
claim_found_doubt(struct idem_op *op, const struct idem_cell *cell, struct idem_io *next)
{
	op->found = *cell;
	if (op->policy.retry_in_doubt)
		return take_over(op, cell, next);
	return finish(op, IDEM_IN_DOUBT);
}

static bool
step_claim(struct idem_op *op, const struct idem_io *result, struct idem_io *next)
{
	struct idem_cell seen;

	if (result->applied)
		return finish(op, IDEM_EXECUTE);
	seen = result->seen;
	if (seen.state == IDEM_ABSENT)
		return claim_again(op, next); /* what was to be taken over is gone */
	if (seen.state == IDEM_LOCKED && idem_tag_same_owner(&seen.tag, &op->fresh)) {
		op->attempt = seen.attempt;
		op->won = seen.tag;
		return finish(op, IDEM_EXECUTE); /* this very claim, whose answer was lost */
	}
	if (!same_request(op, &seen)) {
		memset(&op->found, 0, sizeof op->found);
		return finish(op, IDEM_MISMATCH);
	}
	switch (seen.state) {
	case IDEM_LOCKED:
		return claim_found_lock(op, &seen, next);
	case IDEM_DOUBT:
		return claim_found_doubt(op, &seen, next);
	case IDEM_STORED:
		op->found = seen;
		return finish(op, IDEM_REPLAY);
	default:
		return fail(op, IDEM_E_CORRUPT);
	}
}

/* What the first attempt did stays unknown, whatever is known of a later one. */
static bool
release_forgets(const struct idem_op *op)
{
	return op->attempt <= 1;
}

static bool
ask_to_settle(struct idem_op *op, struct idem_io *next)
{
	struct idem_tag owner = op->owner;

	prepare(op, next, &owner);
	next->write.retain_ms = op->policy.ttl_ms;
	switch (op->verb) {
	case IDEM_COMPLETE:
		next->write.state = IDEM_STORED;
		next->write.payload = op->payload;
		return true;
	case IDEM_RELEASE:
		next->write.state = release_forgets(op) ? IDEM_ABSENT : IDEM_DOUBT;
		return true;
	case IDEM_RENEW:
		write_lock(op, next);
		op->won = owner;
		count_up(&op->won);
		next->write.tag = op->won;
		return true;
	case IDEM_GIVE_UP:
		next->write.state = IDEM_DOUBT;
		return true;
	default:
		return fail(op, IDEM_E_INVALID);
	}
}

static bool
step_settling(struct idem_op *op, const struct idem_io *result, struct idem_io *next)
{
	struct idem_tag seen = result->seen.tag;

	if (result->applied)
		return finish(op, IDEM_RECORDED);
	if (result->seen.state == IDEM_LOCKED && idem_tag_same_owner(&seen, &op->owner)) {
		op->owner = seen; /* a renewal of ours that was applied without our knowing */
		return ask_to_settle(op, next);
	}
	if (op->verb == IDEM_RELEASE && release_forgets(op) && result->seen.state == IDEM_ABSENT)
		return finish(op, IDEM_RECORDED);
	if (op->verb != IDEM_RENEW && result->seen.state != IDEM_ABSENT && tags_equal(&seen, &op->fresh))
		return finish(op, IDEM_RECORDED); /* done the first time, when the answer was lost */
	return finish(op, IDEM_LOST);
}

bool
idem_step(struct idem_op *op, const struct idem_io *result, struct idem_io *next)
{
	if (result == NULL) {
		op->status = IDEM_PENDING;
		op->verdict = IDEM_UNDECIDED;
		op->wait_ms = 0;
		op->won = op->fresh;
		memset(&op->found, 0, sizeof op->found);
		return op->verb == IDEM_CLAIM ? begin_claim(op, next) : ask_to_settle(op, next);
	}
	if (result->status != IDEM_OK)
		return fail(op, result->status);
	return op->verb == IDEM_CLAIM ? step_claim(op, result, next) : step_settling(op, result, next);
}

const char *
idem_verdict_name(enum idem_verdict verdict)
{
	switch (verdict) {
	case IDEM_UNDECIDED:
		return "undecided";
	case IDEM_EXECUTE:
		return "execute";
	case IDEM_REPLAY:
		return "replay";
	case IDEM_IN_PROGRESS:
		return "in_progress";
	case IDEM_MISMATCH:
		return "mismatch";
	case IDEM_IN_DOUBT:
		return "in_doubt";
	case IDEM_RECORDED:
		return "recorded";
	case IDEM_LOST:
		return "lost";
	}
	return "invalid";
}
