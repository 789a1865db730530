/* Threads with a handle each, which share an environment and its writer; a build with TSan looks on. */
#include "../support/test.h"
#include "lmdb_world.h"
#include "race.h"

#define THREADS 4
#define KEYS 1500

static struct idem_store *
open_store(void *world, struct idem_loop *loop)
{
	struct idem_lmdb_options options = lmdb_world_options(world, loop);
	struct idem_store *store = NULL;
	char why[512];

	options.report = NULL; /* the world is for one thread */
	return idem_lmdb_open(&options, &store, why, sizeof why) == IDEM_OK ? store : NULL;
}

static void
of_many_threads_exactly_one_executes_each_key(void **state)
{
	static const enum idem_lmdb_sync syncs[] = {IDEM_LMDB_SYNC_FULL, IDEM_LMDB_SYNC_COMPLETION,
	                                            IDEM_LMDB_SYNC_PROCESS};

	(void)state;
	for (size_t sync = 0; sync < sizeof syncs / sizeof *syncs; sync++) {
		struct race *race = race_make(1, KEYS, THREADS, 60000);
		struct lmdb_world world;

		assert_non_null(race);
		assert_true(lmdb_world_make(&world, (size_t)32 << 20, syncs[sync]));
		assert_true(race_in_threads(race, open_store, &world));
		assert_int_equal(race_wrong(race), 0);
		lmdb_world_free(&world);
		race_free(race);
	}
}

static void
never(struct idem_io *io)
{
	(void)io;
	fail_msg("it was cancelled");
}

static void
a_handle_may_be_closed_while_its_writes_are_under_way(void **state)
{
	struct lmdb_world world;
	struct idem_loop *loop;
	struct idem_store *other;
	static struct idem_io all[200];

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
	assert_ok(idem_poll_loop_new(&loop));
	other = open_store(&world, loop);
	assert_non_null(other);
	for (unsigned i = 0; i < 200; i++) {
		struct request request = actor_request(i, 1000, 100000);
		struct idem_store *store = open_store(&world, loop);
		struct idem_io *io = &all[i];

		assert_non_null(store);
		*io = (struct idem_io){.id = request.id, .done = never};
		io->write = (struct idem_cell){.tag = actor_tag(), .state = IDEM_LOCKED, .attempt = 1};
		io->write.retain_ms = io->write.lease_ms = 1000;
		assert_int_equal(store->ops->cas(store, io), IDEM_PENDING);
		idem_store_close(store);
	}
	idem_store_close(other); /* the last one waits for what is queued */
	other = open_store(&world, loop);
	for (unsigned i = 0; i < 200; i++) {
		struct request request = actor_request(i, 1000, 100000);
		struct actor actor = {other, loop};

		request.fingerprint = (struct idem_fingerprint){{0}};
		assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_IN_PROGRESS);
	}
	idem_store_close(other);
	idem_poll_loop_free(loop);
	lmdb_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_threads_exactly_one_executes_each_key),
		cmocka_unit_test(a_handle_may_be_closed_while_its_writes_are_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
