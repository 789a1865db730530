/* The guard in virtual time: waiting, renewing, failing stores, and hosts that leave. */
#include <sys/wait.h>
#include <unistd.h>

#include "sim.h"

struct world {
	struct sim_loop loop;
	struct sim_store store;
	struct idem_guard_env env;
	unsigned seed;
	struct idem_policy policy;
	uint64_t wait_ms;
};

/* What a host has heard. */
struct host {
	int decided, settled, lost;
	bool leave; /* free the guard from inside the callback */
};

static void
on_decided(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	host->decided++;
	if (host->leave)
		idem_guard_free(guard);
}

static void
on_settled(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	host->settled++;
	if (host->leave)
		idem_guard_free(guard);
}

static void
on_lost(struct idem_guard *guard, void *data)
{
	(void)guard;
	((struct host *)data)->lost++;
}

static const struct idem_guard_events events = {on_decided, on_settled, on_lost};

#define WORLD(world)                                                                                         \
	struct world world = {.loop = sim_loop_make(), .seed = 1, .policy = {3000, 60000, false}};           \
	world.store = sim_store_make(&world.loop);                                                           \
	world.env = (struct idem_guard_env)                                                                  \
	{                                                                                                    \
		.store = &world.store.base, .loop = &world.loop.base, .random = sim_random,                  \
		.random_data = &world.seed, .store_timeout_ms = 500                                          \
	}

/* Everything has ended: no guard, no timer, no watch, each finished io released. */
static void
assert_quiet(struct world *world)
{
	assert_int_equal(world->env.busy, 0);
	assert_int_equal(world->loop.count, 0);
	assert_null(world->store.watches);
	assert_int_equal(world->store.releases, world->store.finished);
}

static struct idem_guard *
guard_make(struct world *world, char request, struct host *host)
{
	struct idem_guard_request wanted = {.policy = world->policy, .wait_ms = world->wait_ms};
	struct idem_guard *guard = NULL;

	memset(wanted.id.b, 7, sizeof wanted.id.b);
	memset(wanted.fingerprint.b, request, sizeof wanted.fingerprint.b);
	assert_ok(idem_guard_new(&world->env, &wanted, &events, host, &guard));
	return guard;
}

static int
complete(struct idem_guard *guard, const char *text)
{
	return idem_guard_complete(guard, strdup(text), strlen(text));
}

/* What a new request is told now; its guard is freed, released if it was to execute. */
static enum idem_verdict
ask(struct world *world)
{
	struct host host = {0};
	uint64_t wait_ms = world->wait_ms;
	struct idem_guard *guard;
	enum idem_verdict verdict;

	world->wait_ms = 0;
	guard = guard_make(world, 'a', &host);
	assert_ok(idem_guard_begin(guard));
	assert_ok(idem_guard_status(guard));
	verdict = idem_guard_verdict(guard);
	if (verdict == IDEM_EXECUTE)
		assert_ok(idem_guard_release(guard));
	idem_guard_free(guard);
	world->wait_ms = wait_ms;
	return verdict;
}

static void
an_execution_is_recorded_and_replayed_at_once(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host), *second;

	(void)state;
	assert_ok(idem_guard_begin(guard));
	assert_int_equal(idem_guard_verdict(guard), IDEM_EXECUTE);
	assert_int_equal(idem_guard_attempt(guard), 1);
	assert_ok(complete(guard, "answer"));
	assert_int_equal(idem_guard_settled_verdict(guard), IDEM_RECORDED);
	idem_guard_free(guard);
	second = guard_make(&world, 'a', &host);
	assert_ok(idem_guard_begin(second));
	assert_int_equal(idem_guard_verdict(second), IDEM_REPLAY);
	assert_memory_equal(idem_guard_found(second)->payload.data, "answer", 6);
	assert_int_equal(complete(second, "x"), IDEM_E_INVALID);
	idem_guard_free(second);
	assert_int_equal(host.decided + host.settled + host.lost, 0);
	assert_int_equal(world.store.calls, 3);
	assert_quiet(&world);
}

static void
durations_of_zero_are_refused(void **state)
{
	WORLD(world);
	struct idem_guard_request request = {.policy = {0, 1, false}};
	struct idem_guard *guard;

	(void)state;
	assert_int_equal(idem_guard_new(&world.env, &request, &events, NULL, &guard), IDEM_E_INVALID);
	request.policy = (struct idem_policy){1, 0, false};
	assert_int_equal(idem_guard_new(&world.env, &request, &events, NULL, &guard), IDEM_E_INVALID);
	idem_guard_free(NULL);
}

static void
a_store_that_answers_later_calls_back_once(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	world.store.faults[0] = SIM_LATE;
	world.store.faults[1] = SIM_LATE;
	assert_int_equal(idem_guard_begin(guard), IDEM_PENDING);
	sim_pass(&world.loop, 9);
	assert_int_equal(host.decided, 0);
	sim_pass(&world.loop, 1);
	assert_int_equal(host.decided, 1);
	assert_int_equal(idem_guard_verdict(guard), IDEM_EXECUTE);
	assert_int_equal(complete(guard, "x"), IDEM_PENDING);
	sim_pass(&world.loop, 10);
	assert_int_equal(host.settled, 1);
	assert_int_equal(idem_guard_settled_verdict(guard), IDEM_RECORDED);
	assert_int_equal(idem_guard_store_ms(guard), 20);
	idem_guard_free(guard);
	assert_quiet(&world);
}

static void
a_lease_is_renewed_while_the_host_executes(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);
	size_t calls;

	(void)state;
	assert_ok(idem_guard_begin(guard));
	for (int i = 0; i < 20; i++) {
		sim_pass(&world.loop, 1000);
		assert_int_equal(ask(&world), IDEM_IN_PROGRESS);
	}
	calls = world.store.calls;
	assert_ok(complete(guard, "x"));
	assert_int_equal(world.store.calls, calls + 1); /* it knows the tag of the last renewal */
	idem_guard_free(guard);
	assert_int_equal(ask(&world), IDEM_REPLAY);
	assert_quiet(&world);
}

static void
a_renewal_that_fails_is_tried_again_in_time(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	world.store.faults[1] = SIM_UNAVAILABLE;
	world.store.faults[2] = SIM_NEVER_BEFORE;
	assert_ok(idem_guard_begin(guard));
	sim_pass(&world.loop, 3600);
	assert_int_equal(ask(&world), IDEM_IN_PROGRESS);
	assert_ok(idem_guard_give_up(guard));
	idem_guard_free(guard);
	assert_int_equal(ask(&world), IDEM_IN_DOUBT);
	assert_quiet(&world);
}

static void
a_lost_lease_is_told_once_and_its_response_is_not_recorded(void **state)
{
	WORLD(world);
	struct host host = {0}, other = {0};
	struct idem_guard *stale, *owner;
	size_t calls;

	(void)state;
	world.policy.retry_in_doubt = true;
	stale = guard_make(&world, 'a', &host);
	assert_ok(idem_guard_begin(stale));
	world.loop.now_ms += 5000; /* its process was stopped */
	owner = guard_make(&world, 'a', &other);
	assert_ok(idem_guard_begin(owner));
	assert_int_equal(idem_guard_attempt(owner), 2);
	sim_pass(&world.loop, 5000);
	assert_int_equal(host.lost, 1);
	calls = world.store.calls;
	assert_ok(complete(stale, "stale"));
	assert_int_equal(world.store.calls, calls); /* the store would say nothing new */
	assert_int_equal(idem_guard_settled_verdict(stale), IDEM_LOST);
	assert_ok(complete(owner, "fresh"));
	assert_int_equal(idem_guard_settled_verdict(owner), IDEM_RECORDED);
	idem_guard_free(stale);
	idem_guard_free(owner);
	assert_int_equal(other.lost, 0);
	assert_quiet(&world);
}

static void
wait_for_an_execution(bool can_watch, uint64_t expected_ms)
{
	WORLD(world);
	struct host first_host = {0}, host = {0};
	struct idem_guard *first = guard_make(&world, 'a', &first_host), *waiter;

	world.store.can_watch = can_watch;
	world.wait_ms = 10000;
	assert_ok(idem_guard_begin(first));
	waiter = guard_make(&world, 'a', &host);
	assert_int_equal(idem_guard_begin(waiter), IDEM_PENDING);
	sim_pass(&world.loop, 2550);
	assert_int_equal(host.decided, 0);
	assert_ok(complete(first, "x"));
	sim_hint(&world.store, &(struct idem_id){{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	                                          7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}});
	sim_pass(&world.loop, expected_ms);
	assert_int_equal(host.decided, 1);
	assert_int_equal(idem_guard_verdict(waiter), IDEM_REPLAY);
	assert_in_range(idem_guard_waited_ms(waiter), 2550, 2550 + expected_ms);
	idem_guard_free(first);
	idem_guard_free(waiter);
	assert_quiet(&world);
}

static void
a_waiter_is_woken_by_a_hint_or_by_the_net_poll(void **state)
{
	(void)state;
	wait_for_an_execution(true, 0);
	wait_for_an_execution(false, 100);
}

static void
a_waiter_asks_again_as_soon_as_it_watches(void **state)
{
	WORLD(world);
	struct host first_host = {0}, host = {0};
	struct idem_guard *first = guard_make(&world, 'a', &first_host), *waiter;

	(void)state;
	world.store.can_watch = true;
	world.wait_ms = 10000;
	assert_ok(idem_guard_begin(first));
	waiter = guard_make(&world, 'a', &host);
	assert_int_equal(idem_guard_begin(waiter), IDEM_PENDING);
	assert_ok(complete(first, "x")); /* as if between the claim and the watch: no hint comes */
	sim_pass(&world.loop, 0);
	assert_int_equal(host.decided, 1);
	assert_int_equal(idem_guard_verdict(waiter), IDEM_REPLAY);
	idem_guard_free(first);
	idem_guard_free(waiter);
	assert_quiet(&world);
}

static void
a_waiter_asks_at_most_every_100_ms_and_ends_with_its_wait(void **state)
{
	WORLD(world);
	struct host first_host = {0}, host = {0};
	struct idem_guard *first = guard_make(&world, 'a', &first_host), *waiter;
	size_t before;

	(void)state;
	assert_ok(idem_guard_begin(first));
	world.wait_ms = 1000;
	waiter = guard_make(&world, 'a', &host);
	before = world.store.calls;
	assert_int_equal(idem_guard_begin(waiter), IDEM_PENDING);
	sim_pass(&world.loop, 999);
	assert_int_equal(host.decided, 0);
	sim_pass(&world.loop, 1);
	assert_int_equal(host.decided, 1);
	assert_int_equal(idem_guard_verdict(waiter), IDEM_IN_PROGRESS);
	assert_in_range(idem_guard_lease_left_ms(waiter), 1, 3000);
	assert_in_range(world.store.calls - before, 2, 13); /* renewals of the first among them */
	idem_guard_free(waiter);
	idem_guard_free(first);
	sim_pass(&world.loop, 10000);
	assert_quiet(&world);
}

static void
a_waiter_takes_over_from_a_dead_owner_under_retry(void **state)
{
	WORLD(world);
	struct host dead_host = {0}, host = {0};
	struct idem_guard *dead, *waiter;

	(void)state;
	world.policy.retry_in_doubt = true;
	world.store.can_watch = true;
	dead = guard_make(&world, 'a', &dead_host);
	assert_ok(idem_guard_begin(dead));
	sim_timer_stop(&world.loop.base, world.loop.timers[0]); /* its process has died */
	world.wait_ms = 10000;
	waiter = guard_make(&world, 'a', &host);
	assert_int_equal(idem_guard_begin(waiter), IDEM_PENDING);
	sim_pass(&world.loop, 3100);
	assert_int_equal(host.decided, 1);
	assert_int_equal(idem_guard_verdict(waiter), IDEM_EXECUTE);
	assert_int_equal(idem_guard_attempt(waiter), 2);
	assert_ok(idem_guard_give_up(waiter));
	idem_guard_free(waiter);
	idem_guard_free(dead);
	sim_pass(&world.loop, 10000);
	assert_quiet(&world);
}

static void
a_claim_whose_reply_was_lost_is_asked_again_and_won(void **state)
{
	static const enum sim_fault faults[] = {SIM_LOSE_BEFORE, SIM_LOSE_AFTER};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		WORLD(world);
		struct host host = {0};
		struct idem_guard *guard = guard_make(&world, 'a', &host);

		world.store.faults[0] = faults[i];
		assert_int_equal(idem_guard_begin(guard), IDEM_PENDING);
		sim_pass(&world.loop, 50);
		assert_int_equal(host.decided, 1);
		assert_int_equal(idem_guard_verdict(guard), IDEM_EXECUTE);
		assert_ok(idem_guard_release(guard));
		idem_guard_free(guard);
		assert_quiet(&world);
	}
}

static void
a_claim_that_stays_in_doubt_is_refused_and_released_behind(void **state)
{
	static const enum sim_fault faults[] = {SIM_NEVER_BEFORE, SIM_NEVER_AFTER};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		WORLD(world);
		struct host host = {.leave = true};
		struct idem_guard *guard = guard_make(&world, 'a', &host);

		world.store.faults[0] = faults[i];
		world.store.faults[1] = SIM_UNAVAILABLE;
		assert_int_equal(idem_guard_begin(guard), IDEM_PENDING);
		sim_pass(&world.loop, 499);
		assert_int_equal(host.decided, 0);
		sim_pass(&world.loop, 1);
		assert_int_equal(host.decided, 1); /* and the host has freed it from inside */
		sim_pass(&world.loop, 1500);
		assert_int_equal(ask(&world), IDEM_EXECUTE);
		assert_quiet(&world);
	}
}

static void
a_claim_in_doubt_stays_so_when_the_store_is_gone_afterwards(void **state)
{
	static const enum sim_fault faults[] = {SIM_UNAVAILABLE, SIM_FULL};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		WORLD(world);
		struct host host = {0};
		struct idem_guard *guard = guard_make(&world, 'a', &host);

		world.store.faults[0] = SIM_LOSE_AFTER;
		for (size_t call = 1; call < 6; call++)
			world.store.faults[call] = faults[i];
		assert_int_equal(idem_guard_begin(guard), IDEM_PENDING);
		sim_pass(&world.loop, 500);
		assert_int_equal(host.decided, 1);
		assert_int_equal(idem_guard_status(guard), IDEM_E_INDOUBT);
		idem_guard_free(guard);
		sim_pass(&world.loop, 3000);
		assert_int_equal(ask(&world), IDEM_EXECUTE);
		assert_quiet(&world);
	}
}

static void
a_store_that_refuses_a_claim_is_told_at_once(void **state)
{
	static const enum sim_fault faults[] = {SIM_UNAVAILABLE, SIM_FULL};
	static const int statuses[] = {IDEM_E_UNAVAILABLE, IDEM_E_FULL};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		WORLD(world);
		struct host host = {0};
		struct idem_guard *guard = guard_make(&world, 'a', &host);

		world.store.faults[0] = faults[i];
		assert_ok(idem_guard_begin(guard));
		assert_int_equal(idem_guard_status(guard), statuses[i]);
		assert_int_equal(idem_guard_verdict(guard), IDEM_UNDECIDED);
		idem_guard_free(guard);
		assert_quiet(&world);
	}
}

static void
a_completion_that_fails_is_told_and_goes_on_behind(void **state)
{
	static const enum sim_fault faults[] = {SIM_UNAVAILABLE, SIM_FULL, SIM_NEVER_BEFORE, SIM_NEVER_AFTER};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		WORLD(world);
		struct host host = {0};
		struct idem_guard *guard = guard_make(&world, 'a', &host);
		int rc;

		world.store.faults[1] = faults[i];
		for (size_t call = 2; call < 7; call++)
			world.store.faults[call] = i == 0 ? SIM_UNAVAILABLE : SIM_WORKS;
		assert_ok(idem_guard_begin(guard));
		rc = complete(guard, "x");
		assert_int_equal(rc, faults[i] == SIM_FULL ? IDEM_OK : IDEM_PENDING);
		sim_pass(&world.loop, 500);
		assert_true(idem_guard_settled_status(guard) < 0);
		assert_int_equal(host.settled, faults[i] == SIM_FULL ? 0 : 1);
		idem_guard_free(guard);
		sim_pass(&world.loop, 2400);
		assert_int_equal(ask(&world), IDEM_REPLAY);
		assert_quiet(&world);
	}
}

static void
a_completion_outlasts_a_short_outage_before_its_host_is_told(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	world.store.faults[1] = SIM_UNAVAILABLE;
	world.store.faults[2] = SIM_UNAVAILABLE;
	assert_ok(idem_guard_begin(guard));
	assert_int_equal(complete(guard, "x"), IDEM_PENDING);
	sim_pass(&world.loop, 499);
	assert_int_equal(host.settled, 1);
	assert_ok(idem_guard_settled_status(guard));
	assert_int_equal(idem_guard_settled_verdict(guard), IDEM_RECORDED);
	idem_guard_free(guard);
	assert_quiet(&world);
}

static void
a_completion_that_never_succeeds_ends_with_its_lease(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	for (size_t i = 1; i < 20; i++)
		world.store.faults[i] = SIM_UNAVAILABLE;
	assert_ok(idem_guard_begin(guard));
	assert_int_equal(complete(guard, "x"), IDEM_PENDING);
	idem_guard_free(guard);
	sim_pass(&world.loop, 5000);
	assert_quiet(&world);
	world.store.calls = 63;
	assert_int_equal(ask(&world), IDEM_IN_DOUBT);
}

static void
a_record_that_is_too_long_may_be_replaced_by_a_shorter_one(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host), *second;

	(void)state;
	world.store.faults[1] = SIM_FULL;
	assert_ok(idem_guard_begin(guard));
	assert_ok(complete(guard, "much too long"));
	assert_int_equal(idem_guard_settled_status(guard), IDEM_E_FULL);
	assert_ok(complete(guard, "short"));
	assert_int_equal(idem_guard_settled_verdict(guard), IDEM_RECORDED);
	assert_int_equal(complete(guard, "again"), IDEM_E_INVALID);
	idem_guard_free(guard);
	second = guard_make(&world, 'a', &host);
	assert_ok(idem_guard_begin(second));
	assert_int_equal(idem_guard_found(second)->payload.len, 5);
	idem_guard_free(second);
	assert_quiet(&world);
}

static void
a_host_that_leaves_unsettled_leaves_doubt(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	assert_ok(idem_guard_begin(guard));
	idem_guard_free(guard);
	assert_int_equal(ask(&world), IDEM_IN_DOUBT);
	assert_quiet(&world);
}

static void
a_host_that_leaves_during_its_completion_is_completed(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	world.store.faults[1] = SIM_LATE;
	assert_ok(idem_guard_begin(guard));
	assert_int_equal(complete(guard, "x"), IDEM_PENDING);
	idem_guard_free(guard);
	sim_pass(&world.loop, 10);
	assert_int_equal(host.settled, 0);
	assert_int_equal(ask(&world), IDEM_REPLAY);
	assert_quiet(&world);
}

static void
a_host_that_leaves_during_its_claim_executes_nothing(void **state)
{
	static const enum sim_fault faults[] = {SIM_LATE, SIM_NEVER_AFTER, SIM_NEVER_BEFORE};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		WORLD(world);
		struct host host = {0};
		struct idem_guard *guard = guard_make(&world, 'a', &host);

		world.store.faults[0] = faults[i];
		assert_int_equal(idem_guard_begin(guard), IDEM_PENDING);
		idem_guard_free(guard);
		sim_pass(&world.loop, 600);
		assert_int_equal(host.decided, 0);
		assert_int_equal(ask(&world), IDEM_EXECUTE);
		assert_quiet(&world);
	}
}

static void
a_host_that_leaves_while_it_waits_is_forgotten(void **state)
{
	WORLD(world);
	struct host first_host = {0}, host = {0};
	struct idem_guard *first = guard_make(&world, 'a', &first_host), *waiter;

	(void)state;
	world.store.can_watch = true;
	assert_ok(idem_guard_begin(first));
	world.wait_ms = 5000;
	waiter = guard_make(&world, 'a', &host);
	assert_int_equal(idem_guard_begin(waiter), IDEM_PENDING);
	sim_pass(&world.loop, 50);
	idem_guard_free(waiter);
	assert_null(world.store.watches);
	assert_ok(complete(first, "x"));
	idem_guard_free(first);
	assert_int_equal(host.decided, 0);
	assert_quiet(&world);
}

static int
no_random(void *data, void *buf, size_t len)
{
	(void)data;
	(void)buf;
	(void)len;
	return IDEM_E_RANDOM;
}

static void
without_randomness_nothing_is_executed_or_written(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	world.env.random = no_random;
	assert_ok(idem_guard_begin(guard));
	assert_int_equal(idem_guard_status(guard), IDEM_E_RANDOM);
	idem_guard_free(guard);
	assert_int_equal(world.store.calls, 0);
	assert_quiet(&world);
}

static void
a_completion_waits_for_randomness(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host);

	(void)state;
	assert_ok(idem_guard_begin(guard));
	world.env.random = no_random;
	world.env.spare_random_len = 0;
	assert_ok(complete(guard, "x"));
	assert_int_equal(idem_guard_settled_status(guard), IDEM_E_RANDOM);
	idem_guard_free(guard);
	sim_pass(&world.loop, 1500);
	world.env.random = sim_random;
	sim_pass(&world.loop, 1000);
	assert_int_equal(ask(&world), IDEM_REPLAY);
	assert_quiet(&world);
}

static void
a_child_of_fork_shares_no_tag_with_its_parent(void **state)
{
	WORLD(world);
	struct host host = {0};
	struct idem_guard *guard = guard_make(&world, 'a', &host), *second;
	struct idem_tag of_child;
	const struct idem_tag *tag;
	struct idem_id id;
	int pipes[2];
	pid_t child;

	(void)state;
	world.env.random = NULL;
	assert_ok(idem_guard_begin(guard)); /* and the environment has bytes to spare */
	assert_ok(idem_guard_release(guard));
	idem_guard_free(guard);
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	second = guard_make(&world, 'a', &host);
	assert_ok(idem_guard_begin(second));
	memset(id.b, 7, sizeof id.b);
	tag = &sim_find(&world.store, &id)->cell.tag;
	if (child == 0)
		_exit(write(pipes[1], tag, sizeof *tag) != sizeof *tag);
	assert_true(child > 0);
	assert_int_equal(read(pipes[0], &of_child, sizeof of_child), sizeof of_child);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_false(idem_tag_is_zero(&of_child));
	assert_false(idem_tag_same_owner(&of_child, tag));
	assert_ok(idem_guard_release(second));
	idem_guard_free(second);
	assert_int_equal(close(pipes[0]) + close(pipes[1]), 0);
	assert_quiet(&world);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_execution_is_recorded_and_replayed_at_once),
		cmocka_unit_test(durations_of_zero_are_refused),
		cmocka_unit_test(a_store_that_answers_later_calls_back_once),
		cmocka_unit_test(a_lease_is_renewed_while_the_host_executes),
		cmocka_unit_test(a_renewal_that_fails_is_tried_again_in_time),
		cmocka_unit_test(a_lost_lease_is_told_once_and_its_response_is_not_recorded),
		cmocka_unit_test(a_waiter_is_woken_by_a_hint_or_by_the_net_poll),
		cmocka_unit_test(a_waiter_asks_again_as_soon_as_it_watches),
		cmocka_unit_test(a_waiter_asks_at_most_every_100_ms_and_ends_with_its_wait),
		cmocka_unit_test(a_waiter_takes_over_from_a_dead_owner_under_retry),
		cmocka_unit_test(a_claim_whose_reply_was_lost_is_asked_again_and_won),
		cmocka_unit_test(a_claim_that_stays_in_doubt_is_refused_and_released_behind),
		cmocka_unit_test(a_claim_in_doubt_stays_so_when_the_store_is_gone_afterwards),
		cmocka_unit_test(a_store_that_refuses_a_claim_is_told_at_once),
		cmocka_unit_test(a_completion_that_fails_is_told_and_goes_on_behind),
		cmocka_unit_test(a_completion_outlasts_a_short_outage_before_its_host_is_told),
		cmocka_unit_test(a_completion_that_never_succeeds_ends_with_its_lease),
		cmocka_unit_test(a_record_that_is_too_long_may_be_replaced_by_a_shorter_one),
		cmocka_unit_test(a_host_that_leaves_unsettled_leaves_doubt),
		cmocka_unit_test(a_host_that_leaves_during_its_completion_is_completed),
		cmocka_unit_test(a_host_that_leaves_during_its_claim_executes_nothing),
		cmocka_unit_test(a_host_that_leaves_while_it_waits_is_forgotten),
		cmocka_unit_test(without_randomness_nothing_is_executed_or_written),
		cmocka_unit_test(a_completion_waits_for_randomness),
		cmocka_unit_test(a_child_of_fork_shares_no_tag_with_its_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
