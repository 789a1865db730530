/* A full map: new keys are refused, what runs can end, what is over makes room, and a larger size helps at
 * once. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "actor.h"
#include "lmdb_world.h"

#define LEASE_MS 1000
#define TTL_MS 10000

struct bench {
	struct lmdb_world world;
	struct actor actor;
	uint64_t next_key;
};

static void
open_store(struct bench *bench)
{
	assert_ok(idem_poll_loop_new(&bench->actor.loop));
	bench->actor.store = lmdb_world_open(&bench->world, bench->actor.loop);
	assert_non_null(bench->actor.store);
}

static void
close_store(struct bench *bench)
{
	idem_store_close(bench->actor.store);
	idem_poll_loop_free(bench->actor.loop);
}

static void
set_up(struct bench *bench, size_t size)
{
	memset(bench, 0, sizeof *bench);
	/* These are many transactions, and no power is cut. */
	assert_true(lmdb_world_make(&bench->world, size, IDEM_LMDB_SYNC_PROCESS));
	open_store(bench);
}

static void
tear_down(struct bench *bench)
{
	char fault[512] = "";

	assert_int_equal(idem_lmdb_verify(bench->actor.store, fault, sizeof fault), IDEM_OK);
	close_store(bench);
	lmdb_world_free(&bench->world);
}

static int
execute(struct bench *bench, size_t len)
{
	struct request request = actor_request(bench->next_key, LEASE_MS, TTL_MS);
	struct claim claim;
	int verdict = actor_claim(&bench->actor, &request, &claim);
	void *bytes;

	if (verdict != IDEM_EXECUTE)
		return verdict;
	bytes = payload_make(bench->next_key++, len);
	verdict = actor_complete(&bench->actor, &request, &claim, (struct idem_bytes){bytes, len});
	free(bytes);
	return verdict;
}

/* The number of keys that found room. */
static uint64_t
fill(struct bench *bench, size_t len)
{
	uint64_t first = bench->next_key;
	int verdict;

	do
		verdict = execute(bench, len);
	while (verdict == IDEM_RECORDED);
	if (verdict != IDEM_E_FULL)
		fail_msg("%s: %s", idem_strerror(verdict), bench->world.report);
	return bench->next_key - first;
}

static void
assert_all_replay(struct bench *bench, uint64_t from, size_t len)
{
	for (uint64_t key = from; key < bench->next_key; key++) {
		struct request request = actor_request(key, LEASE_MS, TTL_MS);
		struct claim claim;

		assert_int_equal(actor_claim(&bench->actor, &request, &claim), IDEM_REPLAY);
		assert_true(payload_is(claim.found.payload, key, len));
		claim_free(&claim);
	}
}

static void
a_full_store_refuses_new_keys_and_keeps_what_it_has(void **state)
{
	static const size_t lens[] = {0, 200, 3000, 100000};
	struct bench bench;

	(void)state;
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		set_up(&bench, (size_t)4 << 20);
		assert_true(fill(&bench, lens[i]) > 10);
		assert_non_null(strstr(bench.world.report, bench.world.path));
		assert_non_null(strstr(bench.world.report, "raise its size from 4m"));
		assert_all_replay(&bench, 0, lens[i]);
		tear_down(&bench);
	}
}

static void
what_runs_when_the_store_becomes_full_can_still_complete(void **state)
{
	struct request requests[50];
	struct claim claims[50];
	struct bench bench;

	(void)state;
	set_up(&bench, (size_t)4 << 20);
	for (int i = 0; i < 50; i++) {
		requests[i] = actor_request(1000000 + (uint64_t)i, LEASE_MS, TTL_MS);
		assert_int_equal(actor_claim(&bench.actor, &requests[i], &claims[i]), IDEM_EXECUTE);
	}
	(void)fill(&bench, 200);
	for (int i = 0; i < 50; i++)
		assert_int_equal(actor_complete(&bench.actor, &requests[i], &claims[i], bytes_of("done")),
		                 IDEM_RECORDED);
	tear_down(&bench);
}

static void
what_is_over_makes_room_again_and_again(void **state)
{
	struct bench bench;
	struct idem_lmdb_usage usage;
	uint64_t first, again;

	(void)state;
	set_up(&bench, (size_t)4 << 20);
	first = fill(&bench, 200);
	for (int i = 0; i < 5; i++) {
		lmdb_world_advance(&bench.world, 2 * (LEASE_MS + TTL_MS));
		again = fill(&bench, 200);
		assert_true(again > first * 8 / 10);
		assert_all_replay(&bench, bench.next_key - again, 200);
	}
	assert_ok(idem_lmdb_usage(bench.actor.store, &usage));
	assert_true(usage.bytes_file <= usage.bytes_total);
	assert_true(usage.cells < first * 2);
	tear_down(&bench);
}

static void
a_store_that_nobody_writes_to_becomes_empty_by_itself(void **state)
{
	struct bench bench;
	struct idem_lmdb_usage usage;

	(void)state;
	set_up(&bench, (size_t)4 << 20);
	(void)fill(&bench, 200);
	lmdb_world_advance(&bench.world, 2 * (LEASE_MS + TTL_MS));
	for (int i = 0; i < 100; i++) {
		assert_ok(idem_lmdb_usage(bench.actor.store, &usage));
		if (usage.cells == 0)
			break;
		assert_int_equal(idem_poll_loop_run(bench.actor.loop, NULL, 100), IDEM_PENDING);
	}
	if (usage.cells != 0)
		fail_msg("%u are left: %s", (unsigned)usage.cells, bench.world.report);
	tear_down(&bench);
}

static void
a_larger_size_helps_at_once(void **state)
{
	struct bench bench;
	struct idem_store *second;
	uint64_t first;

	(void)state;
	set_up(&bench, (size_t)2 << 20);
	first = fill(&bench, 200);
	bench.world.size = (size_t)16 << 20;
	second = lmdb_world_open(&bench.world, bench.actor.loop);
	assert_non_null(second);
	assert_true(fill(&bench, 200) > first * 3);
	assert_all_replay(&bench, 0, 200);
	idem_store_close(second);
	tear_down(&bench);
}

/* A child with a larger size fills more than its parent has mapped. */
static int
fill_in_child(struct bench *bench, size_t size)
{
	struct bench child = {.world = bench->world, .next_key = bench->next_key};

	child.world.size = size;
	if (idem_poll_loop_new(&child.actor.loop) != IDEM_OK)
		return 1;
	child.actor.store = lmdb_world_open(&child.world, child.actor.loop);
	for (int i = 0; child.actor.store != NULL && i < 10000; i++)
		if (execute(&child, 200) != IDEM_RECORDED)
			return 1;
	idem_store_close(child.actor.store);
	return child.actor.store == NULL;
}

static void
others_follow_who_made_the_map_larger(void **state)
{
	struct bench bench;
	pid_t child;
	int status;

	(void)state;
	set_up(&bench, (size_t)2 << 20);
	(void)execute(&bench, 200);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(fill_in_child(&bench, (size_t)32 << 20));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	bench.next_key += 10000;
	assert_all_replay(&bench, 0, 200);
	for (int i = 0; i < 100; i++)
		assert_int_equal(execute(&bench, 200), IDEM_RECORDED);
	tear_down(&bench);
}

static void
a_response_longer_than_the_store_is_refused(void **state)
{
	struct request request = actor_request(1, LEASE_MS, TTL_MS);
	struct claim claim;
	struct bench bench;
	void *bytes = payload_make(1, (size_t)5 << 20);

	(void)state;
	set_up(&bench, (size_t)4 << 20);
	assert_int_equal(actor_claim(&bench.actor, &request, &claim), IDEM_EXECUTE);
	assert_int_equal(
		actor_complete(&bench.actor, &request, &claim, (struct idem_bytes){bytes, (size_t)5 << 20}),
		IDEM_E_FULL);
	assert_int_equal(actor_complete(&bench.actor, &request, &claim, bytes_of("short")), IDEM_RECORDED);
	free(bytes);
	tear_down(&bench);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_store_refuses_new_keys_and_keeps_what_it_has),
		cmocka_unit_test(what_runs_when_the_store_becomes_full_can_still_complete),
		cmocka_unit_test(what_is_over_makes_room_again_and_again),
		cmocka_unit_test(a_store_that_nobody_writes_to_becomes_empty_by_itself),
		cmocka_unit_test(a_larger_size_helps_at_once),
		cmocka_unit_test(others_follow_who_made_the_map_larger),
		cmocka_unit_test(a_response_longer_than_the_store_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
