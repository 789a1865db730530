/* What is over is removed by later writes, a few cells each, and never before its time. */
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES ((size_t)64 << 20)
#define CELLS 200000
#define DAY_MS 86400000
/* The most that one write may remove besides its own cell. */
#define BOUND 4

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

	if (idem_memory_verify(stage->actor.store, fault, sizeof fault) != IDEM_OK)
		fail_msg("%s", fault);
	idem_store_close(stage->actor.store);
	memory_world_free(&stage->world);
	return 0;
}

static uint64_t
cells(struct stage *stage)
{
	struct idem_memory_usage usage;

	assert_ok(idem_memory_usage(stage->actor.store, &usage));
	return usage.cells;
}

static void
insert(struct stage *stage, uint64_t first, uint64_t count, uint64_t ttl_ms)
{
	for (uint64_t i = 0; i < count; i++) {
		struct request request = actor_request(first + i, 1000, ttl_ms);

		assert_int_equal(actor_claim(&stage->actor, &request, NULL), IDEM_EXECUTE);
	}
}

/* One write: a claim if it is odd, the release of that claim if it is even.  How many cells it removed. */
static uint64_t
write_once(struct stage *stage, uint64_t number)
{
	static struct claim claim;
	struct request request = actor_request(number / 2, 1000, DAY_MS);
	uint64_t before = cells(stage), after;

	if (number % 2 == 0) {
		assert_int_equal(actor_claim(&stage->actor, &request, &claim), IDEM_EXECUTE);
		after = cells(stage);
		return before + 1 - after;
	}
	assert_int_equal(actor_settle(&stage->actor, &request, &claim, IDEM_RELEASE, bytes_of("")),
	                 IDEM_RECORDED);
	after = cells(stage);
	return before - 1 - after;
}

static void
each_write_removes_a_few_of_those_that_are_over_until_none_is_left(void **state)
{
	struct stage *stage = *state;
	uint64_t number = 0;

	insert(stage, 1, CELLS, 60000);
	assert_int_equal(cells(stage), CELLS);
	for (; number < 2000; number++)
		assert_int_equal(write_once(stage, 10000000 + number), 0); /* none is over */
	memory_world_advance(&stage->world, 3 * (uint64_t)DAY_MS);
	for (; cells(stage) > 0 && number < CELLS; number++)
		assert_in_range(write_once(stage, 10000000 + number), 0, BOUND);
	assert_int_equal(cells(stage), 0);
}

static void
the_living_stay_among_the_dead(void **state)
{
	enum { LIVING = 2000, DEAD = 20000 };
	struct stage *stage = *state;

	for (uint64_t i = 0; i < LIVING; i++) {
		insert(stage, 1 + i, 1, 10 * (uint64_t)DAY_MS);
		insert(stage, 1000000 + i * (DEAD / LIVING), DEAD / LIVING, 60000);
	}
	memory_world_advance(&stage->world, 3 * (uint64_t)DAY_MS);
	for (uint64_t number = 0; number < 40000; number++)
		(void)write_once(stage, 20000000 + number);
	assert_int_equal(cells(stage), LIVING);
	for (uint64_t i = 0; i < LIVING; i++) {
		struct request request = actor_request(1 + i, 1000, DAY_MS);

		assert_int_equal(actor_claim(&stage->actor, &request, NULL), IDEM_IN_DOUBT);
	}
}

/* Renewed, completed: each write counts anew, and the sweep must know it. */
static void
a_cell_that_was_written_again_lives_as_long_as_its_last_write_says(void **state)
{
	struct stage *stage = *state;
	struct request request = actor_request(1, 1000, DAY_MS);
	struct claim claim;

	assert_int_equal(actor_claim(&stage->actor, &request, &claim), IDEM_EXECUTE);
	for (int day = 0; day < 5; day++) {
		memory_world_advance(&stage->world, DAY_MS - 1);
		assert_int_equal(actor_renew(&stage->actor, &request, &claim), IDEM_RECORDED);
		for (uint64_t number = 0; number < 40000; number++)
			(void)write_once(stage, 30000000 + number);
	}
	assert_int_equal(actor_complete(&stage->actor, &request, &claim, bytes_of("x")), IDEM_RECORDED);
	memory_world_advance(&stage->world, DAY_MS - 1);
	assert_int_equal(actor_claim(&stage->actor, &request, NULL), IDEM_REPLAY);
}

static void
a_time_beyond_all_counting_is_no_end(void **state)
{
	struct stage *stage = *state;

	for (uint64_t i = 0; i < 2000; i++) {
		insert(stage, 100 + i, 1, UINT64_MAX);
		insert(stage, 100000 + 60 * i, 60, 60000);
	}
	memory_world_advance(&stage->world, 40000 * (uint64_t)DAY_MS);
	for (uint64_t number = 0; number < 200000; number++)
		(void)write_once(stage, 40000000 + number);
	assert_int_equal(cells(stage), 2000);
	for (uint64_t i = 0; i < 2000; i++) {
		struct request request = actor_request(100 + i, 1000, DAY_MS);

		assert_int_equal(actor_claim(&stage->actor, &request, NULL), IDEM_IN_DOUBT);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_write_removes_a_few_of_those_that_are_over_until_none_is_left),
		TEST(the_living_stay_among_the_dead),
		TEST(a_cell_that_was_written_again_lives_as_long_as_its_last_write_says),
		TEST(a_time_beyond_all_counting_is_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
