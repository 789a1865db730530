/*
 * The protocol under random and under all short schedules: actors that claim,
 * execute, settle, crash, sleep and lose replies, over a store of one cell, in
 * virtual time.  What must never happen is written as broke().
 *
 *   model                      a round of random schedules, and all short ones
 *   model random FIRST COUNT   the schedules of the seeds FIRST, FIRST+1, ...
 *   model all DEPTH            every schedule of two actors and DEPTH choices
 *
 * The program ends with 1 at the first schedule that breaks a promise, and says
 * how to run that one again.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <idem/step.h>

#define ACTORS 4
#define LEASE_MS 100

/* ---- where choices come from ---- */

static struct {
	bool exhaustive;
	unsigned seed, first_seed;
	unsigned depth, used;
	unsigned taken[32], options[32];
} choice;

static unsigned
choose(unsigned n)
{
	if (!choice.exhaustive)
		return (unsigned)rand_r(&choice.seed) / 7 % n;
	if (choice.used == choice.depth)
		return 0;
	choice.options[choice.used] = n;
	return choice.taken[choice.used++];
}

/* The next schedule in order; false after the last one. */
static bool
next_schedule(void)
{
	while (choice.used > 0) {
		unsigned i = choice.used - 1;

		if (++choice.taken[i] < choice.options[i])
			return true;
		choice.taken[i] = 0;
		choice.used--;
	}
	return false;
}

static void
broke(const char *what)
{
	printf("broken: %s\n", what);
	if (choice.exhaustive) {
		printf("choices:");
		for (unsigned i = 0; i < choice.used; i++)
			printf(" %u", choice.taken[i]);
		printf("\nagain: model all %u\n", choice.depth);
	} else {
		printf("again: model random %u 1\n", choice.first_seed);
	}
	exit(1);
}

/* ---- the world: one cell, time, and what clients have seen ---- */

struct actor {
	enum { IDLE, CLAIMING, EXECUTING, SETTLING } at;
	struct idem_op op;
	struct idem_io io;
	uint64_t op_since_ms;
	char request; /* the fingerprint: 'a' mostly, 'b' sometimes */
	struct idem_tag owner;
	uint32_t attempt;
	unsigned life; /* of the key, when it was claimed */
	bool executed;
	unsigned response;
};

static struct {
	uint64_t now_ms;
	struct idem_cell cell;
	uint64_t stamp_ms;
	unsigned payload;
	struct idem_policy policy;
	struct actor actors[ACTORS];
	unsigned tags;

	/* What the promises are about. */
	unsigned life;             /* how often the key has become new */
	unsigned executions;       /* requests that took effect and were not proven not to have */
	uint32_t last_attempt;     /* of the claims that were won */
	unsigned acknowledged;     /* the response whose completion was acknowledged; 0: none */
	uint64_t remembered_until; /* the cell must not be forgotten before */
} world;

static bool drop_tags; /* the store ignores tags: planted */

static struct idem_tag
fresh_tag(void)
{
	struct idem_tag tag = {{0}};

	world.tags++;
	memcpy(tag.b, &world.tags, sizeof world.tags);
	tag.b[15] = 1;
	return tag;
}

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
	forget();
}

static void
swap(struct idem_io *io)
{
	expire();
	io->status = IDEM_OK;
	io->applied = drop_tags || memcmp(&io->expect, &world.cell.tag, sizeof io->expect) == 0;
	if (!io->applied) {
		io->seen = world.cell;
		io->seen.age_ms = world.now_ms - world.stamp_ms;
		return;
	}
	if (world.cell.state == IDEM_LOCKED && io->write.state == IDEM_LOCKED &&
	    !idem_tag_same_owner(&io->write.tag, &world.cell.tag) &&
	    world.now_ms - world.stamp_ms < world.cell.lease_ms)
		broke("a living owner was robbed of its lock");
	if (io->write.state == IDEM_ABSENT) {
		memset(&world.cell, 0, sizeof world.cell);
		if (world.executions > 0)
			broke("a request that was executed was forgotten");
		forget();
		return;
	}
	world.cell = io->write;
	world.stamp_ms = world.now_ms;
	/* Whatever was executed is remembered for the ttl from the last word on it. */
	world.remembered_until = world.now_ms + world.policy.ttl_ms;
}

/* ---- actors ---- */

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
	if (!idem_step(&actor->op, NULL, &actor->io))
		broke("an op ended before it began");
}

static void
claimed(struct actor *actor)
{
	actor->at = IDLE;
	switch (actor->op.verdict) {
	case IDEM_EXECUTE:
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
		return;
	case IDEM_REPLAY:
		if (memcmp(actor->op.found.fingerprint.b, actor->op.fingerprint.b, IDEM_FINGERPRINT_LEN) != 0)
			broke("a response is replayed to another request");
		if (world.acknowledged != 0 &&
		    memcmp(actor->op.found.payload.data, &world.acknowledged, sizeof world.acknowledged) != 0)
			broke("a response has changed");
		return;
	case IDEM_MISMATCH:
		if (world.cell.state != IDEM_ABSENT &&
		    memcmp(world.cell.fingerprint.b, actor->op.fingerprint.b, IDEM_FINGERPRINT_LEN) == 0)
			broke("a request is told to differ from itself");
		return;
	case IDEM_IN_PROGRESS:
		if (idem_tag_same_owner(&actor->op.found.tag, &actor->op.fresh))
			broke("a claim waits for itself");
		if (actor->op.wait_ms == 0 || actor->op.wait_ms > LEASE_MS)
			broke("a wait is no part of a lease");
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
	if (actor->op.verdict == IDEM_LOST && world.cell.state == IDEM_LOCKED &&
	    idem_tag_same_owner(&world.cell.tag, &actor->owner))
		broke("an owner is told that it lost a lock it holds");
	if (actor->op.verb == IDEM_RENEW && actor->op.verdict == IDEM_RECORDED)
		actor->owner = actor->op.won;
	if (actor->op.verdict == IDEM_LOST || actor->op.verb != IDEM_COMPLETE)
		return;
	if (actor->attempt < world.last_attempt)
		broke("a stale owner was recorded");
	if (world.acknowledged != 0)
		broke("two responses were acknowledged");
	world.acknowledged = actor->response;
}

/* Performs the io that is due; the reply may be lost, and then the same io comes again. */
static void
perform(struct actor *actor)
{
	unsigned fate = choose(8);

	if (fate == 1) /* lost on its way there */
		return;
	swap(&actor->io);
	if (fate == 2) /* applied, and lost on its way back */
		return;
	if (actor->io.applied && actor->op.verb == IDEM_COMPLETE)
		actor->io.write.payload.data = NULL; /* the store has a copy of its own */
	if (idem_step(&actor->op, &actor->io, &actor->io))
		return;
	if (actor->op.status != IDEM_OK)
		broke("an op failed in a store that works");
	if (actor->at == CLAIMING)
		claimed(actor);
	else
		settled(actor);
}

static unsigned responses;

static void
execute(struct actor *actor)
{
	switch (choose(6)) {
	case 0: /* it takes effect */
		if (!actor->executed) {
			actor->executed = true;
			/* What happens after the ttl is another life of the key: that is documented. */
			if (actor->life == world.life)
				world.executions++;
			actor->response = ++responses;
		}
		return;
	case 1:
		begin_op(actor, IDEM_RENEW);
		break;
	case 2:
		begin_op(actor, IDEM_GIVE_UP);
		break;
	case 3: /* only what was not executed is released */
		if (actor->executed)
			return;
		begin_op(actor, IDEM_RELEASE);
		break;
	default:
		if (!actor->executed)
			return;
		begin_op(actor, IDEM_COMPLETE);
	}
	actor->at = SETTLING;
}

static void
act(struct actor *actor)
{
	if (actor->at != IDLE && choose(12) == 1) {
		actor->at = IDLE; /* its process dies */
		return;
	}
	if ((actor->at == CLAIMING || actor->at == SETTLING) &&
	    world.now_ms - actor->op_since_ms >= world.policy.ttl_ms) {
		actor->at = IDLE; /* an op has a time limit, which is shorter than the ttl */
		return;
	}
	if (actor->at == SETTLING && actor->op.verb == IDEM_RENEW && choose(4) == 1)
		actor->at = EXECUTING; /* the renewal is given up; it may have been applied */
	switch (actor->at) {
	case IDLE:
		actor->request = choose(8) == 1 ? 'b' : 'a';
		begin_op(actor, IDEM_CLAIM);
		actor->at = CLAIMING;
		return;
	case EXECUTING:
		execute(actor);
		return;
	default:
		perform(actor);
	}
}

static void
pass_time(void)
{
	static const uint64_t steps[] = {0, 1, LEASE_MS / 2, LEASE_MS, 3 * LEASE_MS, 20 * LEASE_MS};

	world.now_ms += steps[choose(6)];
}

static void
run_schedule(unsigned actors, unsigned turns)
{
	memset(&world, 0, sizeof world);
	world.policy.lease_ms = LEASE_MS;
	world.policy.retry_in_doubt = choose(2) == 1;
	world.policy.ttl_ms = choose(2) == 1 ? 5 * LEASE_MS : 1000 * LEASE_MS;
	for (unsigned turn = 0; turn < turns; turn++) {
		if (choose(3) == 1)
			pass_time();
		act(&world.actors[choose(actors)]);
	}
}

static unsigned long
run_random(unsigned first, unsigned count)
{
	choice.exhaustive = false;
	for (unsigned i = 0; i < count; i++) {
		choice.first_seed = first + i;
		choice.seed = choice.first_seed * 2654435761u;
		run_schedule(ACTORS, 60);
	}
	return count;
}

static unsigned long
run_all(unsigned depth)
{
	unsigned long count = 0;

	memset(&choice, 0, sizeof choice);
	choice.exhaustive = true;
	choice.depth = depth;
	do {
		choice.used = 0;
		run_schedule(2, 12);
		count++;
	} while (next_schedule());
	return count;
}

int
main(int argc, char **argv)
{
	drop_tags = getenv("IDEM_MODEL_DROP_TAGS") != NULL;
	if (argc == 4 && strcmp(argv[1], "random") == 0) {
		printf("%lu random schedules\n", run_random((unsigned)strtoul(argv[2], NULL, 10),
		                                            (unsigned)strtoul(argv[3], NULL, 10)));
	} else if (argc == 3 && strcmp(argv[1], "all") == 0) {
		printf("all %lu schedules\n", run_all((unsigned)strtoul(argv[2], NULL, 10)));
	} else if (argc == 1) {
		printf("%lu random schedules\n", run_random(1, 300000));
		printf("all %lu schedules\n", run_all(9));
	} else {
		(void)fprintf(stderr, "usage: model [random FIRST COUNT | all DEPTH]\n");
		return 2;
	}
	return 0;
}
