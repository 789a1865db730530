/* The LMDB store, while its users are killed: their locks, their places among the readers, their half-made
 * commits. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "actor.h"
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

/* Lets the file grow until it is killed, or its parent ends. */
static int
grow(struct lmdb_world *world)
{
	static uint8_t bytes[20000];
	struct actor actor = {0};

	if (idem_poll_loop_new(&actor.loop) == IDEM_OK)
		actor.store = open_store(world, actor.loop);
	for (uint64_t key = 0; actor.store != NULL && getppid() != 1; key++) {
		struct request request = actor_request(key, 60000, 3600000);
		struct claim claim;

		if (actor_claim(&actor, &request, &claim) != IDEM_EXECUTE ||
		    actor_complete(&actor, &request, &claim, (struct idem_bytes){bytes, sizeof bytes}) !=
		            IDEM_RECORDED)
			break;
	}
	return 1;
}

static void
who_opens_a_file_that_grows_does_not_take_it_for_damaged(void **state)
{
	struct lmdb_world world;
	struct idem_lmdb_options options;
	pid_t writers[2];

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)4 << 30, IDEM_LMDB_SYNC_PROCESS));
	options = lmdb_world_options(&world, NULL);
	options.clock_ms = NULL;
	for (int i = 0; i < 2; i++) {
		writers[i] = fork();
		assert_true(writers[i] >= 0);
		if (writers[i] == 0)
			_exit(grow(&world));
	}
	for (int i = 0; i < 2000; i++)
		if (idem_lmdb_check(&options, world.why, sizeof world.why) != IDEM_OK)
			fail_msg("%s", world.why);
	for (int i = 0; i < 2; i++) {
		int status;

		assert_int_equal(kill(writers[i], SIGKILL), 0);
		assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
	}
	lmdb_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_kill_damages_the_store_or_changes_an_answer),
		cmocka_unit_test(who_opens_a_file_that_grows_does_not_take_it_for_damaged),
		cmocka_unit_test(nor_where_nobody_waits_for_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
