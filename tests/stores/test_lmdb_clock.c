/*
 * The store's clock over boots, and what is left of a store that waited for no fsync.
 *
 * The test has the names of boots and the time since then: the linker sends the library's calls here.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../src/stores/lmdb/layout.h"
#include "../support/test.h"
#include "actor.h"
#include "lmdb_world.h"

#define HOUR_MS 3600000

static unsigned boot = 1;
static uint64_t uptime_ms = HOUR_MS;

int __wrap_idem_lmdb_boot(char name[BOOT_MAX]);
uint64_t __wrap_idem_lmdb_uptime_ms(void);

int
__wrap_idem_lmdb_boot(char name[BOOT_MAX])
{
	memset(name, 0, BOOT_MAX);
	(void)snprintf(name, BOOT_MAX, "boot-%u", boot);
	return IDEM_OK;
}

uint64_t
__wrap_idem_lmdb_uptime_ms(void)
{
	return __atomic_load_n(&uptime_ms, __ATOMIC_SEQ_CST);
}

static void
pass(uint64_t ms)
{
	(void)__atomic_add_fetch(&uptime_ms, ms, __ATOMIC_SEQ_CST);
}

/* The machine is started again, and has counted for as long as it says. */
static void
reboot(uint64_t ms)
{
	boot++;
	__atomic_store_n(&uptime_ms, ms, __ATOMIC_SEQ_CST);
}

struct bench {
	struct lmdb_world world;
	struct actor actor;
};

static void
open_store(struct bench *bench)
{
	struct idem_lmdb_options options = lmdb_world_options(&bench->world, bench->actor.loop);

	options.clock_ms = NULL;
	if (idem_lmdb_open(&options, &bench->actor.store, bench->world.why, sizeof bench->world.why) !=
	    IDEM_OK)
		fail_msg("%s", bench->world.why);
}

static void
set_up(struct bench *bench, enum idem_lmdb_sync sync)
{
	memset(bench, 0, sizeof *bench);
	assert_true(lmdb_world_make(&bench->world, (size_t)8 << 20, sync));
	assert_ok(idem_poll_loop_new(&bench->actor.loop));
	open_store(bench);
}

static void
tear_down(struct bench *bench)
{
	idem_store_close(bench->actor.store);
	idem_poll_loop_free(bench->actor.loop);
	lmdb_world_free(&bench->world);
}

static struct request
execute(struct bench *bench, uint64_t key)
{
	struct request request = actor_request(key, 10000, HOUR_MS);
	struct claim claim;

	assert_int_equal(actor_claim(&bench->actor, &request, &claim), IDEM_EXECUTE);
	assert_int_equal(actor_complete(&bench->actor, &request, &claim, bytes_of("answer")), IDEM_RECORDED);
	return request;
}

static void
time_goes_on_while_the_store_is_closed(void **state)
{
	struct bench bench;
	struct request request;

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_FULL);
	request = execute(&bench, 1);
	idem_store_close(bench.actor.store);
	pass(HOUR_MS - 2);
	open_store(&bench);
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_REPLAY);
	idem_store_close(bench.actor.store);
	pass(2);
	open_store(&bench);
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_EXECUTE);
	tear_down(&bench);
}

/* However long it was off, and whatever its clock says then. */
static void
a_key_outlives_a_reboot_for_the_rest_of_its_time(void **state)
{
	static const uint64_t uptimes[] = {0, 1, HOUR_MS, (uint64_t)1 << 45};
	struct bench bench;
	struct request request, running;

	(void)state;
	for (size_t i = 0; i < sizeof uptimes / sizeof *uptimes; i++) {
		set_up(&bench, IDEM_LMDB_SYNC_FULL);
		running = actor_request(2, 10000, HOUR_MS);
		request = execute(&bench, 1);
		assert_int_equal(actor_claim(&bench.actor, &running, NULL), IDEM_EXECUTE);
		idem_store_close(bench.actor.store);
		reboot(uptimes[i]);
		open_store(&bench);
		pass(9000);
		assert_int_equal(actor_claim(&bench.actor, &running, NULL), IDEM_IN_PROGRESS);
		pass(2000);
		assert_int_equal(actor_claim(&bench.actor, &running, NULL), IDEM_IN_DOUBT);
		pass(HOUR_MS - 12000);
		assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_REPLAY);
		pass(2000);
		assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_EXECUTE);
		tear_down(&bench);
	}
}

/* A key that is over stays over: the time is kept in the file even if nobody writes. */
static void
the_clock_does_not_go_back_over_a_reboot(void **state)
{
	struct bench bench;
	struct request request;
	struct idem_lmdb_usage usage = {.cells = 1};

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_FULL);
	request = execute(&bench, 1);
	pass(2 * HOUR_MS);
	for (int i = 0; i < 100 && usage.cells > 0; i++) {
		assert_int_equal(idem_poll_loop_run(bench.actor.loop, NULL, 50), IDEM_PENDING);
		assert_ok(idem_lmdb_usage(bench.actor.store, &usage));
	}
	assert_int_equal(usage.cells, 0);
	idem_store_close(bench.actor.store);
	reboot(0);
	open_store(&bench);
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_EXECUTE);
	tear_down(&bench);
}

static bool
was_set_aside(struct bench *bench)
{
	return strstr(bench->world.report, "data.mdb.lost-") != NULL;
}

/* As if the power had been cut: the file that its last user would have marked as synced has its mark. */
static void
begin_without_goodbye(struct bench *bench, char *mark)
{
	char name[128];
	FILE *file;

	(void)snprintf(name, sizeof name, "%s/idem.run", bench->world.path);
	file = fopen(name, "r");
	assert_non_null(file);
	assert_int_equal(fread(mark, sizeof(struct run), 1, file), 1);
	(void)fclose(file);
}

static void
put_mark_back(struct bench *bench, const char *mark)
{
	char name[128];
	FILE *file;

	(void)snprintf(name, sizeof name, "%s/idem.run", bench->world.path);
	file = fopen(name, "r+");
	assert_non_null(file);
	assert_int_equal(fwrite(mark, sizeof(struct run), 1, file), 1);
	assert_int_equal(fclose(file), 0);
}

static void
with_process_a_power_cut_leaves_an_empty_store_that_says_so(void **state)
{
	static char mark[sizeof(struct run)];
	struct bench bench;
	struct request request;

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_PROCESS);
	request = execute(&bench, 1);
	begin_without_goodbye(&bench, mark);
	idem_store_close(bench.actor.store);
	put_mark_back(&bench, mark);
	open_store(&bench); /* the processes were killed, the machine was not: all is there */
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_REPLAY);
	assert_false(was_set_aside(&bench));
	idem_store_close(bench.actor.store);
	put_mark_back(&bench, mark);
	reboot(0);
	open_store(&bench);
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_EXECUTE);
	assert_true(was_set_aside(&bench));
	tear_down(&bench);
}

static void
with_process_a_store_that_was_closed_outlives_a_reboot(void **state)
{
	struct bench bench;
	struct request request;

	(void)state;
	set_up(&bench, IDEM_LMDB_SYNC_PROCESS);
	request = execute(&bench, 1);
	idem_store_close(bench.actor.store);
	reboot(0);
	open_store(&bench);
	assert_int_equal(actor_claim(&bench.actor, &request, NULL), IDEM_REPLAY);
	assert_false(was_set_aside(&bench));
	tear_down(&bench);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_goes_on_while_the_store_is_closed),
		cmocka_unit_test(a_key_outlives_a_reboot_for_the_rest_of_its_time),
		cmocka_unit_test(the_clock_does_not_go_back_over_a_reboot),
		cmocka_unit_test(with_process_a_power_cut_leaves_an_empty_store_that_says_so),
		cmocka_unit_test(with_process_a_store_that_was_closed_outlives_a_reboot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
