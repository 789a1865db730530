/* What every store promises, as one suite: transitions, payloads, time, and races between processes. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "actor.h"
#include "race.h"

#define LEASE 10 /* units */
#define TTL 100

static const struct idem_bytes nothing;

/* ---- each test's own handle ---- */

struct scene {
	struct conformance *fixture;
	struct idem_loop *loop;
	struct actor actor;
};

static struct scene
scene_open(void **state)
{
	struct scene scene = {.fixture = *state};

	assert_ok(idem_poll_loop_new(&scene.loop));
	scene.actor.loop = scene.loop;
	scene.actor.store = scene.fixture->open(scene.fixture, scene.loop);
	assert_non_null(scene.actor.store);
	return scene;
}

static void
scene_close(struct scene *scene)
{
	idem_store_close(scene->actor.store);
	idem_poll_loop_free(scene->loop);
}

static struct request
new_key(struct scene *scene)
{
	struct conformance *fixture = scene->fixture;

	return actor_request(fixture->next_key++, LEASE * fixture->unit_ms, TTL * fixture->unit_ms);
}

static void
pass(struct scene *scene, uint64_t units)
{
	scene->fixture->advance(scene->fixture, units * scene->fixture->unit_ms);
}

static struct request
changed(const struct request *request)
{
	struct request other = *request;

	other.fingerprint.b[IDEM_FINGERPRINT_LEN - 1] ^= 1;
	return other;
}

static struct request
daring(const struct request *request)
{
	struct request other = *request;

	other.policy.retry_in_doubt = true;
	return other;
}

/* ---- shorter words ---- */

static int
ask(struct scene *scene, const struct request *request)
{
	return actor_claim(&scene->actor, request, NULL);
}

static struct claim
win(struct scene *scene, const struct request *request)
{
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, request, &claim), IDEM_EXECUTE);
	return claim;
}

static int
complete(struct scene *scene, const struct request *request, const struct claim *claim, const char *text)
{
	return actor_complete(&scene->actor, request, claim, bytes_of(text));
}

static int
settle(struct scene *scene, const struct request *request, const struct claim *claim, enum idem_verb verb)
{
	return actor_settle(&scene->actor, request, claim, verb, nothing);
}

static void
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
static struct idem_io
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

static void
look_end(struct scene *scene, struct idem_io *io)
{
	scene->actor.store->ops->release(scene->actor.store, io);
}

static enum idem_state
state_of(struct scene *scene, const struct request *request)
{
	struct idem_io io = look(scene, request, false);
	enum idem_state state = io.seen.state;

	look_end(scene, &io);
	return state;
}

/* ---- transitions ---- */

static void
a_new_key_is_executed_and_its_answer_replayed(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	assert_int_equal(claim.attempt, 1);
	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	assert_replays(&scene.actor, &request, bytes_of("answer"));
	assert_replays(&scene.actor, &request, bytes_of("answer"));
	scene_close(&scene);
}

static void
a_duplicate_of_a_running_request_is_told_how_long_its_lease_is(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request), second;

	pass(&scene, 2);
	assert_int_equal(actor_claim(&scene.actor, &request, &second), IDEM_IN_PROGRESS);
	assert_in_range(second.wait_ms, 1, (LEASE - 2) * scene.fixture->unit_ms);
	assert_int_equal(second.found.attempt, 1);
	assert_int_equal(second.found.lease_ms, LEASE * scene.fixture->unit_ms);
	assert_null(second.payload);
	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	scene_close(&scene);
}

static void
assert_mismatch(struct scene *scene, const struct request *request)
{
	struct request other = changed(request), other_daring = daring(&other);
	struct idem_io io;
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, &other, &claim), IDEM_MISMATCH);
	assert_null(claim.payload);
	assert_int_equal(claim.found.state, IDEM_ABSENT);
	assert_int_equal(ask(scene, &other_daring), IDEM_MISMATCH);
	io = look(scene, &other, true);
	assert_null(io.seen.payload.data);
	assert_int_equal(io.seen.payload.len, 0);
	look_end(scene, &io);
}

static void
another_request_is_a_mismatch_in_every_state_and_sees_nothing(void **state)
{
	struct scene scene = scene_open(state);
	struct request running = new_key(&scene), lapsed = new_key(&scene), stored = new_key(&scene),
		       doubted = new_key(&scene);
	struct claim claim;

	(void)win(&scene, &lapsed);
	pass(&scene, LEASE + 1);
	assert_mismatch(&scene, &lapsed);
	(void)win(&scene, &running);
	assert_mismatch(&scene, &running);
	claim = win(&scene, &stored);
	assert_int_equal(complete(&scene, &stored, &claim, "secret"), IDEM_RECORDED);
	assert_mismatch(&scene, &stored);
	assert_replays(&scene.actor, &stored, bytes_of("secret"));
	claim = win(&scene, &doubted);
	assert_int_equal(settle(&scene, &doubted, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	assert_mismatch(&scene, &doubted);
	scene_close(&scene);
}

static void
a_released_key_is_as_new(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), other = changed(&request);
	struct claim claim = win(&scene, &request);

	assert_int_equal(settle(&scene, &request, &claim, IDEM_RELEASE), IDEM_RECORDED);
	assert_int_equal(state_of(&scene, &request), IDEM_ABSENT);
	claim = win(&scene, &other);
	assert_int_equal(claim.attempt, 1);
	scene_close(&scene);
}

static void
a_key_that_was_given_up_stays_in_doubt(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	assert_int_equal(settle(&scene, &request, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	assert_int_equal(complete(&scene, &request, &claim, "late"), IDEM_LOST);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	scene_close(&scene);
}

static void
attempts_are_counted_and_a_key_once_in_doubt_is_not_forgotten(void **state)
{
	struct scene scene = scene_open(state);
	struct request cautious = new_key(&scene), request = daring(&cautious);

	for (uint32_t attempt = 1; attempt <= 4; attempt++) {
		struct claim claim = win(&scene, &request);

		assert_int_equal(claim.attempt, attempt);
		assert_int_equal(settle(&scene, &request, &claim, attempt == 1 ? IDEM_GIVE_UP : IDEM_RELEASE),
		                 IDEM_RECORDED);
		assert_int_equal(state_of(&scene, &request), IDEM_DOUBT);
		assert_int_equal(ask(&scene, &cautious), IDEM_IN_DOUBT);
	}
	scene_close(&scene);
}

static void
a_lapsed_lease_is_doubt_and_its_owner_may_still_complete(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	pass(&scene, LEASE + 1);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	assert_int_equal(complete(&scene, &request, &claim, "late"), IDEM_RECORDED);
	assert_replays(&scene.actor, &request, bytes_of("late"));
	scene_close(&scene);
}

static void
a_stale_owner_is_told_that_it_lost_and_changes_nothing(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_RENEW, IDEM_GIVE_UP};
	struct scene scene = scene_open(state);
	struct request cautious = new_key(&scene), request = daring(&cautious);
	struct claim stale = win(&scene, &cautious), owner;
	struct idem_io io;

	pass(&scene, LEASE + 1);
	owner = win(&scene, &request);
	assert_int_equal(owner.attempt, 2);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		assert_int_equal(actor_settle(&scene.actor, &cautious, &stale, verbs[i], bytes_of("stale")),
		                 IDEM_LOST);
	io = look(&scene, &request, false);
	assert_int_equal(io.seen.state, IDEM_LOCKED);
	assert_memory_equal(&io.seen.tag, &owner.owner, sizeof owner.owner);
	look_end(&scene, &io);
	assert_int_equal(complete(&scene, &request, &owner, "mine"), IDEM_RECORDED);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		assert_int_equal(actor_settle(&scene.actor, &cautious, &stale, verbs[i], bytes_of("stale")),
		                 IDEM_LOST);
	assert_replays(&scene.actor, &request, bytes_of("mine"));
	scene_close(&scene);
}

static void
what_was_never_claimed_cannot_be_settled(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RENEW, IDEM_GIVE_UP};
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim nobody = {.owner = actor_tag(), .attempt = 1};

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		assert_int_equal(settle(&scene, &request, &nobody, verbs[i]), IDEM_LOST);
		assert_int_equal(state_of(&scene, &request), IDEM_ABSENT);
	}
	assert_int_equal(win(&scene, &request).attempt, 1);
	scene_close(&scene);
}

/* ---- answers that were lost ---- */

static void
a_claim_made_twice_with_one_tag_is_one_claim(void **state)
{
	struct scene scene = scene_open(state);
	struct request cautious = new_key(&scene), request = daring(&cautious);
	struct claim claim = win(&scene, &cautious), second;

	assert_int_equal(actor_claim_again(&scene.actor, &cautious, &claim), IDEM_EXECUTE);
	assert_int_equal(claim.attempt, 1);
	assert_int_equal(settle(&scene, &cautious, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	second = win(&scene, &request);
	assert_int_equal(actor_claim_again(&scene.actor, &request, &second), IDEM_EXECUTE);
	assert_int_equal(second.attempt, 2);
	assert_int_equal(complete(&scene, &request, &second, "once"), IDEM_RECORDED);
	scene_close(&scene);
}

static void
a_settlement_made_twice_with_one_tag_is_recorded_once(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_GIVE_UP};
	struct scene scene = scene_open(state);

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct request request = new_key(&scene);
		struct claim claim = win(&scene, &request);
		struct idem_tag fresh = actor_tag();

		for (int again = 0; again < 2; again++)
			assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, verbs[i],
			                                    bytes_of("once"), &fresh),
			                 IDEM_RECORDED);
	}
	scene_close(&scene);
}

static void
an_owner_who_did_not_hear_of_its_own_renewal_is_still_the_owner(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_GIVE_UP, IDEM_RENEW};
	struct scene scene = scene_open(state);

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct request request = new_key(&scene);
		struct claim claim = win(&scene, &request), unheard = claim;

		assert_int_equal(actor_renew(&scene.actor, &request, &unheard), IDEM_RECORDED);
		assert_int_equal(settle(&scene, &request, &claim, verbs[i]), IDEM_RECORDED);
	}
	scene_close(&scene);
}

/* ---- payloads ---- */

static void
complete_with(struct scene *scene, struct actor *reader, size_t len)
{
	struct request request = new_key(scene), other = changed(&request);
	uint64_t number = scene->fixture->next_key;
	struct claim claim = win(scene, &request), found;
	void *bytes = payload_make(number, len);

	assert_int_equal(actor_complete(&scene->actor, &request, &claim, (struct idem_bytes){bytes, len}),
	                 IDEM_RECORDED);
	free(bytes);
	assert_int_equal(actor_claim(reader, &request, &found), IDEM_REPLAY);
	assert_true(payload_is(found.found.payload, number, len));
	claim_free(&found);
	assert_int_equal(actor_claim(reader, &other, &found), IDEM_MISMATCH);
	assert_null(found.payload);
}

static void
answers_of_every_size_come_back_byte_for_byte(void **state)
{
	static const size_t sizes[] = {0, 1, 59, 60, 61, 119, 120, 121, 4095, 4096, 65536, 5 << 20};
	struct scene scene = scene_open(state);
	struct actor reader = {scene.fixture->open(scene.fixture, scene.loop), scene.loop};

	assert_non_null(reader.store);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i] <= scene.fixture->payload_max)
			complete_with(&scene, &reader, sizes[i]);
	idem_store_close(reader.store);
	scene_close(&scene);
}

static void
only_who_wants_the_answer_and_brings_its_request_gets_it(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), other = changed(&request);
	struct claim claim = win(&scene, &request);
	struct idem_io io;

	assert_int_equal(complete(&scene, &request, &claim, "secret"), IDEM_RECORDED);
	io = look(&scene, &request, false);
	assert_int_equal(io.seen.state, IDEM_STORED);
	assert_null(io.seen.payload.data);
	look_end(&scene, &io);
	io = look(&scene, &other, true);
	assert_int_equal(io.seen.state, IDEM_STORED);
	assert_memory_equal(&io.seen.fingerprint, &request.fingerprint, sizeof request.fingerprint);
	assert_null(io.seen.payload.data);
	look_end(&scene, &io);
	io = look(&scene, &request, true);
	assert_int_equal(io.seen.payload.len, 6);
	assert_memory_equal(io.seen.payload.data, "secret", 6);
	look_end(&scene, &io);
	scene_close(&scene);
}

/* ---- time ---- */

static void
an_answer_is_kept_for_its_time_and_then_as_if_it_had_never_been(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), other = changed(&request);
	struct claim claim = win(&scene, &request);

	pass(&scene, LEASE - 2);
	/* The time counts from here, not from the claim. */
	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	pass(&scene, TTL - 2);
	assert_replays(&scene.actor, &request, bytes_of("answer"));
	pass(&scene, 2);
	assert_int_equal(state_of(&scene, &request), IDEM_ABSENT);
	assert_int_equal(settle(&scene, &request, &claim, IDEM_RENEW), IDEM_LOST);
	claim = win(&scene, &other);
	assert_int_equal(claim.attempt, 1);
	scene_close(&scene);
}

static void
reading_neither_shortens_nor_lengthens_the_time_of_a_cell(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	for (int i = 0; i < 7; i++) {
		struct request short_lived = request;

		short_lived.policy.ttl_ms = 1;
		pass(&scene, 14);
		assert_replays(&scene.actor, &short_lived, bytes_of("answer"));
	}
	pass(&scene, 2);
	assert_int_equal(state_of(&scene, &request), IDEM_ABSENT);
	scene_close(&scene);
}

static void
a_dead_owners_key_is_in_doubt_for_the_whole_time_after_its_lease(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	pass(&scene, LEASE + TTL - 2);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	pass(&scene, 2);
	assert_int_equal(complete(&scene, &request, &claim, "too late"), IDEM_LOST);
	assert_int_equal(state_of(&scene, &request), IDEM_ABSENT);
	assert_int_equal(ask(&scene, &request), IDEM_EXECUTE);
	scene_close(&scene);
}

static void
doubt_is_over_after_its_time(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	assert_int_equal(settle(&scene, &request, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	pass(&scene, TTL - 2);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	pass(&scene, 2);
	assert_int_equal(win(&scene, &request).attempt, 1);
	scene_close(&scene);
}

static void
renewal_keeps_the_owner_and_starts_the_age_again(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request), first = claim;
	struct idem_io io;

	for (int i = 0; i < 4; i++) {
		pass(&scene, LEASE - 3);
		io = look(&scene, &request, false);
		assert_true(io.seen.age_ms >= (LEASE - 3) * scene.fixture->unit_ms);
		look_end(&scene, &io);
		assert_int_equal(actor_renew(&scene.actor, &request, &claim), IDEM_RECORDED);
		io = look(&scene, &request, false);
		assert_true(idem_tag_same_owner(&io.seen.tag, &first.owner));
		assert_memory_equal(&io.seen.tag, &claim.owner, sizeof claim.owner);
		assert_memory_not_equal(&io.seen.tag, &first.owner, sizeof first.owner);
		assert_true(io.seen.age_ms < (LEASE - 3) * scene.fixture->unit_ms);
		assert_int_equal(io.seen.attempt, 1);
		look_end(&scene, &io);
		assert_int_equal(ask(&scene, &request), IDEM_IN_PROGRESS);
	}
	assert_int_equal(complete(&scene, &request, &claim, "at last"), IDEM_RECORDED);
	assert_int_equal(settle(&scene, &request, &claim, IDEM_RENEW), IDEM_LOST);
	assert_replays(&scene.actor, &request, bytes_of("at last"));
	scene_close(&scene);
}

static void
a_lapsed_lease_can_be_renewed_while_nobody_took_over(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);

	pass(&scene, LEASE + 1);
	assert_int_equal(ask(&scene, &request), IDEM_IN_DOUBT);
	assert_int_equal(actor_renew(&scene.actor, &request, &claim), IDEM_RECORDED);
	assert_int_equal(ask(&scene, &request), IDEM_IN_PROGRESS);
	scene_close(&scene);
}

/* ---- many handles ---- */

static void
what_is_stored_outlives_the_handle_that_stored_it(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), running = new_key(&scene);
	struct claim claim = win(&scene, &request), owner = win(&scene, &running);

	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	scene_close(&scene);
	scene = scene_open(state);
	assert_replays(&scene.actor, &request, bytes_of("answer"));
	assert_int_equal(ask(&scene, &running), IDEM_IN_PROGRESS);
	assert_int_equal(complete(&scene, &running, &owner, "from elsewhere"), IDEM_RECORDED);
	scene_close(&scene);
}

#define RACERS 4
#define RACE_KEYS 1000

static int
race_in_child(struct conformance *fixture, struct race *race)
{
	struct actor actor = {0};
	bool fine;

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return 1;
	actor.store = fixture->open(fixture, actor.loop);
	if (actor.store == NULL)
		return 1;
	fine = race_run(race, &actor);
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return fine ? 0 : 1;
}

static void
of_many_processes_exactly_one_executes_each_key(void **state)
{
	struct conformance *fixture = *state;
	struct race *race = race_make(fixture->next_key, RACE_KEYS, RACERS, LEASE * fixture->unit_ms);
	pid_t children[RACERS];

	fixture->next_key += RACE_KEYS;
	assert_non_null(race);
	for (int i = 0; i < RACERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0)
			_exit(race_in_child(fixture, race));
	}
	for (int i = 0; i < RACERS; i++) {
		int status;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(race_wrong(race), 0);
	race_free(race);
}

#define TEST(name)                                                                                           \
	{                                                                                                    \
#name, name, NULL, NULL, fixture                                                             \
	}

int
conformance_run(struct conformance *fixture)
{
	const struct CMUnitTest tests[] = {
		TEST(a_new_key_is_executed_and_its_answer_replayed),
		TEST(a_duplicate_of_a_running_request_is_told_how_long_its_lease_is),
		TEST(another_request_is_a_mismatch_in_every_state_and_sees_nothing),
		TEST(a_released_key_is_as_new),
		TEST(a_key_that_was_given_up_stays_in_doubt),
		TEST(attempts_are_counted_and_a_key_once_in_doubt_is_not_forgotten),
		TEST(a_lapsed_lease_is_doubt_and_its_owner_may_still_complete),
		TEST(a_stale_owner_is_told_that_it_lost_and_changes_nothing),
		TEST(what_was_never_claimed_cannot_be_settled),
		TEST(a_claim_made_twice_with_one_tag_is_one_claim),
		TEST(a_settlement_made_twice_with_one_tag_is_recorded_once),
		TEST(an_owner_who_did_not_hear_of_its_own_renewal_is_still_the_owner),
		TEST(answers_of_every_size_come_back_byte_for_byte),
		TEST(only_who_wants_the_answer_and_brings_its_request_gets_it),
		TEST(an_answer_is_kept_for_its_time_and_then_as_if_it_had_never_been),
		TEST(reading_neither_shortens_nor_lengthens_the_time_of_a_cell),
		TEST(a_dead_owners_key_is_in_doubt_for_the_whole_time_after_its_lease),
		TEST(doubt_is_over_after_its_time),
		TEST(renewal_keeps_the_owner_and_starts_the_age_again),
		TEST(a_lapsed_lease_can_be_renewed_while_nobody_took_over),
		TEST(what_is_stored_outlives_the_handle_that_stored_it),
		TEST(of_many_processes_exactly_one_executes_each_key),
	};

	return cmocka_run_group_tests_name(fixture->name, tests, NULL, NULL);
}
