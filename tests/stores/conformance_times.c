/* What every store promises about time: leases, ages, and the end of a cell. */
#include "conformance_scene.h"

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
	for (int i = 0; i < 6; i++) {
		struct request short_lived = request;

		short_lived.policy.ttl_ms = 1;
		pass(&scene, (TTL - 2) / 6);
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

const struct promise conformance_times[] = {
	PROMISE(an_answer_is_kept_for_its_time_and_then_as_if_it_had_never_been),
	PROMISE(reading_neither_shortens_nor_lengthens_the_time_of_a_cell),
	PROMISE(a_dead_owners_key_is_in_doubt_for_the_whole_time_after_its_lease),
	PROMISE(doubt_is_over_after_its_time),
	PROMISE(renewal_keeps_the_owner_and_starts_the_age_again),
	PROMISE(a_lapsed_lease_can_be_renewed_while_nobody_took_over),
	{NULL, NULL},
};
