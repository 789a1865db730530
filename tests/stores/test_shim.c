/*
 * The guard over a store that fails at every one of its calls, in every way.
 *
 * Each story is told without a fault first, then with each fault at its first call, its second,
 * and so on until the story makes no more of them; once for a single call and once for
 * three in a row.  Time is virtual.  However it went: as many effects as the
 * story says, the right verdict in the end, and nothing left behind.
 */
#include "../support/sim.h"
#include "memory_world.h"
#include "shim.h"

#define LEASE_MS 10000
#define TTL_MS 3600000
#define PATIENCE_MS 60000

struct world {
	struct sim_loop loop;
	struct memory_world memory;
	struct shim *shim;
	size_t calls; /* of the story that was told last */
	struct idem_guard_env env;
	unsigned effects;
};

struct host {
	struct world *world;
	struct idem_guard *guard;
	bool decided, settled;
};

/* ---- the world ---- */

static uint64_t
sim_clock(void *data)
{
	return ((struct sim_loop *)data)->now_ms;
}

static void
world_open(struct world *world)
{
	struct idem_memory_options options;
	struct idem_store *inner;

	world->loop = sim_loop_make();
	world->effects = 0;
	assert_true(memory_world_format(&world->memory));
	options = (struct idem_memory_options){
		.region = world->memory.region,
		.len = world->memory.len,
		.clock_ms = sim_clock,
		.clock_data = &world->loop,
	};
	assert_ok(idem_memory_open(&options, &inner));
	world->shim = shim_open(inner, &world->loop.base);
	assert_non_null(world->shim);
	world->env = (struct idem_guard_env){
		.store = &world->shim->base,
		.loop = &world->loop.base,
		.store_timeout_ms = 500,
	};
}

/* All that goes on behind the hosts has come to its end. */
static void
world_close(struct world *world)
{
	char fault[128] = "";

	sim_pass(&world->loop, PATIENCE_MS);
	assert_int_equal(world->env.busy, 0);
	assert_int_equal(world->shim->pending, 0);
	assert_int_equal(world->shim->finished, world->shim->released);
	assert_int_equal(world->loop.count, 0);
	if (idem_memory_verify(world->shim->inner, fault, sizeof fault) != IDEM_OK)
		fail_msg("%s", fault);
	world->calls = world->shim->calls;
	idem_store_close(&world->shim->base);
}

/* ---- hosts ---- */

static void
on_decided(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	assert_ptr_equal(guard, host->guard);
	assert_false(host->decided);
	host->decided = true;
}

static void
on_settled(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	assert_ptr_equal(guard, host->guard);
	assert_false(host->settled);
	host->settled = true;
}

static const struct idem_guard_events events = {.decided = on_decided, .settled = on_settled};

/* How a client asks. */
struct manner {
	uint64_t wait_ms;
	bool retry_in_doubt;
	char body;
};

static const struct manner plain = {.body = 'a'};

/* begin() has been called; what it decided may be known only later. */
static void
host_begin(struct host *host, struct world *world, struct manner manner)
{
	struct idem_guard_request request = {
		.policy = {LEASE_MS, TTL_MS, manner.retry_in_doubt},
		.wait_ms = manner.wait_ms,
	};
	int rc;

	memset(request.id.b, 7, sizeof request.id.b);
	memset(request.fingerprint.b, manner.body, sizeof request.fingerprint.b);
	*host = (struct host){.world = world};
	assert_ok(idem_guard_new(&world->env, &request, &events, host, &host->guard));
	rc = idem_guard_begin(host->guard);
	assert_true(rc == IDEM_OK || rc == IDEM_PENDING);
	if (rc == IDEM_OK)
		host->decided = true;
}

static void
wait_for(struct world *world, const bool *event)
{
	uint64_t until = world->loop.now_ms + PATIENCE_MS;

	while (!*event && sim_fire_next(&world->loop, until))
		;
	assert_true(*event);
}

/* The verdict, or a negative status. */
static int
host_result(struct host *host)
{
	int status;

	wait_for(host->world, &host->decided);
	status = idem_guard_status(host->guard);
	return status < 0 ? status : (int)idem_guard_verdict(host->guard);
}

static void
host_leave(struct host *host)
{
	idem_guard_free(host->guard);
	host->guard = NULL;
}

/* A client that asks again as long as it gets no proper answer.  The verdict; host holds its guard. */
static int
insist(struct host *host, struct world *world, struct manner manner)
{
	for (int i = 0; i < 100; i++) {
		int result;

		host_begin(host, world, manner);
		result = host_result(host);
		if (result > 0 && result != IDEM_IN_PROGRESS)
			return result;
		host_leave(host);
		sim_pass(&world->loop, 500);
	}
	fail_msg("no answer after a hundred tries");
	return IDEM_UNDECIDED;
}

/* ---- what a host does that may execute ---- */

static int
host_execute(struct host *host)
{
	host->world->effects++;
	return idem_guard_complete(host->guard, strdup("answer"), 6);
}

/* Waits for a settlement's first answer, which may be an error, and goes. */
static void
host_see_off(struct host *host, int rc)
{
	assert_true(rc == IDEM_OK || rc == IDEM_PENDING);
	if (rc == IDEM_PENDING)
		wait_for(host->world, &host->settled);
	host_leave(host);
	/* What failed is mended behind the host, within the lease. */
	sim_pass(&host->world->loop, LEASE_MS / 2);
}

static void
check_answer(struct host *host)
{
	const struct idem_cell *found = idem_guard_found(host->guard);

	assert_int_equal(found->payload.len, 6);
	assert_memory_equal(found->payload.data, "answer", 6);
}

/* The last client of a story: its verdict. */
static int
last_verdict(struct world *world, struct manner manner)
{
	struct host host;
	int verdict = insist(&host, world, manner);

	if (verdict == IDEM_REPLAY)
		check_answer(&host);
	if (verdict == IDEM_EXECUTE)
		host_see_off(&host, idem_guard_release(host.guard));
	else
		host_leave(&host);
	return verdict;
}

/* A client whose request is executed, completed, and answered.  False: it was in doubt. */
static bool
execute(struct world *world, struct manner manner)
{
	struct host host;
	int verdict = insist(&host, world, manner);

	if (verdict == IDEM_EXECUTE) {
		host_see_off(&host, host_execute(&host));
		return true;
	}
	assert_int_equal(verdict, IDEM_IN_DOUBT);
	host_leave(&host);
	return false;
}

/* ---- stories: each returns its last client's verdict ---- */

static int
completed(struct world *world)
{
	(void)execute(world, plain);
	return last_verdict(world, plain);
}

static int
released_and_executed_by_the_next(struct world *world)
{
	struct host host;

	if (insist(&host, world, plain) == IDEM_EXECUTE)
		host_see_off(&host, idem_guard_release(host.guard));
	else
		host_leave(&host);
	(void)execute(world, plain);
	return last_verdict(world, plain);
}

static int
given_up(struct world *world)
{
	struct host host;

	if (insist(&host, world, plain) == IDEM_EXECUTE) {
		world->effects++;
		host_see_off(&host, idem_guard_give_up(host.guard));
	} else {
		host_leave(&host);
	}
	return last_verdict(world, plain);
}

static int
given_up_and_dared_again(struct world *world)
{
	struct manner daring = {.retry_in_doubt = true, .body = 'a'};

	(void)given_up(world);
	(void)execute(world, daring);
	return last_verdict(world, plain);
}

static int
executed_for_longer_than_its_lease(struct world *world)
{
	struct host host, second;

	if (insist(&host, world, plain) != IDEM_EXECUTE) {
		host_leave(&host);
		return last_verdict(world, plain);
	}
	for (int i = 0; i < 3; i++) {
		int result;

		sim_pass(&world->loop, LEASE_MS - 1000);
		host_begin(&second, world, plain);
		result = host_result(&second);
		assert_true(result < 0 || result == IDEM_IN_PROGRESS);
		host_leave(&second);
	}
	host_see_off(&host, host_execute(&host));
	return last_verdict(world, plain);
}

static int
waited_for(struct world *world)
{
	struct manner patient = {.wait_ms = 30000, .body = 'a'};
	struct host host, second;
	int result;

	if (insist(&host, world, plain) != IDEM_EXECUTE) {
		host_leave(&host);
		return last_verdict(world, plain);
	}
	host_begin(&second, world, patient);
	sim_pass(&world->loop, 2000);
	host_see_off(&host, host_execute(&host));
	result = host_result(&second);
	if (result > 0)
		assert_int_equal(result, IDEM_REPLAY);
	if (result == IDEM_REPLAY)
		check_answer(&second);
	host_leave(&second);
	return last_verdict(world, plain);
}

static int
left_while_executing(struct world *world)
{
	struct host host;

	if (insist(&host, world, plain) == IDEM_EXECUTE)
		world->effects++;
	host_leave(&host);
	return last_verdict(world, plain);
}

static int
left_while_claiming(struct world *world)
{
	struct host host;

	host_begin(&host, world, plain);
	if (host.decided && host_result(&host) == IDEM_EXECUTE)
		host_see_off(&host, idem_guard_release(host.guard));
	else
		host_leave(&host);
	(void)execute(world, plain);
	return last_verdict(world, plain);
}

static int
left_while_settling(struct world *world)
{
	struct host host;

	if (insist(&host, world, plain) == IDEM_EXECUTE)
		(void)host_execute(&host);
	host_leave(&host);
	sim_pass(&world->loop, LEASE_MS / 2);
	return last_verdict(world, plain);
}

static int
asked_with_another_body(struct world *world)
{
	struct manner other = {.body = 'b'};

	(void)execute(world, plain);
	return last_verdict(world, other);
}

/* ---- every fault at every call ---- */

struct story {
	int (*tell)(struct world *world);
	int verdict;
	unsigned effects;
};

static void
tell(struct world *world, const struct story *story, enum shim_fault fault, size_t from, size_t to)
{
	int verdict;

	world_open(world);
	world->shim->fault = fault;
	world->shim->fault_from = from;
	world->shim->fault_to = to;
	verdict = story->tell(world);
	/* A claim that lands when its maker has gone for good is executed by nobody, and nobody knows. */
	if (fault == SHIM_LANDS_LATE && world->effects < story->effects) {
		if (verdict == IDEM_IN_DOUBT)
			verdict = story->verdict;
	} else if (world->effects != story->effects) {
		fail_msg("fault %d at call %zu up to %zu: %u effects", (int)fault, from, to, world->effects);
	}
	if (verdict != story->verdict)
		fail_msg("fault %d at call %zu up to %zu: %s", (int)fault, from, to,
		         idem_verdict_name((enum idem_verdict)verdict));
	world_close(world);
}

static void
tell_with_every_fault(const struct story *story)
{
	static const size_t bursts[] = {1, 3};
	struct world world;

	assert_true(memory_world_make(&world.memory, IDEM_MEMORY_MIN_BYTES));
	tell(&world, story, SHIM_WORKS, 0, 0);
	assert_true(world.calls > 1);
	for (int fault = SHIM_WORKS + 1; fault < SHIM_FAULTS; fault++) {
		for (size_t i = 0; i < sizeof bursts / sizeof *bursts; i++) {
			size_t call = 0;

			do
				tell(&world, story, (enum shim_fault)fault, call, call + bursts[i]);
			while (++call < world.calls);
		}
	}
	memory_world_free(&world.memory);
}

#define STORY(name, verdict, effects)                                                                        \
	static void a_request_##name(void **state)                                                           \
	{                                                                                                    \
		static const struct story story = {name, verdict, effects};                                  \
                                                                                                             \
		(void)state;                                                                                 \
		tell_with_every_fault(&story);                                                               \
	}

STORY(completed, IDEM_REPLAY, 1)
STORY(released_and_executed_by_the_next, IDEM_REPLAY, 1)
STORY(given_up, IDEM_IN_DOUBT, 1)
STORY(given_up_and_dared_again, IDEM_REPLAY, 2)
STORY(executed_for_longer_than_its_lease, IDEM_REPLAY, 1)
STORY(waited_for, IDEM_REPLAY, 1)
STORY(left_while_executing, IDEM_IN_DOUBT, 1)
STORY(left_while_claiming, IDEM_REPLAY, 1)
STORY(left_while_settling, IDEM_REPLAY, 1)
STORY(asked_with_another_body, IDEM_MISMATCH, 1)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_completed),
		cmocka_unit_test(a_request_released_and_executed_by_the_next),
		cmocka_unit_test(a_request_given_up),
		cmocka_unit_test(a_request_given_up_and_dared_again),
		cmocka_unit_test(a_request_executed_for_longer_than_its_lease),
		cmocka_unit_test(a_request_waited_for),
		cmocka_unit_test(a_request_left_while_executing),
		cmocka_unit_test(a_request_left_while_claiming),
		cmocka_unit_test(a_request_left_while_settling),
		cmocka_unit_test(a_request_asked_with_another_body),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
