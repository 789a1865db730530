/*
 * A process dies at each point where a change is half made.
 *
 * The store is compiled once more with its points armed.  A child performs a mix of all
 * operations and is killed at the Nth point, for each N there is; whoever repairs
 * what it left is killed on the way too.  Then the region must be whole, every answer that
 * was recorded must still be given, and the store must go on working.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/stores/memory/layout.h"
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES ((size_t)1 << 20)
#define LEASE_MS 1000
#define SHORT_MS 10000
#define LONG_MS 1000000000
#define KEYS 8 /* whose answers are promised */

/* A fork is slow in a build with a sanitizer, which sees the same code at every point. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRIDE 5
#else
#define STRIDE 1
#endif

/* Until the kill; 0: none. */
static unsigned long points_left;

void
idem_memory_point(void)
{
	if (points_left > 0 && --points_left == 0)
		(void)kill(getpid(), SIGKILL);
}

/* ---- what the child has promised before it died ---- */

struct promise {
	bool tried;    /* an answer may have been recorded */
	bool recorded; /* it has been */
};

struct stage {
	struct memory_world world;
	struct promise *promises; /* by key; in shared memory */
	struct actor actor;       /* the parent's */
};

static size_t
payload_len(uint64_t number)
{
	return (size_t)(number * 397 % 1500);
}

static int
record(struct stage *stage, struct actor *actor, uint64_t number, const struct request *request,
       const struct claim *claim, size_t len)
{
	void *bytes = payload_make(number, len);
	int verdict;

	if (number < KEYS)
		stage->promises[number].tried = true;
	verdict = actor_complete(actor, request, claim, (struct idem_bytes){bytes, len});
	free(bytes);
	if (number < KEYS && verdict == IDEM_RECORDED)
		stage->promises[number].recorded = true;
	return verdict;
}

/* ---- the mix: each part true if all went as it must ---- */

static struct request
lasting(uint64_t number)
{
	return actor_request(number, LEASE_MS, LONG_MS);
}

static bool
execute(struct stage *stage, struct actor *actor, uint64_t number, uint64_t ttl_ms, size_t len)
{
	struct request request = actor_request(number, LEASE_MS, ttl_ms);
	struct claim claim;

	return actor_claim(actor, &request, &claim) == IDEM_EXECUTE &&
	       record(stage, actor, number, &request, &claim, len) == IDEM_RECORDED;
}

static bool
mix_renew(struct stage *stage, struct actor *actor, uint64_t number)
{
	struct request request = lasting(number);
	struct claim claim;

	return actor_claim(actor, &request, &claim) == IDEM_EXECUTE &&
	       actor_renew(actor, &request, &claim) == IDEM_RECORDED &&
	       record(stage, actor, number, &request, &claim, payload_len(number)) == IDEM_RECORDED;
}

static bool
mix_release(struct actor *actor, uint64_t number)
{
	struct request request = lasting(number);
	struct claim claim;

	return actor_claim(actor, &request, &claim) == IDEM_EXECUTE &&
	       actor_settle(actor, &request, &claim, IDEM_RELEASE, bytes_of("")) == IDEM_RECORDED;
}

static bool
mix_doubt(struct stage *stage, struct actor *actor, uint64_t number)
{
	struct request request = lasting(number);
	struct claim claim;

	request.policy.retry_in_doubt = true;
	return actor_claim(actor, &request, &claim) == IDEM_EXECUTE &&
	       actor_settle(actor, &request, &claim, IDEM_GIVE_UP, bytes_of("")) == IDEM_RECORDED &&
	       actor_claim(actor, &request, &claim) == IDEM_EXECUTE &&
	       record(stage, actor, number, &request, &claim, payload_len(number)) == IDEM_RECORDED;
}

/* No verb writes over an answer; the store can all the same. */
static bool
mix_replace(struct actor *actor, uint64_t number)
{
	struct request request = lasting(number);
	struct idem_io io = {.id = request.id};
	bool fine = true;

	for (size_t len = 300; len < 1000 && fine; len += 300) {
		void *bytes = payload_make(number, len);

		io.write = (struct idem_cell){.tag = actor_tag(), .state = IDEM_STORED, .attempt = 1};
		io.write.retain_ms = SHORT_MS;
		io.write.payload = (struct idem_bytes){bytes, len};
		fine = actor_cas(actor, &io) == IDEM_OK && io.applied;
		actor->store->ops->release(actor->store, &io);
		io.expect = io.write.tag;
		free(bytes);
	}
	return fine;
}

static const struct shard *
shard_of(struct actor *actor, uint64_t number)
{
	struct request request = lasting(number);

	return idem_memory_place((struct memory_store *)actor->store, &request.id).shard;
}

/* The first key from number on that lies where the other key does. */
static uint64_t
neighbour(struct actor *actor, uint64_t other, uint64_t number)
{
	while (shard_of(actor, number) != shard_of(actor, other))
		number++;
	return number;
}

/* Some cells in one shard are over; writes in that shard sweep them. */
static bool
mix_sweep(struct stage *stage, struct actor *actor, uint64_t base)
{
	uint64_t number = base;

	for (int i = 0; i < 7; i++) {
		number = neighbour(actor, base, number + 1);
		if (!execute(stage, actor, number, SHORT_MS, payload_len(number)))
			return false;
	}
	memory_world_advance(&stage->world, SHORT_MS + LEASE_MS);
	/* The last of them is found over by its own claim, the others by the hand. */
	if (!execute(stage, actor, number, SHORT_MS, 10))
		return false;
	for (int i = 0; i < 5; i++) {
		number = neighbour(actor, base, number + 1);
		if (!mix_release(actor, number))
			return false;
	}
	return true;
}

/* New keys are refused; then what is over makes room, in whatever shard it is. */
static bool
mix_full(struct stage *stage, struct actor *actor, uint64_t base)
{
	struct request refused;

	while (execute(stage, actor, base, SHORT_MS, 150000))
		base++;
	while (execute(stage, actor, ++base, SHORT_MS, 20000))
		;
	refused = lasting(++base);
	if (actor_claim(actor, &refused, NULL) != IDEM_E_FULL)
		return false;
	memory_world_advance(&stage->world, SHORT_MS + LEASE_MS);
	return execute(stage, actor, base, SHORT_MS, 400000);
}

static bool
mix(struct stage *stage, struct actor *actor, uint64_t base)
{
	return execute(stage, actor, base, LONG_MS, payload_len(base)) && mix_renew(stage, actor, base + 1) &&
	       mix_release(actor, base + 2) && mix_doubt(stage, actor, base + 3) &&
	       mix_replace(actor, base + 4) && mix_sweep(stage, actor, base + 100) &&
	       mix_full(stage, actor, base + 1000000);
}

/* ---- children ---- */

/* Runs work in a child that dies at its nth point.  True: it ran through, and work was true. */
static bool
child_lives(struct stage *stage, bool (*work)(struct stage *stage, struct actor *actor), unsigned long nth)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		struct actor actor = {.store = memory_world_open(&stage->world, NULL)};

		points_left = nth;
		_exit(actor.store != NULL && work(stage, &actor) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return false;
	assert_int_equal(status, 0);
	return true;
}

static bool
work_mix(struct stage *stage, struct actor *actor)
{
	return mix(stage, actor, 1);
}

/* Takes every lock there is. */
static bool
work_repair(struct stage *stage, struct actor *actor)
{
	struct idem_memory_usage usage;

	(void)stage;
	return idem_memory_usage(actor->store, &usage) == IDEM_OK;
}

/* ---- afterwards ---- */

static void
assert_whole(struct stage *stage, unsigned long nth)
{
	char fault[128] = "";

	if (idem_memory_verify(stage->actor.store, fault, sizeof fault) != IDEM_OK)
		fail_msg("after a death at point %lu: %s", nth, fault);
}

static void
assert_promises_kept(struct stage *stage, unsigned long nth)
{
	for (uint64_t number = 1; number < KEYS; number++) {
		const struct promise *promise = &stage->promises[number];
		struct request request = lasting(number);
		struct claim claim;
		int verdict = actor_claim(&stage->actor, &request, &claim);

		if (promise->recorded && verdict != IDEM_REPLAY)
			fail_msg("a death at point %lu took the answer of key %lu", nth,
			         (unsigned long)number);
		if (verdict == IDEM_REPLAY)
			assert_true(promise->tried &&
			            payload_is(claim.found.payload, number, payload_len(number)));
		claim_free(&claim);
	}
}

static void
begin_anew(struct stage *stage)
{
	assert_true(memory_world_format(&stage->world));
	/* So that the same key lies in the same place, and the mix has the same points, each time. */
	((struct region *)stage->world.region)->secret = 0x9e3779b97f4a7c15;
	memset(stage->promises, 0, KEYS * sizeof *stage->promises);
}

static bool
die_and_go_on(struct stage *stage, unsigned long nth, unsigned long *repairs)
{
	bool lived;

	begin_anew(stage);
	lived = child_lives(stage, work_mix, nth);
	for (unsigned long i = 1; !child_lives(stage, work_repair, i); i++)
		(*repairs)++;
	assert_whole(stage, nth);
	assert_promises_kept(stage, nth);
	memory_world_advance(&stage->world, SHORT_MS + LEASE_MS);
	assert_true(mix(stage, &stage->actor, 5000));
	assert_whole(stage, nth);
	assert_promises_kept(stage, nth);
	return lived;
}

static void
a_death_at_any_point_loses_no_block_and_no_answer(void **state)
{
	struct stage stage;
	unsigned long nth = 1, repairs = 0;

	(void)state;
	assert_true(memory_world_make(&stage.world, REGION_BYTES));
	stage.promises = mmap(NULL, KEYS * sizeof *stage.promises, PROT_READ | PROT_WRITE,
	                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true((void *)stage.promises != MAP_FAILED);
	stage.actor.store = memory_world_open(&stage.world, NULL);
	assert_non_null(stage.actor.store);
	while (!die_and_go_on(&stage, nth, &repairs))
		nth += STRIDE;
	print_message("%lu points, %lu deaths in repairs\n", nth - 1, repairs);
	assert_true(nth > 500 && repairs > 100); /* the points are there */
	idem_store_close(stage.actor.store);
	(void)munmap(stage.promises, KEYS * sizeof *stage.promises);
	memory_world_free(&stage.world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_death_at_any_point_loses_no_block_and_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
