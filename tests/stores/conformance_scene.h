/* What the files of the suite share: a handle for each test, and short words for what it does. */
#ifndef IDEM_TEST_CONFORMANCE_SCENE_H
#define IDEM_TEST_CONFORMANCE_SCENE_H

#include "../support/test.h"
#include "actor.h"
#include "conformance.h"

/* Each file has a list of its tests, which ends with an empty one. */
struct promise {
	const char *name;
	void (*test)(void **state); /* *state: the struct conformance */
};

#define PROMISE(name)                                                                                        \
	{                                                                                                    \
#name, name                                                                                  \
	}

extern const struct promise conformance_transitions[], conformance_lost_answers[], conformance_payloads[],
	conformance_times[], conformance_handles[], conformance_hints[];

#define LEASE 10 /* units */
#define TTL 50

struct scene {
	struct conformance *fixture;
	struct idem_loop *loop;
	struct actor actor;
};

static inline struct scene
scene_open(void **state)
{
	struct scene scene = {.fixture = *state};

	assert_ok(idem_poll_loop_new(&scene.loop));
	scene.actor.loop = scene.loop;
	scene.actor.store = scene.fixture->open(scene.fixture, scene.loop);
	assert_non_null(scene.actor.store);
	return scene;
}

static inline void
scene_close(struct scene *scene)
{
	idem_store_close(scene->actor.store);
	idem_poll_loop_free(scene->loop);
}

static inline struct request
new_key(struct scene *scene)
{
	struct conformance *fixture = scene->fixture;

	return actor_request(fixture->next_key++, LEASE * fixture->unit_ms, TTL * fixture->unit_ms);
}

static inline void
pass(struct scene *scene, uint64_t units)
{
	scene->fixture->advance(scene->fixture, units * scene->fixture->unit_ms);
}

static inline struct request
changed(const struct request *request)
{
	struct request other = *request;

	other.fingerprint.b[IDEM_FINGERPRINT_LEN - 1] ^= 1;
	return other;
}

static inline struct request
daring(const struct request *request)
{
	struct request other = *request;

	other.policy.retry_in_doubt = true;
	return other;
}

/* ---- shorter words ---- */

static inline int
ask(struct scene *scene, const struct request *request)
{
	return actor_claim(&scene->actor, request, NULL);
}

static inline struct claim
win(struct scene *scene, const struct request *request)
{
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, request, &claim), IDEM_EXECUTE);
	return claim;
}

static inline int
complete(struct scene *scene, const struct request *request, const struct claim *claim, const char *text)
{
	return actor_complete(&scene->actor, request, claim, bytes_of(text));
}

static inline int
settle(struct scene *scene, const struct request *request, const struct claim *claim, enum idem_verb verb)
{
	return actor_settle(&scene->actor, request, claim, verb, bytes_of(""));
}

static inline void
assert_replays(struct actor *actor, const struct request *request, struct idem_bytes answer)
{
	struct claim claim;

	assert_int_equal(actor_claim(actor, request, &claim), IDEM_REPLAY);
	assert_int_equal(claim.found.state, IDEM_STORED);
	assert_int_equal(claim.found.payload.len, answer.len);
	if (answer.len > 0)
		assert_memory_equal(claim.found.payload.data, answer.data, answer.len);
	claim_free(&claim);
}

/* A conflict that asks for the payload, with the request's own fingerprint. */
static inline struct idem_io
look(struct scene *scene, const struct request *request, bool want_payload)
{
	struct idem_io io = {.id = request->id, .want_payload = want_payload};

	io.expect = actor_tag(); /* nobody's: never applied */
	io.write.tag = actor_tag();
	io.write.state = IDEM_DOUBT;
	io.write.attempt = 1;
	io.write.retain_ms = 1;
	io.write.fingerprint = request->fingerprint;
	assert_ok(actor_cas(&scene->actor, &io));
	assert_false(io.applied);
	return io;
}

static inline void
look_end(struct scene *scene, struct idem_io *io)
{
	scene->actor.store->ops->release(scene->actor.store, io);
}

static inline enum idem_state
state_of(struct scene *scene, const struct request *request)
{
	struct idem_io io = look(scene, request, false);
	enum idem_state state = io.seen.state;

	look_end(scene, &io);
	return state;
}

#endif
