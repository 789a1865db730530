/* Every allocation of the LMDB store fails once: it is said, nothing is half done, and nothing leaks. */
#include "../support/test.h"
#include "actor.h"
#include "lmdb_world.h"

/* Until the failure; 0: none.  The linker sends the library's calls here, from two threads. */
static unsigned long allocations_left;
static unsigned long failures;

static bool
fails_now(void)
{
	unsigned long left = __atomic_load_n(&allocations_left, __ATOMIC_SEQ_CST);

	while (left != 0 && !__atomic_compare_exchange_n(&allocations_left, &left, left - 1, false,
	                                                 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	if (left != 1)
		return false;
	(void)__atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);

void *
__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __real_calloc(count, size);
}

char *
__wrap_strdup(const char *text)
{
	return fails_now() ? NULL : __real_strdup(text);
}

struct bench {
	struct lmdb_world world;
	struct actor actor;
	struct request request;
	uint64_t next_key;
};

/* ---- one call each that allocates; its status ---- */

static int
open_and_close(struct bench *bench)
{
	struct lmdb_world fresh;
	struct idem_lmdb_options options;
	struct idem_store *store = NULL;
	char why[512];
	int rc;

	assert_true(lmdb_world_make(&fresh, 0, IDEM_LMDB_SYNC_FULL));
	options = lmdb_world_options(&fresh, bench->actor.loop);
	rc = idem_lmdb_open(&options, &store, why, sizeof why);
	if (rc != IDEM_OK)
		assert_true(why[0] != '\0');
	idem_store_close(store);
	lmdb_world_free(&fresh);
	return rc;
}

static int
write_new(struct bench *bench)
{
	struct request request = actor_request(bench->next_key++, 1000, 100000);
	int verdict = actor_claim(&bench->actor, &request, NULL);

	return verdict > 0 ? IDEM_OK : verdict;
}

static int
read_at_once(struct bench *bench)
{
	struct idem_io io = {.id = bench->request.id, .want_payload = true};

	io.write.fingerprint = bench->request.fingerprint;
	if (actor_cas(&bench->actor, &io) == IDEM_OK)
		assert_memory_equal(io.seen.payload.data, "answer", 6);
	bench->actor.store->ops->release(bench->actor.store, &io);
	return io.status;
}

/* Whoever expects a cell is answered by the writer. */
static int
read_later(struct bench *bench)
{
	struct idem_io io = {.id = bench->request.id, .want_payload = true, .expect = actor_tag()};

	io.write.fingerprint = bench->request.fingerprint;
	if (actor_cas(&bench->actor, &io) == IDEM_OK)
		assert_memory_equal(io.seen.payload.data, "answer", 6);
	bench->actor.store->ops->release(bench->actor.store, &io);
	return io.status;
}

/* Until a run in which nothing failed. */
static void
fail_each(struct bench *bench, int (*call)(struct bench *bench), unsigned long at_least)
{
	unsigned long before = failures;

	for (unsigned long n = 1;; n++) {
		unsigned long failed = failures;
		int rc;

		__atomic_store_n(&allocations_left, n, __ATOMIC_SEQ_CST);
		rc = call(bench);
		__atomic_store_n(&allocations_left, 0, __ATOMIC_SEQ_CST);
		if (failures == failed) {
			assert_ok(rc);
			break;
		}
		assert_int_equal(rc, IDEM_E_NOMEM);
	}
	assert_true(failures - before >= at_least);
}

static void
every_allocation_may_fail(void **state)
{
	struct bench bench = {.next_key = 100};
	char fault[512] = "";
	struct claim claim;

	(void)state;
	assert_true(lmdb_world_make(&bench.world, (size_t)8 << 20, IDEM_LMDB_SYNC_FULL));
	assert_ok(idem_poll_loop_new(&bench.actor.loop));
	bench.actor.store = lmdb_world_open(&bench.world, bench.actor.loop);
	assert_non_null(bench.actor.store);
	bench.request = actor_request(1, 1000, 100000);
	assert_int_equal(actor_claim(&bench.actor, &bench.request, &claim), IDEM_EXECUTE);
	assert_int_equal(actor_complete(&bench.actor, &bench.request, &claim, bytes_of("answer")),
	                 IDEM_RECORDED);
	fail_each(&bench, open_and_close, 3);
	fail_each(&bench, write_new, 1);
	fail_each(&bench, read_at_once, 1);
	fail_each(&bench, read_later, 2);
	assert_int_equal(idem_lmdb_verify(bench.actor.store, fault, sizeof fault), IDEM_OK);
	idem_store_close(bench.actor.store);
	idem_poll_loop_free(bench.actor.loop);
	lmdb_world_free(&bench.world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
