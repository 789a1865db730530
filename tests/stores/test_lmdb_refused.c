/*
 * Directories and files that cannot be used: each is an error that names the path and the cure, nothing is
 * made worse, and what is open recovers by itself when the cause is gone.
 */
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "crowd.h"
#include "lmdb_world.h"

#define KEYS 300
#define GAVE_WRONG_ANSWER 42

struct bench {
	struct lmdb_world world;
	struct crowd crowd;
	char data[128]; /* the name of data.mdb */
};

static void
open_store(struct bench *bench)
{
	bench->crowd.actor.store = lmdb_world_open(&bench->world, bench->crowd.actor.loop);
	if (bench->crowd.actor.store == NULL)
		fail_msg("%s", bench->world.why);
}

static void
close_store(struct bench *bench)
{
	idem_store_close(bench->crowd.actor.store);
	bench->crowd.actor.store = NULL;
}

/* A store with some keys in it; open. */
static void
set_up(struct bench *bench)
{
	memset(bench, 0, sizeof *bench);
	assert_true(lmdb_world_make(&bench->world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
	(void)snprintf(bench->data, sizeof bench->data, "%s/data.mdb", bench->world.path);
	assert_ok(idem_poll_loop_new(&bench->crowd.actor.loop));
	open_store(bench);
	assert_true(crowd_run(&bench->crowd, KEYS));
}

static void
assert_whole(struct bench *bench)
{
	char fault[512] = "";

	for (uint64_t key = 0; key < KEYS; key++)
		assert_int_equal(crowd_ask(&bench->crowd.actor, key), NOTE_COMPLETED);
	if (idem_lmdb_verify(bench->crowd.actor.store, fault, sizeof fault) != IDEM_OK)
		fail_msg("%s", fault);
}

static void
tear_down(struct bench *bench)
{
	close_store(bench);
	idem_poll_loop_free(bench->crowd.actor.loop);
	lmdb_world_free(&bench->world);
}

static void
assert_refused(struct bench *bench, int status, const char *cure)
{
	struct idem_lmdb_options options = lmdb_world_options(&bench->world, bench->crowd.actor.loop);
	struct idem_store *store = NULL;
	char why[512] = "", again[512] = "";

	assert_int_equal(idem_lmdb_open(&options, &store, why, sizeof why), status);
	assert_null(store);
	if (strstr(why, options.path == NULL ? "path" : options.path) == NULL || strstr(why, cure) == NULL)
		fail_msg("\"%s\" lacks \"%s\"", why, cure);
	assert_int_equal(idem_lmdb_check(&options, again, sizeof again), status);
	assert_string_equal(again, why);
}

/* ---- copies ---- */

struct copy {
	uint8_t *bytes;
	size_t len;
};

static struct copy
read_file(const char *name)
{
	struct copy copy;
	struct stat st;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	copy.len = (size_t)st.st_size;
	copy.bytes = malloc(copy.len + 1);
	assert_non_null(copy.bytes);
	assert_int_equal(pread(fd, copy.bytes, copy.len, 0), copy.len);
	(void)close(fd);
	return copy;
}

/* Into the same file, as cp(1) does. */
static void
write_file(const char *name, const void *bytes, size_t len)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, 0), len);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	(void)close(fd);
}

/* In one step: nobody finds half of it. */
static void
put_file(const char *name, const struct copy *copy)
{
	char aside[160];

	(void)snprintf(aside, sizeof aside, "%s.new", name);
	write_file(aside, copy->bytes, copy->len);
	assert_int_equal(rename(aside, name), 0);
}

/* ---- when it is opened ---- */

static void
what_makes_no_sense_is_refused(void **state)
{
	struct idem_lmdb_options options;
	struct idem_store *store = NULL;
	struct bench bench;
	char why[512];

	(void)state;
	set_up(&bench);
	options = lmdb_world_options(&bench.world, NULL);
	assert_int_equal(idem_lmdb_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	options = lmdb_world_options(&bench.world, bench.crowd.actor.loop);
	options.path = "";
	assert_int_equal(idem_lmdb_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	options.path = bench.world.path;
	options.size = 1000;
	assert_int_equal(idem_lmdb_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	assert_non_null(strstr(why, "from 1m to 16t"));
	options.size = 0;
	options.sync = (enum idem_lmdb_sync)7;
	assert_int_equal(idem_lmdb_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	assert_null(store);
	tear_down(&bench);
}

static void
a_missing_parent_and_a_file_are_no_directory(void **state)
{
	struct bench bench;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	(void)strcat(bench.world.path, "/no/more");
	assert_refused(&bench, IDEM_E_UNAVAILABLE, "make the directory above it");
	(void)snprintf(bench.world.path, sizeof bench.world.path, "%s/store/data.mdb", bench.world.parent);
	assert_refused(&bench, IDEM_E_UNAVAILABLE, "a file is where a directory should be");
	(void)snprintf(bench.world.path, sizeof bench.world.path, "%s/store", bench.world.parent);
	open_store(&bench);
	assert_whole(&bench);
	tear_down(&bench);
}

/* In a child, which gives root's rights away. */
static int
open_as_nobody(struct bench *bench)
{
	struct idem_lmdb_options options = lmdb_world_options(&bench->world, bench->crowd.actor.loop);
	struct idem_store *store;
	char why[512] = "";

	if (geteuid() == 0 && seteuid(65534) != 0)
		return 1;
	if (idem_lmdb_open(&options, &store, why, sizeof why) != IDEM_E_UNAVAILABLE)
		return 2;
	return strstr(why, options.path) == NULL ||
	       strstr(why, "give the directory and all files in it to user id") == NULL;
}

static void
another_owners_directory_is_told_with_the_user_who_needs_it(void **state)
{
	struct bench bench;
	int status;
	pid_t child;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	if (geteuid() != 0)
		assert_int_equal(chmod(bench.world.path, 0), 0);
	else
		assert_int_equal(chmod(bench.world.parent, 0711), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(open_as_nobody(&bench));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(chmod(bench.world.path, 0700), 0);
	open_store(&bench);
	assert_whole(&bench);
	tear_down(&bench);
}

static void
a_file_that_was_cut_short_or_overwritten_is_damaged(void **state)
{
	struct bench bench;
	struct copy copy;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	copy = read_file(bench.data);
	for (size_t part = 0; part < 4; part++) {
		write_file(bench.data, copy.bytes, copy.len * part / 4);
		assert_refused(&bench, IDEM_E_CORRUPT, "cut short");
	}
	write_file(bench.data, copy.bytes, copy.len);
	memset(copy.bytes, 'x', 8192);
	write_file(bench.data, copy.bytes, copy.len);
	assert_refused(&bench, IDEM_E_CORRUPT, "restore a backup");
	tear_down(&bench);
	free(copy.bytes);
}

static void
a_file_that_is_whole_again_is_used_again(void **state)
{
	struct bench bench;
	struct copy copy;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	copy = read_file(bench.data);
	write_file(bench.data, copy.bytes, copy.len / 2);
	assert_refused(&bench, IDEM_E_CORRUPT, "cut short");
	write_file(bench.data, copy.bytes, copy.len);
	open_store(&bench);
	assert_whole(&bench);
	tear_down(&bench);
	free(copy.bytes);
}

/* Writes one value into the main table of a directory, with LMDB's own functions. */
static void
put_in_main(const char *path, const char *name, size_t at, const void *bytes, size_t len)
{
	char value[256] = {0};
	MDB_val key = {strlen(name), (void *)(uintptr_t)name}, old;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi table;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
	assert_int_equal(mdb_env_open(env, path, 0, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &table), 0);
	if (mdb_get(txn, table, &key, &old) == 0)
		memcpy(value, old.mv_data, old.mv_size);
	else
		old.mv_size = at + len;
	memcpy(value + at, bytes, len);
	old.mv_data = value;
	assert_int_equal(mdb_put(txn, table, &key, &old, 0), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void
another_version_and_another_programs_file_are_left_alone(void **state)
{
	uint32_t version = 99, ours = 1;
	struct bench bench;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	put_in_main(bench.world.path, "idem", 8, &version, sizeof version);
	assert_refused(&bench, IDEM_E_VERSION, "another version of Idem");
	put_in_main(bench.world.path, "idem", 8, &ours, sizeof ours);
	open_store(&bench);
	assert_whole(&bench);
	tear_down(&bench);

	memset(&bench, 0, sizeof bench);
	assert_true(lmdb_world_make(&bench.world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
	assert_int_equal(mkdir(bench.world.path, 0700), 0);
	assert_ok(idem_poll_loop_new(&bench.crowd.actor.loop));
	put_in_main(bench.world.path, "theirs", 0, "x", 1);
	assert_refused(&bench, IDEM_E_CORRUPT, "not Idem's");
	idem_poll_loop_free(bench.crowd.actor.loop);
	lmdb_world_free(&bench.world);
}

static void
those_who_share_a_directory_agree_on_whether_they_wait_for_the_disk(void **state)
{
	struct bench bench;
	pid_t child;
	int status;

	(void)state;
	set_up(&bench);
	bench.world.sync = IDEM_LMDB_SYNC_COMPLETION;
	assert_refused(&bench, IDEM_E_INVALID, "same");
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct idem_lmdb_options options = lmdb_world_options(&bench.world, bench.crowd.actor.loop);
		char why[512];

		options.sync = IDEM_LMDB_SYNC_PROCESS;
		if (idem_lmdb_check(&options, why, sizeof why) != IDEM_E_INVALID ||
		    strstr(why, "sync") == NULL)
			_exit(1);
		options.sync = IDEM_LMDB_SYNC_COMPLETION;
		_exit(idem_lmdb_check(&options, why, sizeof why) != IDEM_OK);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	tear_down(&bench);
}

/* ---- while it is open ---- */

static void
assert_fails(struct bench *bench, int status)
{
	struct request request = actor_request(100000, 1000, 1000);

	assert_int_equal(actor_claim(&bench->crowd.actor, &request, NULL), status);
}

/* For several attempts to open it again. */
static void
assert_keeps_failing(struct bench *bench, int status)
{
	for (int i = 0; i < 4; i++) {
		assert_fails(bench, status);
		assert_int_equal(idem_poll_loop_run(bench->crowd.actor.loop, NULL, 600), IDEM_PENDING);
	}
	if (strstr(bench->world.report, bench->data) == NULL)
		fail_msg("\"%s\" does not name the file", bench->world.report);
}

static void
assert_recovers(struct bench *bench)
{
	for (int i = 0; i < 100; i++) {
		if (crowd_ask(&bench->crowd.actor, 0) == NOTE_COMPLETED) {
			assert_whole(bench);
			return;
		}
		assert_int_equal(idem_poll_loop_run(bench->crowd.actor.loop, NULL, 50), IDEM_PENDING);
	}
	fail_msg("it does not recover: %s", bench->world.report);
}

static void
a_file_that_is_cut_short_under_it(void **state)
{
	struct bench bench;
	struct copy copy;

	(void)state;
	set_up(&bench);
	copy = read_file(bench.data);
	assert_int_equal(truncate(bench.data, 4096), 0);
	assert_keeps_failing(&bench, IDEM_E_CORRUPT);
	put_file(bench.data, &copy);
	assert_recovers(&bench);
	tear_down(&bench);
	free(copy.bytes);
}

static void
a_file_that_is_removed_under_it(void **state)
{
	struct bench bench;
	char aside[128];

	(void)state;
	set_up(&bench);
	(void)snprintf(aside, sizeof aside, "%s/aside", bench.world.path);
	assert_int_equal(link(bench.data, aside), 0);
	assert_int_equal(unlink(bench.data), 0);
	/* It has another name still, and so is not gone; but nobody else would find what is written to it. */
	assert_int_equal(rename(aside, bench.data), 0);
	assert_recovers(&bench);
	assert_int_equal(unlink(bench.data), 0);
	assert_keeps_failing(&bench, IDEM_E_UNAVAILABLE);
	tear_down(&bench);
}

/* Two lock files would be two writers at once. */
static void
a_lock_file_that_is_removed_under_it_lets_nobody_else_in(void **state)
{
	struct bench bench;
	char name[128];
	pid_t child;
	int status;

	(void)state;
	set_up(&bench);
	(void)snprintf(name, sizeof name, "%s/lock.mdb", bench.world.path);
	assert_int_equal(unlink(name), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct idem_lmdb_options options = lmdb_world_options(&bench.world, bench.crowd.actor.loop);
		char why[512] = "";
		int rc = idem_lmdb_check(&options, why, sizeof why);

		_exit(rc != IDEM_E_UNAVAILABLE ||
		      strstr(why, "lock.mdb: it was removed while it was in use") == NULL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_whole(&bench);
	close_store(&bench);
	open_store(&bench); /* alone: all is made anew */
	assert_whole(&bench);
	tear_down(&bench);
}

/* Those who have the old one open must notice, before they and newcomers go different ways. */
static void
a_removed_idem_run_is_noticed(void **state)
{
	struct bench bench;
	struct stat st;
	char name[128];

	(void)state;
	set_up(&bench);
	(void)snprintf(name, sizeof name, "%s/idem.run", bench.world.path);
	assert_int_equal(unlink(name), 0);
	for (int i = 0; i < 100 && stat(name, &st) != 0; i++)
		assert_int_equal(idem_poll_loop_run(bench.crowd.actor.loop, NULL, 50), IDEM_PENDING);
	assert_int_equal(stat(name, &st), 0);
	assert_recovers(&bench);
	tear_down(&bench);
}

/* nginx' workers come and go: a new one must not begin an empty store beside the others'. */
static void
a_newcomer_does_not_make_a_removed_file_anew(void **state)
{
	struct bench bench;
	struct stat st;
	pid_t child;
	int status;

	(void)state;
	set_up(&bench);
	assert_int_equal(unlink(bench.data), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct idem_lmdb_options options = lmdb_world_options(&bench.world, bench.crowd.actor.loop);
		char why[512] = "";

		_exit(idem_lmdb_check(&options, why, sizeof why) != IDEM_E_UNAVAILABLE);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(stat(bench.data, &st), -1);
	tear_down(&bench);
}

/* All who used it have ended since: an empty store would execute again what they had recorded. */
static void
a_file_that_is_missing_is_missed(void **state)
{
	struct bench bench;
	char name[128];

	(void)state;
	set_up(&bench);
	close_store(&bench);
	assert_int_equal(unlink(bench.data), 0);
	assert_refused(&bench, IDEM_E_UNAVAILABLE, "empty the directory and lose its keys");
	(void)snprintf(name, sizeof name, "%s/idem.run", bench.world.path);
	assert_int_equal(unlink(name), 0);
	open_store(&bench);
	assert_int_equal(crowd_ask(&bench.crowd.actor, 0), NOTE_NOTHING);
	tear_down(&bench);
}

static void
another_stores_file_that_is_copied_over_it(void **state)
{
	struct bench bench, other;
	struct copy copy, others;

	(void)state;
	set_up(&bench);
	set_up(&other);
	close_store(&other);
	copy = read_file(bench.data);
	others = read_file(other.data);
	if (others.len < copy.len) {
		others.bytes = realloc(others.bytes, copy.len);
		assert_non_null(others.bytes);
		memset(others.bytes + others.len, 0, copy.len - others.len);
		others.len = copy.len;
	}
	write_file(bench.data, others.bytes, others.len);
	assert_keeps_failing(&bench, IDEM_E_CORRUPT);
	put_file(bench.data, &copy);
	assert_recovers(&bench);
	tear_down(&bench);
	tear_down(&other);
	free(copy.bytes);
	free(others.bytes);
}

/* ---- single bytes ---- */

/* In a child, which may fall over LMDB's own pages: an answer is right or none. */
static int
ask_all(struct bench *bench)
{
	struct actor actor;
	int wrong = 0;

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return 0;
	actor.store = lmdb_world_open(&bench->world, actor.loop);
	for (uint64_t key = 0; actor.store != NULL && key < KEYS; key++) {
		struct request request = actor_request(key, 60000, 3600000);
		struct idem_io io = {.id = request.id, .want_payload = true};

		io.write = (struct idem_cell){
			.tag = actor_tag(), .state = IDEM_DOUBT, .attempt = 1, .retain_ms = 1};
		io.write.fingerprint = request.fingerprint;
		if (actor_cas(&actor, &io) == IDEM_OK && !io.applied && io.seen.payload.data != NULL)
			wrong |=
				!payload_is(io.seen.payload, key, key % 37 == 0 ? 9000 : (size_t)(key % 300));
		actor.store->ops->release(actor.store, &io);
	}
	return wrong;
}

static void
a_damaged_answer_is_never_given(void **state)
{
	struct bench bench;
	struct copy copy;
	unsigned seed = 7;

	(void)state;
	set_up(&bench);
	close_store(&bench);
	copy = read_file(bench.data);
	for (int i = 0; i < 40; i++) {
		pid_t child;
		int status;

		for (int flips = 0; flips < 20; flips++)
			copy.bytes[8192 + (size_t)rand_r(&seed) % (copy.len - 8192)] ^=
				(uint8_t)(1u << (rand_r(&seed) % 8));
		write_file(bench.data, copy.bytes, copy.len);
		child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			(void)signal(SIGSEGV, SIG_DFL);
			(void)signal(SIGABRT, SIG_DFL);
			(void)signal(SIGBUS, SIG_DFL);
			(void)close(STDERR_FILENO);
			_exit(ask_all(&bench) ? GAVE_WRONG_ANSWER : 0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != GAVE_WRONG_ANSWER);
	}
	tear_down(&bench);
	free(copy.bytes);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_makes_no_sense_is_refused),
		cmocka_unit_test(a_missing_parent_and_a_file_are_no_directory),
		cmocka_unit_test(another_owners_directory_is_told_with_the_user_who_needs_it),
		cmocka_unit_test(a_file_that_was_cut_short_or_overwritten_is_damaged),
		cmocka_unit_test(a_file_that_is_whole_again_is_used_again),
		cmocka_unit_test(another_version_and_another_programs_file_are_left_alone),
		cmocka_unit_test(those_who_share_a_directory_agree_on_whether_they_wait_for_the_disk),
		cmocka_unit_test(a_file_that_is_cut_short_under_it),
		cmocka_unit_test(a_file_that_is_removed_under_it),
		cmocka_unit_test(a_lock_file_that_is_removed_under_it_lets_nobody_else_in),
		cmocka_unit_test(a_removed_idem_run_is_noticed),
		cmocka_unit_test(a_newcomer_does_not_make_a_removed_file_anew),
		cmocka_unit_test(a_file_that_is_missing_is_missed),
		cmocka_unit_test(another_stores_file_that_is_copied_over_it),
		cmocka_unit_test(a_damaged_answer_is_never_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
