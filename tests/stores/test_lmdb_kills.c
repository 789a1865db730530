/* The LMDB store, while its users are killed: their locks, their places among the readers, their half-made
 * commits. */
#include "../support/test.h"
#include "kills.h"
#include "lmdb_world.h"

static struct idem_store *
open_store(void *data, struct idem_loop *loop)
{
	struct idem_lmdb_options options = lmdb_world_options(data, loop);
	struct idem_store *store = NULL;
	char why[512];

	options.clock_ms = NULL;
	return idem_lmdb_open(&options, &store, why, sizeof why) == IDEM_OK ? store : NULL;
}

static void
kill_users(enum idem_lmdb_sync sync)
{
	struct lmdb_world world;
	struct kills kills = {
		.open = open_store, .verify = idem_lmdb_verify, .data = &world, .instants_us = 20000};

	assert_true(lmdb_world_make(&world, (size_t)16 << 20, sync));
	kills_run(&kills);
	lmdb_world_free(&world);
}

static void
no_kill_damages_the_store_or_changes_an_answer(void **state)
{
	(void)state;
	kill_users(IDEM_LMDB_SYNC_FULL);
}

static void
nor_where_nobody_waits_for_the_disk(void **state)
{
	(void)state;
	kill_users(IDEM_LMDB_SYNC_PROCESS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_kill_damages_the_store_or_changes_an_answer),
		cmocka_unit_test(nor_where_nobody_waits_for_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
