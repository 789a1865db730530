/* A memory store that is full: what it refuses, what it keeps, and that room comes back. */
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES ((size_t)1 << 20)
#define LEASE_MS 60000
#define TTL_MS 3600000

struct stage {
	struct memory_world world;
	struct actor actor;
};

static int
open_stage(void **state)
{
	static struct stage stage;

	*state = &stage;
	if (!memory_world_make(&stage.world, REGION_BYTES))
		return -1;
	stage.actor.store = memory_world_open(&stage.world, NULL);
	return stage.actor.store != NULL ? 0 : -1;
}

static int
close_stage(void **state)
{
	struct stage *stage = *state;
	char fault[128] = "";

	assert_int_equal(idem_memory_verify(stage->actor.store, fault, sizeof fault), IDEM_OK);
	idem_store_close(stage->actor.store);
	memory_world_free(&stage->world);
	return 0;
}

static struct request
key(uint64_t number)
{
	return actor_request(number, LEASE_MS, TTL_MS);
}

static int
complete(struct actor *actor, uint64_t number, const struct claim *claim, size_t len)
{
	struct request request = key(number);
	void *bytes = payload_make(number, len);
	int verdict = actor_complete(actor, &request, claim, (struct idem_bytes){bytes, len});

	free(bytes);
	return verdict;
}

/* Claims and completes; EXECUTE's successor RECORDED, or what came instead. */
static int
execute(struct actor *actor, uint64_t number, size_t len)
{
	struct request request = key(number);
	struct claim claim;
	int verdict = actor_claim(actor, &request, &claim);

	return verdict == IDEM_EXECUTE ? complete(actor, number, &claim, len) : verdict;
}

static void
assert_replays(struct actor *actor, uint64_t number, size_t len)
{
	struct request request = key(number);
	struct claim claim;

	assert_int_equal(actor_claim(actor, &request, &claim), IDEM_REPLAY);
	assert_true(payload_is(claim.found.payload, number, len));
	claim_free(&claim);
}

static struct idem_memory_usage
usage(struct stage *stage)
{
	struct idem_memory_usage now;

	assert_ok(idem_memory_usage(stage->actor.store, &now));
	return now;
}

/* How many were recorded before the store refused a new key. */
static uint64_t
fill(struct stage *stage, uint64_t first, size_t len)
{
	uint64_t number = first;
	int verdict;

	while ((verdict = execute(&stage->actor, number, len)) == IDEM_RECORDED)
		number++;
	assert_int_equal(verdict, IDEM_E_FULL);
	assert_true(number > first);
	return number - first;
}

static void
a_full_store_refuses_new_keys_and_loses_none_that_it_has(void **state)
{
	struct stage *stage = *state;
	uint64_t count = fill(stage, 1, 500), cells = usage(stage).cells;
	struct request refused = key(count + 1);

	assert_int_equal(cells, count);
	for (int i = 0; i < 100; i++)
		assert_int_equal(actor_claim(&stage->actor, &refused, NULL), IDEM_E_FULL);
	assert_int_equal(usage(stage).cells, cells);
	for (uint64_t number = 1; number <= count; number++)
		assert_replays(&stage->actor, number, 500);
	/* Nothing was written of the one that was refused: it is new once there is room. */
	memory_world_advance(&stage->world, TTL_MS);
	assert_int_equal(actor_claim(&stage->actor, &refused, NULL), IDEM_EXECUTE);
}

static void
what_runs_already_is_completed_from_the_spare_sixteenth(void **state)
{
	enum { RUNNING = 20 };
	struct stage *stage = *state;
	struct request running[RUNNING];
	struct claim claims[RUNNING];
	/* As much as a sixteenth has for each of them, and a little less for their last blocks. */
	size_t len = (size_t)usage(stage).bytes_total / 16 / RUNNING * 9 / 10;

	for (uint64_t i = 0; i < RUNNING; i++) {
		running[i] = key(1 + i);
		assert_int_equal(actor_claim(&stage->actor, &running[i], &claims[i]), IDEM_EXECUTE);
	}
	(void)fill(stage, 1000, 0);
	for (uint64_t i = 0; i < RUNNING; i++)
		assert_int_equal(complete(&stage->actor, 1 + i, &claims[i], len), IDEM_RECORDED);
	for (uint64_t i = 0; i < RUNNING; i++)
		assert_replays(&stage->actor, 1 + i, len);
}

static void
an_answer_with_no_room_is_refused_and_a_shorter_one_taken(void **state)
{
	struct stage *stage = *state;
	struct request running = key(1);
	struct claim claim;

	assert_int_equal(actor_claim(&stage->actor, &running, &claim), IDEM_EXECUTE);
	(void)fill(stage, 1000, 0);
	assert_int_equal(complete(&stage->actor, 1, &claim, REGION_BYTES / 8), IDEM_E_FULL);
	assert_int_equal(complete(&stage->actor, 1, &claim, 2 * REGION_BYTES), IDEM_E_FULL);
	assert_int_equal(actor_claim(&stage->actor, &running, NULL), IDEM_IN_PROGRESS);
	assert_int_equal(actor_renew(&stage->actor, &running, &claim), IDEM_RECORDED);
	assert_int_equal(complete(&stage->actor, 1, &claim, 100), IDEM_RECORDED);
	assert_replays(&stage->actor, 1, 100);
}

static void
a_full_store_still_lets_owners_release_and_give_up(void **state)
{
	struct stage *stage = *state;
	struct request released = key(1), given_up = key(2);
	struct claim first, second;

	assert_int_equal(actor_claim(&stage->actor, &released, &first), IDEM_EXECUTE);
	assert_int_equal(actor_claim(&stage->actor, &given_up, &second), IDEM_EXECUTE);
	(void)fill(stage, 1000, 300);
	assert_int_equal(actor_settle(&stage->actor, &given_up, &second, IDEM_GIVE_UP, bytes_of("")),
	                 IDEM_RECORDED);
	assert_int_equal(actor_settle(&stage->actor, &released, &first, IDEM_RELEASE, bytes_of("")),
	                 IDEM_RECORDED);
	assert_int_equal(actor_claim(&stage->actor, &given_up, NULL), IDEM_IN_DOUBT);
}

/* Also where few large answers hold all the room, and the new key's shard holds none of them. */
static void
once_what_filled_it_is_over_every_new_key_finds_room(void **state)
{
	static const size_t sizes[] = {0, 500, 60000, 300000};
	struct stage *stage = *state;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		for (uint64_t number = 0; number < 70; number++) {
			assert_true(memory_world_format(&stage->world));
			(void)fill(stage, 1, sizes[i]);
			memory_world_advance(&stage->world, TTL_MS + LEASE_MS);
			assert_int_equal(execute(&stage->actor, 100000 + number, 100), IDEM_RECORDED);
			assert_replays(&stage->actor, 100000 + number, 100);
		}
	}
}

static void
an_answer_of_a_running_request_finds_the_room_of_what_is_over(void **state)
{
	struct stage *stage = *state;
	struct request running = key(100000);
	struct claim claim;

	(void)fill(stage, 1, 60000);
	memory_world_advance(&stage->world, TTL_MS + LEASE_MS);
	assert_int_equal(actor_claim(&stage->actor, &running, &claim), IDEM_EXECUTE);
	assert_int_equal(complete(&stage->actor, 100000, &claim, 600000), IDEM_RECORDED);
	assert_replays(&stage->actor, 100000, 600000);
}

static void
many_rounds_of_answers_of_random_sizes_leave_no_block_behind(void **state)
{
	struct stage *stage = *state;
	uint64_t number = 1, base = usage(stage).bytes_used;
	unsigned seed = 1;

	assert_int_equal(base, 0);
	for (int round = 0; round < 300; round++) {
		uint64_t first = number;
		size_t lens[200];
		int verdict;

		do {
			lens[number - first] = 10000 + (size_t)rand_r(&seed) % 90000;
			verdict = execute(&stage->actor, number, lens[number - first]);
			number++;
		} while (verdict == IDEM_RECORDED);
		assert_int_equal(verdict, IDEM_E_FULL);
		/* Half a region at the least: room that is free is room that is found. */
		assert_true(usage(stage).bytes_used > REGION_BYTES / 2);
		for (uint64_t i = first; i + 1 < number; i++)
			assert_replays(&stage->actor, i, lens[i - first]);
		memory_world_advance(&stage->world, TTL_MS + LEASE_MS);
	}
	/* Every shard is written to until its hand has been everywhere. */
	for (uint64_t i = 0; i < 4000; i++) {
		struct request request = key(1000000 + i);
		struct claim claim;

		assert_int_equal(actor_claim(&stage->actor, &request, &claim), IDEM_EXECUTE);
		assert_int_equal(actor_settle(&stage->actor, &request, &claim, IDEM_RELEASE, bytes_of("")),
		                 IDEM_RECORDED);
	}
	assert_int_equal(usage(stage).cells, 0);
	assert_int_equal(usage(stage).bytes_used, base);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_full_store_refuses_new_keys_and_loses_none_that_it_has),
		TEST(what_runs_already_is_completed_from_the_spare_sixteenth),
		TEST(an_answer_with_no_room_is_refused_and_a_shorter_one_taken),
		TEST(a_full_store_still_lets_owners_release_and_give_up),
		TEST(once_what_filled_it_is_over_every_new_key_finds_room),
		TEST(an_answer_of_a_running_request_finds_the_room_of_what_is_over),
		TEST(many_rounds_of_answers_of_random_sizes_leave_no_block_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
