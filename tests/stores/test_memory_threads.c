/* Threads with a handle each race for the same keys; a build with TSan looks on. */
#include <pthread.h>

#include "../support/test.h"
#include "memory_world.h"
#include "race.h"

#define THREADS 4
#define KEYS 10000

struct runner {
	pthread_t thread;
	struct memory_world *world;
	struct race *race;
	bool fine;
};

static void *
run(void *data)
{
	struct runner *runner = data;
	struct actor actor = {.store = memory_world_open(runner->world, NULL)};

	if (actor.store == NULL)
		return NULL;
	runner->fine = race_run(runner->race, &actor);
	idem_store_close(actor.store);
	return NULL;
}

static void
of_many_threads_exactly_one_executes_each_key(void **state)
{
	struct runner runners[THREADS];
	struct memory_world world;
	struct race *race = race_make(1, KEYS, THREADS, 60000);

	(void)state;
	assert_non_null(race);
	assert_true(memory_world_make(&world, (size_t)16 << 20));
	for (int i = 0; i < THREADS; i++) {
		runners[i] = (struct runner){.world = &world, .race = race};
		assert_int_equal(pthread_create(&runners[i].thread, NULL, run, &runners[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(runners[i].thread, NULL), 0);
		assert_true(runners[i].fine);
	}
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
