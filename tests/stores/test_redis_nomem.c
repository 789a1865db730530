/* Every allocation of the Redis store, and of what it uses, fails once: each request has its answer, what was
 * asked is settled as soon as there is memory, and nothing leaks. */
#include <openssl/crypto.h>

#include "../support/test.h"
#include "actor.h"
#include "hasty_loop.h"
#include "redis_world.h"

#define TIMES 100
#define TIMEOUT_MS (2000 * TIMES)
#define PATIENCE_MS 10000
#define LEASE_MS 3600000
#define TTL_MS 7200000

/* ---- memory ---- */

/* Until the failure; 0: none.  The linker sends the library's calls here, and hiredis'. */
static unsigned long allocations_left;
static unsigned long failures;

static bool
fails_now(void)
{
	if (allocations_left == 0 || --allocations_left != 0)
		return false;
	failures++;
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
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

void *
__wrap_realloc(void *memory, size_t size)
{
	return fails_now() ? NULL : __real_realloc(memory, size);
}

char *
__wrap_strdup(const char *text)
{
	return fails_now() ? NULL : __real_strdup(text);
}

/* OpenSSL's, through which the store's buffers go too. */

static void *
allocate(size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return __wrap_malloc(size);
}

static void *
reallocate(void *memory, size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return __wrap_realloc(memory, size);
}

static void
release_memory(void *memory, const char *file, int line)
{
	(void)file;
	(void)line;
	free(memory);
}

/* ---- the bench ---- */

struct bench {
	struct redis_world world;
	struct redis_server other; /* a replica, or a Sentinel */
	struct idem_loop *loop;
	struct hasty_loop hasty;
	struct idem_store *store;
	struct request request;
	struct claim claim;
	struct idem_watch watch;
	uint64_t next_key;
	bool answered, changed;
};

static struct bench *bench;

static void
arm(unsigned long n)
{
	allocations_left = n;
}

static void
open_store(void)
{
	int rc;
	struct idem_redis_options options = redis_world_options(&bench->world, &bench->hasty.base);
	char why[512];

	do {
		rc = idem_redis_open(&options, &bench->store, why, sizeof why);
		if (rc != IDEM_OK)
			assert_int_equal(rc, IDEM_E_NOMEM);
	} while (rc != IDEM_OK);
}

static void
close_store(void)
{
	idem_store_close(bench->store);
	bench->store = NULL;
}

/* A server, and no store yet. */
static void
bench_make_server(const char *const *more)
{
	bench = calloc(1, sizeof *bench);
	assert_non_null(bench);
	redis_world_make(&bench->world, more);
	bench->world.timeout_ms = TIMEOUT_MS;
	assert_ok(idem_poll_loop_new(&bench->loop));
	hasty_loop_init(&bench->hasty, bench->loop, TIMES);
}

static void
bench_make(const char *options)
{
	bench_make_server(NULL);
	(void)snprintf(bench->world.uri, sizeof bench->world.uri, "unix:%s?connections=1%s",
	               bench->world.server.socket, options);
	open_store();
}

static void
bench_free(void)
{
	close_store();
	idem_poll_loop_free(bench->loop);
	redis_world_free(&bench->world);
	if (bench->other.pid != 0)
		redis_server_free(&bench->other);
	free(bench);
}

static void
new_key(void)
{
	bench->request = actor_request(bench->next_key++, LEASE_MS, TTL_MS);
	bench->claim = (struct claim){.attempt = 1};
	bench->watch.id = bench->request.id;
}

/* ---- one who asks until there is an answer ---- */

static void
answered(struct idem_io *io)
{
	(void)io;
	bench->answered = true;
}

static int
ask_once(struct idem_io *io)
{
	io->done = answered;
	bench->answered = false;
	if (bench->store->ops->cas(bench->store, io) == IDEM_OK)
		(void)(idem_poll_loop_run(bench->loop, NULL, 2) == IDEM_OK);
	else
		assert_ok(idem_poll_loop_run(bench->loop, &bench->answered, PATIENCE_MS));
	return io->status;
}

/* At most one allocation fails; then there is memory again. */
static void
ask_until_answered(struct idem_io *io)
{
	for (int i = 0; ask_once(io) != IDEM_OK; i++) {
		assert_true(i < 100);
		if (io->status != IDEM_E_NOMEM && io->status != IDEM_E_UNAVAILABLE)
			assert_int_equal(io->status, IDEM_E_INDOUBT);
		bench->store->ops->release(bench->store, io);
	}
}

static int
act(enum idem_verb verb)
{
	struct idem_op op = {
		.verb = verb,
		.policy = bench->request.policy,
		.id = bench->request.id,
		.fingerprint = bench->request.fingerprint,
		.fresh = actor_tag(),
		.owner = bench->claim.owner,
		.attempt = bench->claim.attempt,
		.payload = verb == IDEM_COMPLETE ? bytes_of("the answer") : bytes_of(""),
	};
	struct idem_io io = {0};
	bool asked = false;

	while (idem_step(&op, asked ? &io : NULL, &io)) {
		asked = true;
		ask_until_answered(&io);
	}
	assert_ok(op.status);
	if (verb == IDEM_CLAIM || verb == IDEM_RENEW)
		bench->claim.owner = op.won;
	if (op.verdict == IDEM_REPLAY) {
		assert_int_equal(op.found.payload.len, 10);
		assert_memory_equal(op.found.payload.data, "the answer", 10);
	}
	bench->store->ops->release(bench->store, &io);
	return (int)op.verdict;
}

/* ---- deeds ---- */

static void
claim(void)
{
	assert_int_equal(act(IDEM_CLAIM), IDEM_EXECUTE);
}

static void
renew(void)
{
	assert_int_equal(act(IDEM_RENEW), IDEM_RECORDED);
}

static void
complete(void)
{
	assert_int_equal(act(IDEM_COMPLETE), IDEM_RECORDED);
}

static void
release(void)
{
	assert_int_equal(act(IDEM_RELEASE), IDEM_RECORDED);
}

static void
replay(void)
{
	assert_int_equal(act(IDEM_CLAIM), IDEM_REPLAY);
}

static void
claim_and_complete(void)
{
	claim();
	complete();
}

static void
open_and_claim(void)
{
	open_store();
	claim();
}

static void
nothing(void)
{
}

static void
changed(struct idem_watch *watch)
{
	(void)watch;
	bench->changed = true;
}

/* Of a lock that was there when it was asked for. */
static void
watch_its_end(void)
{
	struct idem_store *store = bench->store;
	struct idem_tag owner = bench->claim.owner;

	bench->watch.changed = changed;
	while (store->ops->watch(store, &bench->watch) != IDEM_OK)
		;
	assert_int_equal(act(IDEM_CLAIM), IDEM_IN_PROGRESS);
	bench->claim.owner = owner;
	bench->changed = false;
	complete();
	assert_ok(idem_poll_loop_run(bench->loop, &bench->changed, PATIENCE_MS));
	store->ops->unwatch(store, &bench->watch);
}

static void
open_and_watch(void)
{
	open_store();
	claim();
	watch_its_end();
}

/* Until a run in which nothing failed. */
static void
fail_each(void (*before)(void), void (*during)(void), unsigned long at_least)
{
	unsigned long first = failures, failed;
	unsigned long n = 0;

	do {
		failed = failures;
		new_key();
		before();
		arm(++n);
		during();
		arm(0);
	} while (failures != failed);
	assert_true(failures - first >= at_least);
}

/* ---- tests ---- */

static void
every_allocation_for_a_request_may_fail(void **state)
{
	(void)state;
	bench_make("");
	fail_each(nothing, claim, 3);
	fail_each(claim, renew, 3);
	fail_each(claim, complete, 3);
	fail_each(claim, release, 3);
	fail_each(claim_and_complete, replay, 4);
	bench_free();
}

static void
every_allocation_of_the_beginning_may_fail(void **state)
{
	(void)state;
	bench_make("&db=3&prefix=x:");
	fail_each(close_store, open_and_claim, 10);
	fail_each(close_store, open_and_watch, 15);
	bench_free();
}

static void
every_allocation_for_a_watch_may_fail(void **state)
{
	(void)state;
	bench_make("");
	fail_each(claim, watch_its_end, 8);
	bench_free();
}

/* There may be no other command that would take the WAIT along. */
static void
nobody_waits_for_ever_for_replicas(void **state)
{
	char port[8];
	const char *const more[] = {"--replicaof", "127.0.0.1", port, NULL};

	(void)state;
	bench_make("&wait_replicas=1,1000");
	(void)snprintf(port, sizeof port, "%u", bench->world.server.port);
	redis_server_start(&bench->other, more);
	redis_server_await(&bench->world.server, "INFO replication", "state=online");
	fail_each(nothing, claim, 4);
	fail_each(claim, complete, 4);
	bench_free();
}

static void
assert_all_may_fail_at(const char *form, unsigned port)
{
	(void)snprintf(bench->world.uri, sizeof bench->world.uri, form, port);
	open_store();
	fail_each(nothing, claim, 3);
	fail_each(close_store, open_and_claim, 15);
	fail_each(claim, watch_its_end, 8);
	fail_each(close_store, open_and_watch, 20);
	bench_free();
}

static void
every_allocation_for_a_cluster_may_fail(void **state)
{
	char bus[8];
	const char *const more[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};

	(void)state;
	(void)snprintf(bus, sizeof bus, "%u", free_port());
	bench_make_server(more);
	assert_string_equal(redis_server_say(&bench->world.server, "CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
	redis_server_await(&bench->world.server, "CLUSTER INFO", "cluster_state:ok");
	assert_all_may_fail_at("redis+cluster://127.0.0.1:%u?connections=1", bench->world.server.port);
}

static void
every_allocation_for_sentinels_may_fail(void **state)
{
	static const char *const more[] = {"--sentinel", NULL};

	(void)state;
	bench_make_server(NULL);
	redis_server_start(&bench->other, more);
	assert_string_equal(redis_server_say(&bench->other, "SENTINEL MONITOR shop 127.0.0.1 %u 1",
	                                     bench->world.server.port),
	                    "OK");
	assert_all_may_fail_at("redis+sentinel://127.0.0.1:%u/shop?connections=1", bench->other.port);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_for_a_request_may_fail),
		cmocka_unit_test(every_allocation_of_the_beginning_may_fail),
		cmocka_unit_test(every_allocation_for_a_watch_may_fail),
		cmocka_unit_test(every_allocation_for_a_cluster_may_fail),
		cmocka_unit_test(every_allocation_for_sentinels_may_fail),
		cmocka_unit_test(nobody_waits_for_ever_for_replicas),
	};

	if (CRYPTO_set_mem_functions(allocate, reallocate, release_memory) != 1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
