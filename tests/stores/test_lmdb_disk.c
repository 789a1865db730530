/* Disks that fail or are full: nothing is lost, nothing is said to be stored that is not, and it ends by
 * itself. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "crowd.h"
#include "disk.h"
#include "lmdb_world.h"

struct bench {
	struct lmdb_world world;
	struct crowd crowd;
};

static void
set_up(struct bench *bench, enum idem_lmdb_sync sync, size_t size)
{
	char name[128];

	memset(bench, 0, sizeof *bench);
	assert_true(lmdb_world_make(&bench->world, size, sync));
	assert_ok(idem_poll_loop_new(&bench->crowd.actor.loop));
	bench->crowd.actor.store = lmdb_world_open(&bench->world, bench->crowd.actor.loop);
	assert_non_null(bench->crowd.actor.store);
	(void)snprintf(name, sizeof name, "%s/data.mdb", bench->world.path);
	disk_watch(name);
}

static void
tear_down(struct bench *bench)
{
	char fault[512] = "";

	assert_int_equal(idem_lmdb_verify(bench->crowd.actor.store, fault, sizeof fault), IDEM_OK);
	idem_store_close(bench->crowd.actor.store);
	idem_poll_loop_free(bench->crowd.actor.loop);
	lmdb_world_free(&bench->world);
}

/* Each key is what its owner was told. */
static void
check_keys(struct actor *actor, const struct crowd *crowd)
{
	for (uint64_t key = 0; key < crowd->keys; key++) {
		enum note told = (enum note)crowd->notes[key], found = crowd_ask(actor, key);

		switch (told) {
		case NOTE_COMPLETED:
		case NOTE_CLAIMED:
			assert_int_equal(found, told);
			break;
		case NOTE_REFUSED:
			assert_int_equal(found, NOTE_NOTHING);
			break;
		case NOTE_UNKNOWN:
			assert_true(found == NOTE_NOTHING || found == NOTE_CLAIMED);
			break;
		case NOTE_CLAIMED_UNKNOWN:
			assert_true(found == NOTE_CLAIMED || found == NOTE_COMPLETED);
			break;
		default:
			fail_msg("key %u had no answer", (unsigned)key);
		}
	}
}

static void
break_and_mend(struct bench *bench, enum disk_fault fault)
{
	assert_true(crowd_run(&bench->crowd, 200));
	assert_int_equal(bench->crowd.refused + bench->crowd.unknown, 0);
	disk_break(fault);
	assert_true(crowd_run(&bench->crowd, 400));
	assert_true(disk_struck() > 0);
	assert_true(bench->crowd.refused + bench->crowd.unknown > 0);
	disk_break(DISK_FINE);
	bench->crowd.refused = bench->crowd.unknown = 0;
}

/* It may take a moment until the files were opened again. */
static void
assert_works_again(struct bench *bench)
{
	uint64_t before;

	for (int i = 0; i < 100; i++) {
		before = bench->crowd.refused + bench->crowd.unknown;
		assert_true(crowd_run(&bench->crowd, bench->crowd.keys + 5));
		if (bench->crowd.refused + bench->crowd.unknown == before)
			return;
		assert_int_equal(idem_poll_loop_run(bench->crowd.actor.loop, NULL, 50), IDEM_PENDING);
	}
	fail_msg("it does not recover: %s", bench->world.report);
}

static void
a_failed_fsync_acknowledges_nothing_and_the_next_one_heals(void **state)
{
	static const enum idem_lmdb_sync syncs[] = {IDEM_LMDB_SYNC_FULL, IDEM_LMDB_SYNC_COMPLETION};
	static const enum disk_fault faults[] = {DISK_SYNC_FAILS, DISK_WRITE_FAILS};
	struct bench bench;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		/* with completion, meta pages are not written through O_DSYNC */
		if (syncs[i / 2] == IDEM_LMDB_SYNC_COMPLETION && faults[i % 2] == DISK_WRITE_FAILS)
			continue;
		set_up(&bench, syncs[i / 2], (size_t)8 << 20);
		break_and_mend(&bench, faults[i % 2]);
		assert_non_null(strstr(bench.world.report, "data.mdb"));
		assert_works_again(&bench);
		check_keys(&bench.crowd.actor, &bench.crowd);
		tear_down(&bench);
	}
}

/* What is stored is still replayed, and completions find the pages that were kept for them. */
static void
a_full_disk_refuses_new_keys_and_damages_nothing(void **state)
{
	struct bench bench;

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_FULL, (size_t)64 << 20);
	break_and_mend(&bench, DISK_IS_FULL);
	if (strstr(bench.world.report, "its file system") == NULL)
		fail_msg("%s", bench.world.report);
	assert_int_equal(bench.crowd.unknown, 0);
	assert_works_again(&bench);
	assert_non_null(strstr(bench.world.report, "works again"));
	check_keys(&bench.crowd.actor, &bench.crowd);
	tear_down(&bench);
}

/* Another process makes the map larger than this one can: LMDB has given the old one away by then. */
static int
fill_in_child(struct bench *bench)
{
	struct crowd crowd = {.keys = 1000};
	struct lmdb_world world = bench->world;

	disk_break(DISK_FINE);
	world.size = (size_t)64 << 20;
	if (idem_poll_loop_new(&crowd.actor.loop) != IDEM_OK)
		return 1;
	crowd.actor.store = lmdb_world_open(&world, crowd.actor.loop);
	if (crowd.actor.store == NULL || !crowd_run(&crowd, 4000) || crowd.refused + crowd.unknown > 0)
		return 1;
	idem_store_close(crowd.actor.store);
	idem_poll_loop_free(crowd.actor.loop);
	return 0;
}

static void
a_map_that_cannot_grow_closes_the_store_until_it_can(void **state)
{
	struct bench bench;
	struct idem_store *larger;
	pid_t child;
	int status;

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_FULL, (size_t)1 << 20);
	assert_true(crowd_run(&bench.crowd, 50));
	disk_break(DISK_MAP_FAILS); /* the sweep may be the first to need the larger map */
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(fill_in_child(&bench));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(crowd_run(&bench.crowd, 100));
	assert_true(disk_struck() > 0);
	assert_int_equal(bench.crowd.refused, 50);
	disk_break(DISK_FINE);
	for (int i = 0; i < 100 && crowd_ask(&bench.crowd.actor, 0) != NOTE_COMPLETED; i++)
		assert_int_equal(idem_poll_loop_run(bench.crowd.actor.loop, NULL, 50), IDEM_PENDING);
	bench.world.size = (size_t)64 << 20; /* alone it had but what it asked for, and that is full */
	larger = lmdb_world_open(&bench.world, bench.crowd.actor.loop);
	assert_non_null(larger);
	assert_works_again(&bench);
	check_keys(&bench.crowd.actor, &bench.crowd);
	idem_store_close(larger);
	tear_down(&bench);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_fsync_acknowledges_nothing_and_the_next_one_heals),
		cmocka_unit_test(a_map_that_cannot_grow_closes_the_store_until_it_can),
		cmocka_unit_test(a_full_disk_refuses_new_keys_and_damages_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
