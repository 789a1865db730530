/* What a test does to a store. */
#include "actor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The mixing step of splitmix64: neighbours become strangers. */
static uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void
spread(uint64_t number, void *out, size_t len)
{
	for (size_t i = 0; i < len; i += sizeof number) {
		number = mix(number);
		memcpy((uint8_t *)out + i, &number, sizeof number);
	}
}

struct request
actor_request(uint64_t number, uint64_t lease_ms, uint64_t ttl_ms)
{
	struct request request = {.policy = {.lease_ms = lease_ms, .ttl_ms = ttl_ms}};

	spread(number, request.id.b, sizeof request.id.b);
	memset(request.fingerprint.b, 'a', sizeof request.fingerprint.b);
	return request;
}

/* No two of this machine's processes and threads may ever agree on one. */
struct idem_tag
actor_tag(void)
{
	struct idem_tag tag;

	if (idem_random(NULL, tag.b, sizeof tag.b) != IDEM_OK)
		abort();
	return tag;
}

/* An actor does one thing at a time. */
static _Thread_local bool io_finished;

static void
finished(struct idem_io *io)
{
	(void)io;
	io_finished = true;
}

int
actor_cas(struct actor *actor, struct idem_io *io)
{
	io->done = finished;
	io_finished = false;
	if (actor->store->ops->cas(actor->store, io) == IDEM_PENDING &&
	    idem_poll_loop_run(actor->loop, &io_finished, 30000) != IDEM_OK) {
		actor->store->ops->cancel(actor->store, io);
		io->status = IDEM_E_INDOUBT;
	}
	return io->status;
}

static void
keep(struct claim *claim, const struct idem_op *op)
{
	claim->owner = op->won;
	claim->attempt = op->attempt;
	claim->wait_ms = op->wait_ms;
	claim->found = op->found;
	claim->payload = NULL;
	if (op->found.payload.data == NULL)
		return;
	claim->payload = malloc(op->found.payload.len + 1);
	if (claim->payload == NULL)
		abort();
	memcpy(claim->payload, op->found.payload.data, op->found.payload.len);
	claim->found.payload.data = claim->payload;
}

/* Lets the op decide; claim (if not NULL) gets copies of what was found. */
static int
run(struct actor *actor, struct idem_op *op, struct claim *claim)
{
	struct idem_io io = {0};
	bool used = false;

	while (idem_step(op, used ? &io : NULL, &io)) {
		if (used)
			actor->store->ops->release(actor->store, &io);
		used = true;
		(void)actor_cas(actor, &io);
	}
	if (claim != NULL)
		keep(claim, op);
	if (used)
		actor->store->ops->release(actor->store, &io);
	return op->status == IDEM_OK ? (int)op->verdict : op->status;
}

static struct idem_op
op_make(const struct request *request, enum idem_verb verb, const struct idem_tag *fresh)
{
	return (struct idem_op){
		.verb = verb,
		.policy = request->policy,
		.id = request->id,
		.fingerprint = request->fingerprint,
		.fresh = *fresh,
	};
}

int
actor_claim_again(struct actor *actor, const struct request *request, struct claim *claim)
{
	struct idem_op op = op_make(request, IDEM_CLAIM, &claim->fresh);

	return run(actor, &op, claim);
}

int
actor_claim(struct actor *actor, const struct request *request, struct claim *claim)
{
	struct claim unwanted = {.fresh = actor_tag()};
	int verdict;

	if (claim != NULL) {
		claim->fresh = unwanted.fresh;
		return actor_claim_again(actor, request, claim);
	}
	verdict = actor_claim_again(actor, request, &unwanted);
	claim_free(&unwanted);
	return verdict;
}

int
actor_settle_again(struct actor *actor, const struct request *request, const struct claim *claim,
                   enum idem_verb verb, struct idem_bytes payload, const struct idem_tag *fresh)
{
	struct idem_op op = op_make(request, verb, fresh);

	op.owner = claim->owner;
	op.attempt = claim->attempt;
	op.payload = payload;
	return run(actor, &op, NULL);
}

int
actor_settle(struct actor *actor, const struct request *request, const struct claim *claim,
             enum idem_verb verb, struct idem_bytes payload)
{
	struct idem_tag fresh = actor_tag();

	return actor_settle_again(actor, request, claim, verb, payload, &fresh);
}

int
actor_renew(struct actor *actor, const struct request *request, struct claim *claim)
{
	static const struct idem_tag none;
	struct idem_op op = op_make(request, IDEM_RENEW, &none);
	int verdict;

	op.owner = claim->owner;
	op.attempt = claim->attempt;
	verdict = run(actor, &op, NULL);
	if (verdict == IDEM_RECORDED)
		claim->owner = op.won;
	return verdict;
}

int
actor_complete(struct actor *actor, const struct request *request, const struct claim *claim,
               struct idem_bytes payload)
{
	return actor_settle(actor, request, claim, IDEM_COMPLETE, payload);
}

void
claim_free(struct claim *claim)
{
	free(claim->payload);
	claim->payload = NULL;
}

static uint8_t
payload_byte(uint64_t seed, size_t place)
{
	return (uint8_t)(seed + place * 31 + (place >> 8) * 7);
}

void *
payload_make(uint64_t number, size_t len)
{
	uint64_t seed = mix(number);
	uint8_t *bytes = malloc(len + 1);

	if (bytes == NULL)
		abort();
	for (size_t i = 0; i < len; i++)
		bytes[i] = payload_byte(seed, i);
	return bytes;
}

bool
payload_is(struct idem_bytes payload, uint64_t number, size_t len)
{
	uint64_t seed = mix(number);
	const uint8_t *bytes = payload.data;

	if (payload.len != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != payload_byte(seed, i))
			return false;
	return true;
}
