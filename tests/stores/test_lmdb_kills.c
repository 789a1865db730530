/* The LMDB store, while its users are killed: their locks, their places among the readers, their half-made
 * commits. */
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
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
	if (idem_lmdb_open(&options, &store, why, sizeof why) != IDEM_OK)
		(void)fprintf(stderr, "%s\n", why);
	return store;
}

static void
kill_users(enum idem_lmdb_sync sync)
{
	struct lmdb_world world;
	struct kills kills = {
		.open = open_store, .verify = idem_lmdb_verify, .data = &world, .instants_us = 20000};

	/* Large, because what is written while kills_run() reads all of it takes new pages, however little is
	 * kept. */
	assert_true(lmdb_world_make(&world, (size_t)1 << 30, sync));
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

/* ---- others, who use LMDB itself ---- */

static MDB_txn *
begin_in_lmdb(const struct lmdb_world *world, unsigned flags)
{
	MDB_env *env;
	MDB_txn *txn;

	if (mdb_env_create(&env) != 0 || mdb_env_set_maxdbs(env, 3) != 0 ||
	    mdb_env_set_maxreaders(env, 1022) != 0 || mdb_env_open(env, world->path, 0, 0600) != 0 ||
	    mdb_txn_begin(env, NULL, flags, &txn) != 0)
		return NULL;
	return txn;
}

static pid_t
stop_in_transaction(const struct lmdb_world *world, unsigned flags)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		if (begin_in_lmdb(world, flags) == NULL)
			_exit(1);
		(void)raise(SIGSTOP);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	return child;
}

static void
end(pid_t child)
{
	int status;

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
}

/* nginx -t, a reload, a new worker: none of them may hang because some process does. */
static void
a_process_that_stopped_with_the_lock_keeps_nobody_from_opening(void **state)
{
	struct lmdb_world world;
	struct idem_lmdb_options options;
	struct idem_loop *loop;
	struct idem_store *store;
	pid_t holder, opener;
	int status;

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
	assert_ok(idem_poll_loop_new(&loop));
	store = open_store(&world, loop);
	assert_non_null(store);
	options = lmdb_world_options(&world, NULL);
	holder = stop_in_transaction(&world, 0);
	opener = fork();
	assert_true(opener >= 0);
	if (opener == 0) {
		(void)alarm(10);
		_exit(idem_lmdb_check(&options, world.why, sizeof world.why) != IDEM_OK);
	}
	assert_int_equal(waitpid(opener, &status, 0), opener);
	assert_int_equal(status, 0);
	end(holder);
	idem_store_close(store);
	idem_poll_loop_free(loop);
	lmdb_world_free(&world);
}

/* As mdb_stat(1) lists them. */
static bool
is_reader(const struct lmdb_world *world, pid_t pid)
{
	char command[160], line[160];
	bool found = false;
	FILE *list;

	(void)snprintf(command, sizeof command, "mdb_stat -r %s", world->path);
	list = popen(command, "r");
	assert_non_null(list);
	assert_non_null(fgets(line, sizeof line, list));
	assert_string_equal(line, "Reader Table Status\n");
	while (fgets(line, sizeof line, list) != NULL)
		found |= strtol(line, NULL, 10) == pid;
	assert_int_not_equal(pclose(list), -1); /* with -r alone its exit code says nothing */
	return found;
}

static void
a_reader_that_was_killed_is_forgotten_also_under_load(void **state)
{
	struct lmdb_world world;
	struct actor actor;
	pid_t reader;
	uint64_t key = 0;

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)64 << 20, IDEM_LMDB_SYNC_PROCESS));
	assert_ok(idem_poll_loop_new(&actor.loop));
	actor.store = open_store(&world, actor.loop);
	assert_non_null(actor.store);
	reader = stop_in_transaction(&world, MDB_RDONLY);
	assert_true(is_reader(&world, reader));
	end(reader);
	for (int i = 0; i < 100 && is_reader(&world, reader); i++)
		for (int n = 0; n < 1000; n++) {
			struct request request = actor_request(key++, 60000, 3600000);

			assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_EXECUTE);
		}
	assert_false(is_reader(&world, reader));
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	lmdb_world_free(&world);
}

/* Its pages are had at once when they are needed, before anybody is refused. */
static void
what_a_killed_reader_held_is_no_reason_to_refuse(void **state)
{
	struct lmdb_world world;
	struct actor actor;

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)2 << 20, IDEM_LMDB_SYNC_PROCESS));
	assert_ok(idem_poll_loop_new(&actor.loop));
	actor.store = open_store(&world, actor.loop);
	assert_non_null(actor.store);
	for (int readers = 0; readers < 5; readers++) {
		end(stop_in_transaction(&world, MDB_RDONLY));
		/* The store holds one key at most, but each write takes new pages while the reader holds the
		 * old ones. */
		for (int n = 0; n < 1000; n++) {
			struct request request = actor_request((uint64_t)n, 60000, 3600000);
			struct claim claim;

			assert_int_equal(actor_claim(&actor, &request, &claim), IDEM_EXECUTE);
			assert_int_equal(actor_settle(&actor, &request, &claim, IDEM_RELEASE, bytes_of("")),
			                 IDEM_RECORDED);
		}
	}
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	lmdb_world_free(&world);
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
		cmocka_unit_test(a_process_that_stopped_with_the_lock_keeps_nobody_from_opening),
		cmocka_unit_test(a_reader_that_was_killed_is_forgotten_also_under_load),
		cmocka_unit_test(what_a_killed_reader_held_is_no_reason_to_refuse),
		cmocka_unit_test(who_opens_a_file_that_grows_does_not_take_it_for_damaged),
		cmocka_unit_test(nor_where_nobody_waits_for_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
