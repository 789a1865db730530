/* Threads with a handle each race for the same keys; a build with TSan looks on. */
#include "../support/test.h"
#include "race.h"
#include "redis_world.h"

#define THREADS 4
#define KEYS 2000
#define TIMEOUT_MS 20000

/* What a world notes is for one thread. */
static struct idem_store *
open_store(void *data, struct idem_loop *loop)
{
	const struct redis_world *world = data;
	const struct idem_redis_options options = {.uri = world->uri, .loop = loop, .timeout_ms = TIMEOUT_MS};
	struct idem_store *store = NULL;
	char why[512];

	return idem_redis_open(&options, &store, why, sizeof why) == IDEM_OK ? store : NULL;
}

static void
race(struct redis_world *world)
{
	struct race *race = race_make(1, KEYS, THREADS, 60000);

	assert_non_null(race);
	assert_true(race_in_threads(race, open_store, world));
	assert_int_equal(race_wrong(race), 0);
	race_free(race);
}

static void
of_many_threads_exactly_one_executes_each_key(void **state)
{
	struct redis_world world;

	(void)state;
	redis_world_make(&world, NULL);
	race(&world);
	redis_world_free(&world);
}

/* Then each handle has threads of its own, which look up names. */
static void
also_when_names_are_looked_up(void **state)
{
	struct redis_world world;

	(void)state;
	redis_world_make(&world, NULL);
	(void)snprintf(world.uri, sizeof world.uri, "redis://localhost:%u?connections=4", world.server.port);
	race(&world);
	redis_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_threads_exactly_one_executes_each_key),
		cmocka_unit_test(also_when_names_are_looked_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
