/* The memory store, while its users are killed. */
#include "../support/test.h"
#include "kills.h"
#include "memory_world.h"

static struct idem_store *
open_store(void *data, struct idem_loop *loop)
{
	const struct memory_world *world = data;
	struct idem_memory_options options = {.region = world->region, .len = world->len, .loop = loop};
	struct idem_store *store = NULL;

	return idem_memory_open(&options, &store) == IDEM_OK ? store : NULL;
}

static void
no_kill_damages_the_store_or_changes_an_answer(void **state)
{
	struct memory_world world;
	struct kills kills = {
		.open = open_store, .verify = idem_memory_verify, .data = &world, .instants_us = 4000};

	(void)state;
	assert_true(memory_world_make(&world, (size_t)4 << 20));
	kills_run(&kills);
	memory_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_kill_damages_the_store_or_changes_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
