/*
 * When two worlds are the same: in both, the same can happen from now on.  So times
 * count from now, and tags and responses by the order in which they are met.
 */
#include <string.h>

#include "world.h"

#define NAMES_MAX 64

/* Names for numbers, in the order in which they are met. */
struct names {
	unsigned count, met[NAMES_MAX];
};

struct digest {
	uint64_t hash;
	struct names owners, responses;
};

static void
add(struct digest *digest, uint64_t value)
{
	/* splitmix64's finish: every bit of the value reaches every bit of the hash */
	value += digest->hash + 0x9e3779b97f4a7c15u;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
	value = (value ^ value >> 27) * 0x94d049bb133111ebu;
	digest->hash = value ^ value >> 31;
}

static void
add_named(struct digest *digest, struct names *names, unsigned number)
{
	unsigned i = 0;

	while (i < names->count && names->met[i] != number)
		i++;
	if (i == names->count && i < NAMES_MAX)
		names->met[names->count++] = number;
	add(digest, i);
}

static void
add_tag(struct digest *digest, const struct idem_tag *tag)
{
	unsigned owner;

	memcpy(&owner, tag->b, sizeof owner);
	add_named(digest, &digest->owners, owner);
	for (size_t i = IDEM_TAG_OWNER_LEN; i < IDEM_TAG_LEN; i++)
		add(digest, tag->b[i]);
}

/* How long ago, up to when it makes no difference any more. */
static void
add_age(struct digest *digest, uint64_t since_ms, uint64_t cap_ms)
{
	uint64_t age = world.now_ms - since_ms;

	add(digest, age < cap_ms ? age : cap_ms);
}

static void
add_cell(struct digest *digest)
{
	const struct idem_cell *cell = &world.cell;

	add(digest, cell->state);
	if (cell->state == IDEM_ABSENT)
		return;
	add_tag(digest, &cell->tag);
	add(digest, cell->attempt);
	add(digest, cell->lease_ms);
	add(digest, cell->retain_ms);
	add(digest, cell->fingerprint.b[0]);
	add_age(digest, world.stamp_ms, cell->retain_ms);
	if (cell->state == IDEM_STORED)
		add_named(digest, &digest->responses, world.payload);
}

static void
add_op(struct digest *digest, const struct actor *actor)
{
	const struct idem_op *op = &actor->op;
	const struct idem_io *io = &actor->io;

	add(digest, op->verb);
	add_tag(digest, &op->fresh);
	add_tag(digest, &op->won);
	add_tag(digest, &op->owner);
	add(digest, op->attempt);
	add_tag(digest, &io->expect);
	add_tag(digest, &io->write.tag);
	add(digest, io->write.state);
	add(digest, io->write.attempt);
	add_age(digest, actor->op_since_ms, world.policy.ttl_ms);
}

static void
add_actor(struct digest *digest, const struct actor *actor)
{
	add(digest, actor->at);
	if (actor->at == IDLE)
		return;
	add(digest, (uint64_t)actor->request);
	if (actor->at != EXECUTING)
		add_op(digest, actor);
	if (actor->at == CLAIMING)
		return;
	add_tag(digest, &actor->owner);
	add(digest, actor->attempt);
	add(digest, actor->life == world.life);
	add(digest, actor->executed);
	if (actor->executed)
		add_named(digest, &digest->responses, actor->response);
}

static void
add_promises(struct digest *digest)
{
	add(digest, world.policy.retry_in_doubt);
	add(digest, world.policy.ttl_ms);
	add(digest, world.executions > 0);
	add(digest, world.last_attempt);
	add_named(digest, &digest->responses, world.acknowledged);
	add(digest, world.remembered_until > world.now_ms ? world.remembered_until - world.now_ms : 0);
}

uint64_t
world_hash(void)
{
	struct digest digest = {.owners = {.count = 1}, .responses = {.count = 1}}; /* 0 is called 0 */

	add_promises(&digest);
	add_cell(&digest);
	for (unsigned i = 0; i < world.actor_count; i++)
		add_actor(&digest, &world.actors[i]);
	return digest.hash != 0 ? digest.hash : 1;
}
