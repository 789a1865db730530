/* Many requests at once: see crowd.h. */
#include "crowd.h"

#include <stdlib.h>
#include <string.h>

#define LEASE_MS 60000
#define TTL_MS 3600000

struct visitor {
	struct idem_io io;
	struct visitors *visitors;
	uint64_t key;
	struct idem_tag owner;
	void *payload;
	bool settled;  /* has nothing more to do */
	bool repeated; /* asks again, with the same tags, what became of its completion */
};

struct visitors {
	struct crowd *crowd;
	struct visitor all[CROWD_SIZE];
	unsigned busy;
	bool finished;
};

static size_t
payload_len(uint64_t key)
{
	return key % 37 == 0 ? 9000 : (size_t)(key % 300);
}

static void next_step(struct visitor *visitor);

static void
done(struct idem_io *io)
{
	next_step((struct visitor *)(void *)io);
}

/* True: answered at once. */
static bool
cas(struct visitor *visitor, const struct idem_tag *expect, enum idem_state state, struct idem_bytes payload)
{
	struct idem_store *store = visitor->visitors->crowd->actor.store;
	struct request request = actor_request(visitor->key, LEASE_MS, TTL_MS);

	visitor->io = (struct idem_io){.id = request.id, .done = done};
	visitor->io.expect = *expect;
	visitor->io.write.tag = actor_tag();
	visitor->io.write.state = state;
	visitor->io.write.attempt = 1;
	visitor->io.write.lease_ms = LEASE_MS;
	visitor->io.write.retain_ms = TTL_MS;
	visitor->io.write.fingerprint = request.fingerprint;
	visitor->io.write.payload = payload;
	return store->ops->cas(store, &visitor->io) == IDEM_OK;
}

static bool
begin_next(struct visitor *visitor)
{
	static const struct idem_tag nothing;
	struct crowd *crowd = visitor->visitors->crowd;

	if (crowd->keys == crowd->stop_at) {
		visitor->settled = true;
		if (--visitor->visitors->busy == 0)
			visitor->visitors->finished = true;
		return false;
	}
	visitor->key = crowd->keys++;
	visitor->repeated = false;
	return cas(visitor, &nothing, IDEM_LOCKED, (struct idem_bytes){NULL, 0});
}

static bool
complete(struct visitor *visitor)
{
	size_t len = payload_len(visitor->key);

	visitor->owner = visitor->io.write.tag;
	visitor->payload = payload_make(visitor->key, len);
	return cas(visitor, &visitor->owner, IDEM_STORED, (struct idem_bytes){visitor->payload, len});
}

static void
note(struct crowd *crowd, uint64_t key, enum note note)
{
	__atomic_store_n(&crowd->notes[key], (uint8_t)note, __ATOMIC_SEQ_CST);
}

/* As a guard does: the same write once more tells whether the first one took effect. */
static bool
repeat(struct visitor *visitor)
{
	struct idem_store *store = visitor->visitors->crowd->actor.store;

	visitor->repeated = true;
	return store->ops->cas(store, &visitor->io) == IDEM_OK;
}

static bool
found_own_completion(const struct visitor *visitor)
{
	return visitor->repeated && visitor->io.status == IDEM_OK && visitor->io.seen.state == IDEM_STORED &&
	       memcmp(&visitor->io.seen.tag, &visitor->io.write.tag, sizeof visitor->io.seen.tag) == 0;
}

/* Notes the answer; true: the key's claim was acknowledged, and it is to be completed. */
static bool
hear(struct visitor *visitor)
{
	struct crowd *crowd = visitor->visitors->crowd;
	bool was_claim = visitor->io.write.state == IDEM_LOCKED;
	int status = visitor->io.status;

	if (visitor->io.applied || found_own_completion(visitor)) {
		note(crowd, visitor->key, was_claim ? NOTE_CLAIMED : NOTE_COMPLETED);
		return was_claim;
	}
	if (status == IDEM_E_INDOUBT) {
		crowd->unknown++;
		note(crowd, visitor->key, was_claim ? NOTE_UNKNOWN : NOTE_CLAIMED_UNKNOWN);
	} else {
		crowd->refused++;
		if (was_claim)
			note(crowd, visitor->key, NOTE_REFUSED);
	}
	return false;
}

/* Goes on until an answer has to be waited for. */
static void
next_step(struct visitor *visitor)
{
	struct idem_store *store = visitor->visitors->crowd->actor.store;
	bool answered;

	do {
		bool go_on = hear(visitor);

		store->ops->release(store, &visitor->io);
		if (!go_on && !visitor->repeated && visitor->io.status == IDEM_E_INDOUBT &&
		    visitor->io.write.state == IDEM_STORED) {
			answered = repeat(visitor);
			continue;
		}
		free(visitor->payload);
		visitor->payload = NULL;
		answered = go_on ? complete(visitor) : begin_next(visitor);
	} while (answered);
}

bool
crowd_run(struct crowd *crowd, uint64_t keys)
{
	struct visitors visitors = {.crowd = crowd, .busy = CROWD_SIZE};
	int rc;

	crowd->stop_at = keys;
	for (int i = 0; i < CROWD_SIZE; i++) {
		visitors.all[i].visitors = &visitors;
		if (begin_next(&visitors.all[i]))
			next_step(&visitors.all[i]);
	}
	if (visitors.finished)
		return true;
	rc = idem_poll_loop_run(crowd->actor.loop, &visitors.finished, 60000);
	for (int i = 0; rc != IDEM_OK && i < CROWD_SIZE; i++) {
		if (!visitors.all[i].settled)
			crowd->actor.store->ops->cancel(crowd->actor.store, &visitors.all[i].io);
		free(visitors.all[i].payload);
	}
	return rc == IDEM_OK;
}

enum note
crowd_ask(struct actor *actor, uint64_t key)
{
	struct request request = actor_request(key, LEASE_MS, TTL_MS);
	struct idem_io io = {.id = request.id, .want_payload = true};
	enum note answer = NOTE_UNKNOWN;

	io.write = (struct idem_cell){.tag = actor_tag(), .state = IDEM_DOUBT, .attempt = 1, .retain_ms = 1};
	io.write.fingerprint = request.fingerprint;
	if (actor_cas(actor, &io) == IDEM_OK) {
		if (io.applied)
			answer = NOTE_NOTHING;
		else if (io.seen.state == IDEM_LOCKED)
			answer = NOTE_CLAIMED;
		else if (io.seen.state == IDEM_STORED && payload_is(io.seen.payload, key, payload_len(key)))
			answer = NOTE_COMPLETED;
	}
	actor->store->ops->release(actor->store, &io);
	return answer;
}
