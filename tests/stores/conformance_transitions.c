/* What every store promises: each transition of the protocol. */
#include "conformance_scene.h"

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

const struct promise conformance_transitions[] = {
	PROMISE(a_new_key_is_executed_and_its_answer_replayed),
	PROMISE(a_duplicate_of_a_running_request_is_told_how_long_its_lease_is),
	PROMISE(another_request_is_a_mismatch_in_every_state_and_sees_nothing),
	PROMISE(a_released_key_is_as_new),
	PROMISE(a_key_that_was_given_up_stays_in_doubt),
	PROMISE(attempts_are_counted_and_a_key_once_in_doubt_is_not_forgotten),
	PROMISE(a_lapsed_lease_is_doubt_and_its_owner_may_still_complete),
	PROMISE(a_stale_owner_is_told_that_it_lost_and_changes_nothing),
	PROMISE(what_was_never_claimed_cannot_be_settled),
	{NULL, NULL},
};
