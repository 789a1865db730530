/* Threads with a handle each race for the same keys; a build with TSan looks on. */
#include "../support/test.h"
#include "memory_world.h"
#include "race.h"

#define THREADS 4
#define KEYS 10000

static struct idem_store *
open_store(void *world, struct idem_loop *loop)
{
	return memory_world_open(world, loop);
}

static void
of_many_threads_exactly_one_executes_each_key(void **state)
{
	struct memory_world world;
	struct race *race = race_make(1, KEYS, THREADS, 60000);

	(void)state;
	assert_non_null(race);
	assert_true(memory_world_make(&world, (size_t)16 << 20));
	assert_true(race_in_threads(race, open_store, &world));
	assert_int_equal(race_wrong(race), 0);
	memory_world_free(&world);
	race_free(race);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_threads_exactly_one_executes_each_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
