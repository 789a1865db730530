/* The world of the model: one cell, time, actors, and what must never happen to them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "choice.h"
#include "world.h"

struct world world;
bool drop_tags, tell;

static void __attribute__((format(printf, 2, 3))) say(const struct actor *actor, const char *format, ...)
{
	va_list args;

	if (!tell)
		return;
	printf("%8llu  ", (unsigned long long)world.now_ms);
	if (actor != NULL)
		printf("actor %d: ", (int)(actor - world.actors));
	va_start(args, format);
	(void)vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* Its last bytes count the owner's writes, and begin anywhere. */
static struct idem_tag
fresh_tag(void)
{
	struct idem_tag tag = {{0}};

	world.tags++;
	memcpy(tag.b, &world.tags, sizeof world.tags);
	tag.b[IDEM_TAG_LEN - 1] = 1;
	return tag;
}

/* ---- the cell ---- */

/* A new life of the key begins. */
static void
forget(void)
{
	world.life++;
	world.executions = 0;
	world.last_attempt = 0;
	world.acknowledged = 0;
	world.remembered_until = 0;
}

static void
expire(void)
{
	if (world.cell.state == IDEM_ABSENT || world.now_ms - world.stamp_ms < world.cell.retain_ms)
		return;
	memset(&world.cell, 0, sizeof world.cell);
	if (world.now_ms < world.remembered_until)
		broke("the cell was forgotten too early");
	say(NULL, "the cell is over");
	forget();
}

static void
show(struct idem_io *io)
{
	io->seen = world.cell;
	io->seen.age_ms = world.now_ms - world.stamp_ms;
	if (!io->want_payload || world.cell.state != IDEM_STORED ||
	    memcmp(io->write.fingerprint.b, world.cell.fingerprint.b, IDEM_FINGERPRINT_LEN) != 0)
		io->seen.payload = (struct idem_bytes){NULL, 0};
}

static void
check_robbery(const struct idem_io *io)
{
	if (world.cell.state == IDEM_LOCKED && io->write.state == IDEM_LOCKED &&
	    !idem_tag_same_owner(&io->write.tag, &world.cell.tag) &&
	    world.now_ms - world.stamp_ms < world.cell.lease_ms)
		broke("a living owner was robbed of its lock");
}

static void
write_cell(const struct idem_io *io)
{
	check_robbery(io);
	if (io->write.state == IDEM_ABSENT) {
		memset(&world.cell, 0, sizeof world.cell);
		if (world.executions > 0)
			broke("a request that was executed was forgotten");
		forget();
		return;
	}
	world.cell = io->write;
	world.stamp_ms = world.now_ms;
	if (io->write.payload.len == sizeof world.payload)
		memcpy(&world.payload, io->write.payload.data, sizeof world.payload);
	world.cell.payload.data = &world.payload;
	/* Whatever was executed is remembered for the ttl from the last word on it. */
	world.remembered_until = world.now_ms + world.policy.ttl_ms;
}

static void
swap(struct idem_io *io)
{
	expire();
	io->status = IDEM_OK;
	io->applied = drop_tags || memcmp(&io->expect, &world.cell.tag, sizeof io->expect) == 0;
	if (io->applied)
		write_cell(io);
	else
		show(io);
}

/* ---- what actors are told ---- */

static void
told_to_execute(struct actor *actor)
{
	if (world.cell.state != IDEM_LOCKED ||
	    memcmp(&world.cell.tag, &actor->op.won, sizeof actor->op.won) != 0)
		return; /* won once, and lost again before its reply came: it will be told */
	if (actor->op.attempt <= world.last_attempt)
		broke("an attempt has the number of an earlier one");
	world.last_attempt = actor->op.attempt;
	if (!world.policy.retry_in_doubt && world.executions > 0)
		broke("a request is executed twice");
	if (world.acknowledged != 0)
		broke("a request is executed after its response was acknowledged");
	actor->owner = actor->op.won;
	actor->attempt = actor->op.attempt;
	actor->life = world.life;
	actor->executed = false;
	actor->at = EXECUTING;
}

static void
told_to_replay(const struct actor *actor)
{
	const struct idem_cell *found = &actor->op.found;
	unsigned response;

	if (memcmp(found->fingerprint.b, actor->op.fingerprint.b, IDEM_FINGERPRINT_LEN) != 0)
		broke("a response is replayed to another request");
	if (found->payload.len != sizeof response)
		broke("a replay without a response");
	memcpy(&response, found->payload.data, sizeof response);
	if (world.acknowledged != 0 && world.acknowledged != response)
		broke("a response has changed");
	world.acknowledged = response; /* its client has seen it */
}

static void
told_to_wait(const struct actor *actor)
{
	if (idem_tag_same_owner(&actor->op.found.tag, &actor->op.fresh))
		broke("a claim waits for itself");
	if (actor->op.wait_ms == 0 || actor->op.wait_ms > LEASE_MS)
		broke("a wait is no part of a lease");
}

static void
told_of_another_request(const struct actor *actor)
{
	static const struct idem_cell nothing;

	if (world.cell.state != IDEM_ABSENT &&
	    memcmp(world.cell.fingerprint.b, actor->op.fingerprint.b, IDEM_FINGERPRINT_LEN) == 0)
		broke("a request is told to differ from itself");
	if (memcmp(&actor->op.found, &nothing, sizeof nothing) != 0)
		broke("something of another request's record is shown");
}

static void
claimed(struct actor *actor)
{
	actor->at = IDLE;
	switch (actor->op.verdict) {
	case IDEM_EXECUTE:
		told_to_execute(actor);
		return;
	case IDEM_REPLAY:
		told_to_replay(actor);
		return;
	case IDEM_MISMATCH:
		told_of_another_request(actor);
		return;
	case IDEM_IN_PROGRESS:
		told_to_wait(actor);
		return;
	case IDEM_IN_DOUBT:
		if (world.policy.retry_in_doubt)
			broke("in doubt, and the policy says retry");
		return;
	default:
		broke("a claim without a verdict");
	}
}

static void
settled(struct actor *actor)
{
	actor->at = actor->op.verb == IDEM_RENEW ? EXECUTING : IDLE;
	if (actor->op.verdict != IDEM_RECORDED && actor->op.verdict != IDEM_LOST)
		broke("a settlement without a verdict");
	if (actor->op.verdict == IDEM_LOST && world.cell.state == IDEM_LOCKED &&
	    idem_tag_same_owner(&world.cell.tag, &actor->owner))
		broke("an owner is told that it lost a lock it holds");
	if (actor->op.verb == IDEM_RENEW && actor->op.verdict == IDEM_RECORDED)
		actor->owner = actor->op.won;
	if (actor->op.verdict == IDEM_LOST || actor->op.verb != IDEM_COMPLETE)
		return;
	if (actor->attempt < world.last_attempt)
		broke("a stale owner was recorded");
	if (world.acknowledged != 0 && world.acknowledged != actor->response)
		broke("two responses were acknowledged");
	world.acknowledged = actor->response;
}

/* ---- what actors do ---- */

static const char *const verbs[] = {"claim", "complete", "release", "renew", "give up"};

static void
begin_op(struct actor *actor, enum idem_verb verb)
{
	memset(&actor->op, 0, sizeof actor->op);
	actor->op.verb = verb;
	actor->op.policy = world.policy;
	memset(actor->op.fingerprint.b, actor->request, sizeof actor->op.fingerprint.b);
	actor->op.fresh = fresh_tag();
	actor->op.owner = actor->owner;
	actor->op.attempt = actor->attempt;
	actor->op.payload = (struct idem_bytes){&actor->response, sizeof actor->response};
	actor->op_since_ms = world.now_ms;
	say(actor, "wants to %s", verbs[verb]);
	if (!idem_step(&actor->op, NULL, &actor->io))
		broke("an op ended before it began");
}

/* Performs the io that is due; the reply may be lost, and then the same io comes again. */
static void
perform(struct actor *actor)
{
	enum { ARRIVES, LOST_BEFORE, LOST_AFTER };
	unsigned fate = pick(3, 6);

	if (fate == LOST_BEFORE) {
		say(actor, "is not heard by the store");
		return;
	}
	swap(&actor->io);
	if (fate == LOST_AFTER) {
		say(actor, "does not hear the store, whose write was%s applied",
		    actor->io.applied ? "" : " not");
		return;
	}
	if (idem_step(&actor->op, &actor->io, &actor->io)) {
		say(actor, "asks once more");
		return;
	}
	say(actor, "is told %s", idem_verdict_name(actor->op.verdict));
	if (actor->op.status != IDEM_OK)
		broke("an op failed in a store that works");
	if (actor->at == CLAIMING)
		claimed(actor);
	else
		settled(actor);
}

static void
claim(struct actor *actor)
{
	actor->request = seldom(8) ? 'b' : 'a';
	begin_op(actor, IDEM_CLAIM);
	actor->at = CLAIMING;
	perform(actor);
}

/* The request takes effect.  What happens after the ttl is another life of the key: that is documented. */
static void
take_effect(struct actor *actor)
{
	if (actor->executed)
		return;
	actor->executed = true;
	if (actor->life == world.life)
		world.executions++;
	actor->response = ++world.responses;
	say(actor, "executes the request");
}

static void
execute(struct actor *actor)
{
	static const enum idem_verb settlements[] = {IDEM_COMPLETE, IDEM_RENEW, IDEM_GIVE_UP, IDEM_RELEASE};
	unsigned what = pick(5, 2);

	if (what == 4) {
		take_effect(actor);
		return;
	}
	/* Only what was executed is completed, only what was not is released. */
	if ((settlements[what] == IDEM_COMPLETE && !actor->executed) ||
	    (settlements[what] == IDEM_RELEASE && actor->executed))
		return;
	begin_op(actor, settlements[what]);
	actor->at = SETTLING;
	perform(actor);
}

static bool
op_is_too_old(const struct actor *actor)
{
	return (actor->at == CLAIMING || actor->at == SETTLING) &&
	       world.now_ms - actor->op_since_ms >= world.policy.ttl_ms;
}

static void
act(struct actor *actor)
{
	if (op_is_too_old(actor)) {
		actor->at = IDLE; /* an op has a time limit, which is shorter than the ttl */
		return;
	}
	if (actor->at != IDLE && seldom(12)) {
		say(actor, "dies");
		actor->at = IDLE;
		return;
	}
	if (actor->at == SETTLING && actor->op.verb == IDEM_RENEW && seldom(4)) {
		say(actor, "does not wait for its renewal");
		actor->at = EXECUTING;
	}
	if (actor->at == IDLE)
		claim(actor);
	else if (actor->at == EXECUTING)
		execute(actor);
	else
		perform(actor);
}

static void
pass_time(void)
{
	static const uint64_t steps[] = {1, LEASE_MS - 1, LEASE_MS, 5 * LEASE_MS};

	world.now_ms += steps[pick(4, 1)];
}

void
world_begin(unsigned actors)
{
	memset(&world, 0, sizeof world);
	world.actor_count = actors;
	world.policy.lease_ms = LEASE_MS;
	world.policy.retry_in_doubt = pick(2, 1) == 1;
	world.policy.ttl_ms = pick(2, 1) == 1 ? 5 * LEASE_MS : 1000 * LEASE_MS;
	say(NULL, "policy %s, ttl %llu ms", world.policy.retry_in_doubt ? "retry" : "reject",
	    (unsigned long long)world.policy.ttl_ms);
}

void
world_turn(void)
{
	if (pick(2, 3) == 1)
		pass_time();
	else
		act(&world.actors[pick(world.actor_count, 1)]);
}
