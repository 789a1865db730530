/* The protocol's steps, one by one, against a store in virtual time. */
#include "sim.h"

struct world {
	struct sim_loop loop;
	struct sim_store store;
	unsigned seed;
	struct idem_policy policy;
};

static struct world
world_make(void)
{
	struct world world = {.loop = sim_loop_make(), .seed = 1, .policy = {1000, 60000, false}};

	return world;
}

#define WORLD(name)                                                                                          \
	struct world name = world_make();                                                                    \
	name.store = sim_store_make(&name.loop)

static struct idem_op
op_make(struct world *world, enum idem_verb verb, char request)
{
	struct idem_op op = {.verb = verb, .policy = world->policy};

	memset(op.id.b, 7, sizeof op.id.b);
	memset(op.fingerprint.b, request, sizeof op.fingerprint.b);
	assert_ok(sim_random(&world->seed, op.fresh.b, sizeof op.fresh.b));
	return op;
}

static void
perform(struct world *world, struct idem_op *op)
{
	struct idem_io io = {0};
	bool more = idem_step(op, NULL, &io);

	while (more) {
		assert_int_equal(world->store.base.ops->cas(&world->store.base, &io), IDEM_OK);
		more = idem_step(op, &io, &io);
	}
}

static struct idem_op
claim(struct world *world, char request)
{
	struct idem_op op = op_make(world, IDEM_CLAIM, request);

	perform(world, &op);
	return op;
}

static enum idem_verdict
settle(struct world *world, enum idem_verb verb, struct idem_op *won, const char *payload)
{
	struct idem_op op = op_make(world, verb, (char)won->fingerprint.b[0]);

	op.owner = won->won;
	op.attempt = won->attempt;
	op.payload = bytes_of(payload);
	perform(world, &op);
	assert_ok(op.status);
	if (verb == IDEM_RENEW && op.verdict == IDEM_RECORDED)
		won->won = op.won;
	return op.verdict;
}

static void
the_first_executes_and_the_others_are_told_to_wait(void **state)
{
	WORLD(world);
	struct idem_op first = claim(&world, 'a'), second;

	(void)state;
	assert_int_equal(first.verdict, IDEM_EXECUTE);
	assert_int_equal(first.attempt, 1);
	assert_memory_equal(&first.won, &first.fresh, sizeof first.won);
	sim_pass(&world.loop, 400);
	second = claim(&world, 'a');
	assert_int_equal(second.verdict, IDEM_IN_PROGRESS);
	assert_int_equal(second.wait_ms, 600);
}

static void
a_completed_request_is_replayed_until_its_ttl_is_over(void **state)
{
	WORLD(world);
	struct idem_op first = claim(&world, 'a'), later;

	(void)state;
	sim_pass(&world.loop, 900);
	assert_int_equal(settle(&world, IDEM_COMPLETE, &first, "done"), IDEM_RECORDED);
	sim_pass(&world.loop, 59999);
	later = claim(&world, 'a');
	assert_int_equal(later.verdict, IDEM_REPLAY);
	assert_memory_equal(later.found.payload.data, "done", 4);
	sim_pass(&world.loop, 1);
	assert_int_equal(claim(&world, 'a').verdict, IDEM_EXECUTE);
}

static void
a_mismatch_is_found_in_every_state_and_shows_nothing(void **state)
{
	WORLD(world);
	struct idem_op first = claim(&world, 'a'), other;
	static const struct idem_cell nothing;

	(void)state;
	for (int i = 0; i < 3; i++) {
		other = claim(&world, 'b');
		assert_int_equal(other.verdict, IDEM_MISMATCH);
		assert_memory_equal(&other.found, &nothing, sizeof nothing);
		if (i == 0)
			assert_int_equal(settle(&world, IDEM_GIVE_UP, &first, ""), IDEM_RECORDED);
		if (i == 1) {
			world.policy.retry_in_doubt = true;
			first = claim(&world, 'a');
			assert_int_equal(first.attempt, 2);
			assert_int_equal(settle(&world, IDEM_COMPLETE, &first, "x"), IDEM_RECORDED);
		}
	}
	assert_int_equal(claim(&world, 'a').verdict, IDEM_REPLAY);
}

static void
a_broken_lease_is_in_doubt_and_its_owner_may_still_complete(void **state)
{
	WORLD(world);
	struct idem_op first = claim(&world, 'a');

	(void)state;
	sim_pass(&world.loop, 1000);
	assert_int_equal(claim(&world, 'a').verdict, IDEM_IN_DOUBT);
	assert_int_equal(settle(&world, IDEM_COMPLETE, &first, "late"), IDEM_RECORDED);
	assert_int_equal(claim(&world, 'a').verdict, IDEM_REPLAY);
}

static void
a_dead_owners_key_stays_in_doubt_for_the_ttl(void **state)
{
	WORLD(world);

	(void)state;
	(void)claim(&world, 'a');
	sim_pass(&world.loop, 60999);
	assert_int_equal(claim(&world, 'a').verdict, IDEM_IN_DOUBT);
	sim_pass(&world.loop, 1);
	assert_int_equal(claim(&world, 'a').verdict, IDEM_EXECUTE);
}

static void
under_retry_a_broken_lease_is_taken_over_and_the_stale_owner_is_lost(void **state)
{
	WORLD(world);
	struct idem_op first, second;

	(void)state;
	world.policy.retry_in_doubt = true;
	first = claim(&world, 'a');
	sim_pass(&world.loop, 1000);
	second = claim(&world, 'a');
	assert_int_equal(second.verdict, IDEM_EXECUTE);
	assert_int_equal(second.attempt, 2);
	assert_int_equal(settle(&world, IDEM_COMPLETE, &first, "stale"), IDEM_LOST);
	assert_int_equal(settle(&world, IDEM_RELEASE, &first, ""), IDEM_LOST);
	assert_int_equal(settle(&world, IDEM_RENEW, &first, ""), IDEM_LOST);
	assert_int_equal(settle(&world, IDEM_GIVE_UP, &first, ""), IDEM_LOST);
	assert_int_equal(settle(&world, IDEM_COMPLETE, &second, "fresh"), IDEM_RECORDED);
	assert_int_equal(settle(&world, IDEM_RENEW, &second, ""), IDEM_LOST);
	assert_memory_equal(claim(&world, 'a').found.payload.data, "fresh", 5);
}

static void
a_renewed_lease_is_not_broken(void **state)
{
	WORLD(world);
	struct idem_op first = claim(&world, 'a');

	(void)state;
	for (int i = 0; i < 10; i++) {
		sim_pass(&world.loop, 900);
		assert_int_equal(settle(&world, IDEM_RENEW, &first, ""), IDEM_RECORDED);
		assert_int_equal(claim(&world, 'a').wait_ms, 1000);
	}
	assert_int_equal(settle(&world, IDEM_COMPLETE, &first, ""), IDEM_RECORDED);
}

static void
a_released_key_is_new_but_not_if_an_earlier_attempt_is_unknown(void **state)
{
	WORLD(world);
	struct idem_op op = claim(&world, 'a');

	(void)state;
	assert_int_equal(settle(&world, IDEM_RELEASE, &op, ""), IDEM_RECORDED);
	op = claim(&world, 'b');
	assert_int_equal(op.attempt, 1);
	assert_int_equal(settle(&world, IDEM_GIVE_UP, &op, ""), IDEM_RECORDED);
	world.policy.retry_in_doubt = true;
	op = claim(&world, 'b');
	assert_int_equal(op.attempt, 2);
	assert_int_equal(settle(&world, IDEM_RELEASE, &op, ""), IDEM_RECORDED);
	world.policy.retry_in_doubt = false;
	assert_int_equal(claim(&world, 'b').verdict, IDEM_IN_DOUBT);
	world.policy.retry_in_doubt = true;
	assert_int_equal(claim(&world, 'b').attempt, 3);
}

/* Performs an op whose first reply is lost, as the guard would: the same io again. */
static struct idem_op
with_a_lost_reply(struct world *world, struct idem_op op, enum sim_fault fault)
{
	struct idem_io io = {0};

	world->store.faults[world->store.calls] = fault;
	assert_true(idem_step(&op, NULL, &io));
	assert_int_equal(world->store.base.ops->cas(&world->store.base, &io), IDEM_OK);
	assert_false(idem_step(&op, &io, &io));
	assert_int_equal(op.status, IDEM_E_INDOUBT);
	do
		assert_int_equal(world->store.base.ops->cas(&world->store.base, &io), IDEM_OK);
	while (idem_step(&op, &io, &io));
	assert_ok(op.status);
	return op;
}

static void
every_step_may_be_repeated_when_its_reply_was_lost(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_RENEW, IDEM_GIVE_UP};
	static const enum sim_fault faults[] = {SIM_LOSE_BEFORE, SIM_LOSE_AFTER};

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		WORLD(world);
		struct idem_op won, op;

		won = with_a_lost_reply(&world, op_make(&world, IDEM_CLAIM, 'a'), faults[i % 2]);
		assert_int_equal(won.verdict, IDEM_EXECUTE);
		assert_int_equal(won.attempt, 1);
		op = op_make(&world, verbs[i / 2], 'a');
		op.owner = won.won;
		op.attempt = won.attempt;
		op = with_a_lost_reply(&world, op, faults[i % 2]);
		assert_int_equal(op.verdict, IDEM_RECORDED);
	}
}

static void
an_error_is_no_verdict(void **state)
{
	WORLD(world);
	struct idem_op op = op_make(&world, IDEM_CLAIM, 'a');

	(void)state;
	world.store.faults[0] = SIM_UNAVAILABLE;
	perform(&world, &op);
	assert_int_equal(op.status, IDEM_E_UNAVAILABLE);
	assert_int_equal(op.verdict, IDEM_UNDECIDED);
}

static void
payloads_are_asked_for_by_claims_alone(void **state)
{
	WORLD(world);
	struct idem_op op = op_make(&world, IDEM_CLAIM, 'a');
	struct idem_io io = {0};

	(void)state;
	assert_true(idem_step(&op, NULL, &io));
	assert_true(io.want_payload);
	op = op_make(&world, IDEM_COMPLETE, 'a');
	assert_true(idem_step(&op, NULL, &io));
	assert_false(io.want_payload);
}

static void
verdicts_have_names(void **state)
{
	(void)state;
	assert_string_equal(idem_verdict_name(IDEM_IN_PROGRESS), "in_progress");
	assert_string_equal(idem_verdict_name((enum idem_verdict)99), "invalid");
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_executes_and_the_others_are_told_to_wait),
		cmocka_unit_test(a_completed_request_is_replayed_until_its_ttl_is_over),
		cmocka_unit_test(a_mismatch_is_found_in_every_state_and_shows_nothing),
		cmocka_unit_test(a_broken_lease_is_in_doubt_and_its_owner_may_still_complete),
		cmocka_unit_test(a_dead_owners_key_stays_in_doubt_for_the_ttl),
		cmocka_unit_test(under_retry_a_broken_lease_is_taken_over_and_the_stale_owner_is_lost),
		cmocka_unit_test(a_renewed_lease_is_not_broken),
		cmocka_unit_test(a_released_key_is_new_but_not_if_an_earlier_attempt_is_unknown),
		cmocka_unit_test(every_step_may_be_repeated_when_its_reply_was_lost),
		cmocka_unit_test(an_error_is_no_verdict),
		cmocka_unit_test(payloads_are_asked_for_by_claims_alone),
		cmocka_unit_test(verdicts_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
