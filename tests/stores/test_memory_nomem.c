/* Every allocation of the memory store fails once: nothing is written, and nothing leaks. */
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES IDEM_MEMORY_MIN_BYTES

/* Until the failure; 0: none.  The linker sends the library's calls here. */
static unsigned long allocations_left;
static unsigned long failures;

static bool
fails_now(void)
{
	if (allocations_left == 0 || --allocations_left > 0)
		return false;
	failures++;
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

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

void *
__wrap_realloc(void *old, size_t size)
{
	return fails_now() ? NULL : __real_realloc(old, size);
}

/* ---- one call each that allocates; its status ---- */

struct stage {
	struct memory_world world;
	struct idem_store *store;
	struct idem_loop *loop;
	struct request request;
};

static int
open_another(struct stage *stage)
{
	struct idem_memory_options options = {.region = stage->world.region, .len = stage->world.len};
	struct idem_store *store = NULL;
	int rc = idem_memory_open(&options, &store);

	idem_store_close(store);
	return rc;
}

static int
read_answer(struct stage *stage)
{
	struct idem_io io = {.id = stage->request.id, .want_payload = true};
	int rc;

	io.write.tag = actor_tag();
	io.write.state = IDEM_LOCKED;
	io.write.fingerprint = stage->request.fingerprint;
	rc = stage->store->ops->cas(stage->store, &io);
	assert_int_equal(rc, IDEM_OK);
	assert_false(io.applied);
	if (io.status == IDEM_OK)
		assert_memory_equal(io.seen.payload.data, "answer", 6);
	stage->store->ops->release(stage->store, &io);
	return io.status;
}

static int
check_region(struct stage *stage)
{
	char fault[128];

	return idem_memory_verify(stage->store, fault, sizeof fault);
}

static void
never_called(struct idem_watch *watch)
{
	(void)watch;
	fail_msg("nothing has changed");
}

static int
begin_to_watch(struct stage *stage)
{
	struct idem_watch watch = {.id = stage->request.id, .changed = never_called};
	struct idem_loop *loop;
	struct idem_store *store;
	struct idem_memory_options options = {.region = stage->world.region, .len = stage->world.len};
	int rc = idem_poll_loop_new(&loop);

	if (rc != IDEM_OK)
		return rc;
	options.loop = loop;
	rc = idem_memory_open(&options, &store);
	if (rc == IDEM_OK) {
		rc = store->ops->watch(store, &watch);
		if (rc == IDEM_OK)
			store->ops->unwatch(store, &watch);
		store->ops->close(store);
	}
	idem_poll_loop_free(loop);
	return rc;
}

/* ---- */

static bool
fails_cleanly(struct stage *stage, int (*call)(struct stage *stage), unsigned long nth)
{
	unsigned long before = failures;
	int rc;

	allocations_left = nth;
	rc = call(stage);
	allocations_left = 0;
	if (failures == before) {
		assert_ok(rc);
		return false;
	}
	assert_int_equal(rc, IDEM_E_NOMEM);
	return true;
}

static void
a_failed_allocation_is_told_and_changes_nothing(void **state)
{
	static int (*const calls[])(struct stage *) = {open_another, read_answer, check_region,
	                                               begin_to_watch};
	struct stage stage = {.request = actor_request(1, 1000, 100000)};
	struct idem_memory_usage before, after;
	struct claim claim;

	(void)state;
	assert_true(memory_world_make(&stage.world, REGION_BYTES));
	stage.store = memory_world_open(&stage.world, NULL);
	assert_non_null(stage.store);
	struct actor actor = {.store = stage.store};
	assert_int_equal(actor_claim(&actor, &stage.request, &claim), IDEM_EXECUTE);
	assert_int_equal(actor_complete(&actor, &stage.request, &claim, bytes_of("answer")), IDEM_RECORDED);
	assert_ok(idem_memory_usage(stage.store, &before));
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		unsigned long nth = 1;

		while (fails_cleanly(&stage, calls[i], nth))
			nth++;
		assert_true(nth > 1); /* it did allocate */
		assert_ok(check_region(&stage));
		assert_ok(idem_memory_usage(stage.store, &after));
		assert_memory_equal(&before, &after, sizeof before);
		assert_ok(read_answer(&stage));
	}
	idem_store_close(stage.store);
	memory_world_free(&stage.world);
}

/* A write allocates nothing: an execution whose result is known can always be recorded. */
static void
no_write_allocates(void **state)
{
	struct memory_world world;
	struct idem_store *store;
	struct request request = actor_request(1, 1000, 100000);
	struct idem_io io = {.id = request.id};

	(void)state;
	assert_true(memory_world_make(&world, REGION_BYTES));
	store = memory_world_open(&world, NULL);
	assert_non_null(store);
	for (enum idem_state next = IDEM_LOCKED; next <= IDEM_DOUBT; next++) {
		io.write = (struct idem_cell){.tag = actor_tag(), .state = next, .retain_ms = 1000};
		if (next == IDEM_STORED)
			io.write.payload = (struct idem_bytes){"answer", 6};
		allocations_left = 1;
		assert_int_equal(store->ops->cas(store, &io), IDEM_OK);
		assert_int_equal(allocations_left, 1);
		allocations_left = 0;
		assert_ok(io.status);
		assert_true(io.applied);
		store->ops->release(store, &io);
		io.expect = io.write.tag;
	}
	idem_store_close(store);
	memory_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_allocation_is_told_and_changes_nothing),
		cmocka_unit_test(no_write_allocates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
