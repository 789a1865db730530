/*
 * Power cuts, at every instant: while many requests run, copies of data.mdb are made that have only what had
 * been synced, and a random half of the sectors of what had not.  Each is opened afterwards, and held to
 * what had been acknowledged when it was made.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "crowd.h"
#include "disk.h"
#include "lmdb_world.h"

#define CUTS 120
#define EVERY 13 /* steps: all of a commit's have their turn */
#define KEYS 1500

struct cut {
	uint8_t notes[CROWD_KEYS];
	struct lmdb_world world; /* whose store is what was left */
};

struct outage {
	struct crowd crowd;
	struct cut *cuts;
	size_t count;
	enum idem_lmdb_sync sync;
	bool faulty;      /* now and then a sync fails */
	unsigned missing; /* cuts after which something acknowledged was not there */
	unsigned wrong;   /* or was not what it had been */
};

/* In the writer's thread, in the middle of whatever it does. */
static void
cut(uint64_t step, void *data)
{
	struct outage *outage = data;
	struct cut *cut = &outage->cuts[outage->count];
	char name[128];

	if (outage->faulty && step % 101 < 4)
		disk_break(step % 101 < 3 ? DISK_SYNC_FAILS : DISK_FINE);
	if (step % EVERY != 0 || outage->count == CUTS)
		return;
	/* Notes first: what is acknowledged during the copy need not be in it. */
	for (size_t i = 0; i < CROWD_KEYS; i++)
		cut->notes[i] = __atomic_load_n(&outage->crowd.notes[i], __ATOMIC_SEQ_CST);
	if (!lmdb_world_make(&cut->world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL) ||
	    mkdir(cut->world.path, 0700) != 0)
		abort();
	(void)snprintf(name, sizeof name, "%s/data.mdb", cut->world.path);
	if (!disk_cut(name, step))
		abort();
	outage->count++;
}

enum { FINE = 0, MISSING = 1, WRONG = 2 };

static int
check_key(const struct outage *outage, struct actor *actor, enum note promised, uint64_t key)
{
	enum note found = crowd_ask(actor, key);

	if (found == NOTE_UNKNOWN)
		return WRONG;
	if (promised == NOTE_COMPLETED && found != NOTE_COMPLETED)
		return MISSING;
	if (promised == NOTE_CLAIMED && outage->sync == IDEM_LMDB_SYNC_FULL && found != NOTE_CLAIMED &&
	    found != NOTE_COMPLETED)
		return MISSING;
	return FINE;
}

static int
check_store(const struct outage *outage, struct cut *cut)
{
	struct actor actor;
	char fault[512];
	int found = FINE;

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return WRONG;
	actor.store = lmdb_world_open(&cut->world, actor.loop);
	if (actor.store == NULL || idem_lmdb_verify(actor.store, fault, sizeof fault) != IDEM_OK)
		return WRONG;
	for (uint64_t key = 0; key < KEYS; key++)
		if (cut->notes[key] != NOTE_NOTHING)
			found |= check_key(outage, &actor, (enum note)cut->notes[key], key);
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return found;
}

/* In a child: LMDB believes what is in its pages, and falls over one that is half written. */
static void
check_cut(struct outage *outage, struct cut *cut)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)signal(SIGBUS, SIG_DFL);
		(void)signal(SIGABRT, SIG_DFL);
		_exit(check_store(outage, cut));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) & WRONG) != 0)
		outage->wrong++;
	if (WIFEXITED(status) && (WEXITSTATUS(status) & MISSING) != 0)
		outage->missing++;
}

static void
run(struct outage *outage, enum idem_lmdb_sync sync, bool faulty)
{
	struct lmdb_world world;
	char name[128];

	memset(outage, 0, sizeof *outage);
	outage->sync = sync;
	outage->faulty = faulty;
	outage->cuts = calloc(CUTS, sizeof *outage->cuts);
	assert_non_null(outage->cuts);
	assert_true(lmdb_world_make(&world, (size_t)8 << 20, sync));
	assert_ok(idem_poll_loop_new(&outage->crowd.actor.loop));
	outage->crowd.actor.store = lmdb_world_open(&world, outage->crowd.actor.loop);
	assert_non_null(outage->crowd.actor.store);
	(void)snprintf(name, sizeof name, "%s/data.mdb", world.path);
	disk_watch(name);
	disk_on_step(cut, outage);
	assert_true(crowd_run(&outage->crowd, KEYS));
	disk_on_step(NULL, NULL);
	disk_break(DISK_FINE);
	idem_store_close(outage->crowd.actor.store);
	idem_poll_loop_free(outage->crowd.actor.loop);
	for (size_t i = 0; i < outage->count; i++) {
		check_cut(outage, &outage->cuts[i]);
		lmdb_world_free(&outage->cuts[i].world);
	}
	lmdb_world_free(&world);
	free(outage->cuts);
}

static void
with_full_nothing_that_was_acknowledged_is_missing_after_a_power_cut(void **state)
{
	struct outage outage;

	(void)state;
	run(&outage, IDEM_LMDB_SYNC_FULL, false);
	assert_int_equal(outage.count, CUTS);
	assert_int_equal(outage.missing, 0);
	assert_int_equal(outage.wrong, 0);
}

static void
with_completion_no_acknowledged_completion_is_missing(void **state)
{
	struct outage outage;

	(void)state;
	run(&outage, IDEM_LMDB_SYNC_COMPLETION, false);
	assert_int_equal(outage.count, CUTS);
	assert_int_equal(outage.missing, 0);
	assert_int_equal(outage.wrong, 0);
}

static void
not_even_if_an_fsync_failed_before(void **state)
{
	static const enum idem_lmdb_sync syncs[] = {IDEM_LMDB_SYNC_FULL, IDEM_LMDB_SYNC_COMPLETION};
	struct outage outage;

	(void)state;
	for (int i = 0; i < 2; i++) {
		run(&outage, syncs[i], true);
		assert_int_equal(outage.count, CUTS);
		assert_true(outage.crowd.refused + outage.crowd.unknown > 0);
		assert_int_equal(outage.missing, 0);
		assert_int_equal(outage.wrong, 0);
	}
}

/*
 * With completion the meta page of a commit waits for a later fsync.  If that fails, the page is lost to the
 * disk, and the kernel says so once: an owner who asks again may be told that it is stored only after it was
 * written anew.
 */
static void
who_asks_again_after_a_failed_fsync_is_not_told_too_early(void **state)
{
	struct request request = actor_request(1, 60000, 3600000);
	struct idem_tag fresh = actor_tag();
	struct lmdb_world world, left;
	struct actor actor;
	struct claim claim;
	char name[128];

	(void)state;
	assert_true(lmdb_world_make(&world, (size_t)8 << 20, IDEM_LMDB_SYNC_COMPLETION));
	assert_ok(idem_poll_loop_new(&actor.loop));
	actor.store = lmdb_world_open(&world, actor.loop);
	assert_non_null(actor.store);
	(void)snprintf(name, sizeof name, "%s/data.mdb", world.path);
	disk_watch(name);
	assert_int_equal(actor_claim(&actor, &request, &claim), IDEM_EXECUTE);
	disk_break_once(DISK_SYNC_FAILS, 1); /* not the commit's own, but the one that waits for it */
	assert_int_equal(actor_settle_again(&actor, &request, &claim, IDEM_COMPLETE, bytes_of("x"), &fresh),
	                 IDEM_E_INDOUBT);
	assert_int_equal(disk_struck(), 1);
	assert_int_equal(actor_settle_again(&actor, &request, &claim, IDEM_COMPLETE, bytes_of("x"), &fresh),
	                 IDEM_RECORDED);
	for (uint64_t seed = 0; seed < 10; seed++) {
		struct actor heir;

		assert_true(lmdb_world_make(&left, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
		assert_int_equal(mkdir(left.path, 0700), 0);
		(void)snprintf(name, sizeof name, "%s/data.mdb", left.path);
		assert_true(disk_cut(name, seed));
		assert_ok(idem_poll_loop_new(&heir.loop));
		heir.store = lmdb_world_open(&left, heir.loop);
		assert_non_null(heir.store);
		assert_int_equal(actor_claim(&heir, &request, NULL), IDEM_REPLAY);
		idem_store_close(heir.store);
		idem_poll_loop_free(heir.loop);
		lmdb_world_free(&left);
	}
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	lmdb_world_free(&world);
}

/* It promises nothing, and so shows that these cuts hurt. */
static void
with_process_they_are(void **state)
{
	struct outage outage;

	(void)state;
	run(&outage, IDEM_LMDB_SYNC_PROCESS, false);
	assert_true(outage.missing + outage.wrong > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_full_nothing_that_was_acknowledged_is_missing_after_a_power_cut),
		cmocka_unit_test(with_completion_no_acknowledged_completion_is_missing),
		cmocka_unit_test(not_even_if_an_fsync_failed_before),
		cmocka_unit_test(who_asks_again_after_a_failed_fsync_is_not_told_too_early),
		cmocka_unit_test(with_process_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
