/*
 * Thousands of random lives of three guards of one key, in virtual time: a store
 * that fails, is late or loses replies at any call, hosts that settle or leave at
 * any time, also from inside a callback.  What hosts were told is kept in a ledger,
 * and in the end the store has to say the same.
 */
#include "sim.h"

#define GUARDS 3
#define TTL_MS 600000

enum { MAY_REPLAY = 1, MAY_DOUBT = 2 };

struct life {
	struct sim_loop loop;
	struct sim_store store;
	struct idem_guard_env env;
	struct idem_guard_request request;
	unsigned seed, tags, choices;

	struct host {
		struct life *life;
		struct idem_guard *guard;
		char response;
		bool begun, waits, executes, freed;
		int decided, settled, lost;
	} hosts[GUARDS];

	/* The ledger. */
	int executions; /* told, and not taken back by a release */
	unsigned end;   /* what the last of them may have become */
	char answer;    /* the response that a client may have seen; 0: none */
};

static unsigned
choose(struct life *life, unsigned n)
{
	return (unsigned)rand_r(&life->choices) / 7 % n;
}

static void
broke(const struct life *life, const char *what)
{
	fail_msg("seed %u: %s", life->seed, what);
}

static void
leave(struct host *host)
{
	idem_guard_free(host->guard);
	host->freed = true;
	host->waits = false;
}

/* ---- what hosts are told ---- */

static void
note_answer(struct life *life, char answer)
{
	if (life->answer != 0 && life->answer != answer)
		broke(life, "the answer has changed");
	life->answer = answer;
}

static void
note_execution(struct host *host)
{
	struct life *life = host->life;

	if (life->answer != 0)
		broke(life, "executed after it was answered");
	if (life->executions > 0 && !life->request.policy.retry_in_doubt)
		broke(life, "executed twice");
	life->executions++;
	life->end = MAY_DOUBT; /* unless the host says more */
	host->executes = true;
}

static void
note_decision(struct host *host)
{
	const struct idem_guard *guard = host->guard;

	host->waits = false;
	if (idem_guard_status(guard) != IDEM_OK)
		return;
	if (idem_guard_verdict(guard) == IDEM_EXECUTE)
		note_execution(host);
	else if (idem_guard_verdict(guard) == IDEM_REPLAY)
		note_answer(host->life, *(const char *)idem_guard_found(guard)->payload.data);
}

static void
note_settlement(struct host *host)
{
	host->waits = false;
	if (host->executes && host->response != 0 && idem_guard_settled_status(host->guard) == IDEM_OK &&
	    idem_guard_settled_verdict(host->guard) == IDEM_RECORDED)
		note_answer(host->life, host->response);
}

static void
on_decided(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	host->decided++;
	if (guard != host->guard || host->freed || !host->waits)
		broke(host->life, "decided was called for nobody");
	note_decision(host);
	if (choose(host->life, 4) == 1)
		leave(host);
}

static void
on_settled(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	host->settled++;
	if (guard != host->guard || host->freed || !host->waits)
		broke(host->life, "settled was called for nobody");
	note_settlement(host);
	if (choose(host->life, 4) == 1)
		leave(host);
}

static void
on_lost(struct idem_guard *guard, void *data)
{
	struct host *host = data;

	if (guard != host->guard || host->freed || ++host->lost > 1)
		broke(host->life, "lost was called for nobody");
	if (choose(host->life, 4) == 1)
		leave(host);
}

static const struct idem_guard_events events = {on_decided, on_settled, on_lost};

/* ---- what hosts do ---- */

static void
begin(struct host *host)
{
	int rc;

	host->begun = true;
	host->waits = true;
	rc = idem_guard_begin(host->guard);
	if (host->decided != 0)
		broke(host->life, "decided was called from inside begin()");
	if (rc == IDEM_OK)
		note_decision(host);
}

static int
complete(struct host *host)
{
	char *record = malloc(1);

	assert_non_null(record);
	*record = (char)('1' + (host - host->life->hosts));
	host->response = *record;
	host->life->end |= MAY_REPLAY;
	return idem_guard_complete(host->guard, record, 1);
}

/* A release takes the execution back: nothing was executed. */
static int
release(struct host *host)
{
	host->executes = false;
	host->life->executions--;
	return idem_guard_release(host->guard);
}

static void
settle(struct host *host)
{
	int settled = host->settled, rc;
	unsigned what = choose(host->life, 3);

	host->waits = true;
	host->life->end = what == 0 ? 0 : MAY_DOUBT;
	rc = what == 0 ? complete(host) : what == 1 ? release(host) : idem_guard_give_up(host->guard);
	if (host->settled != settled)
		broke(host->life, "settled was called from inside a call");
	if (rc == IDEM_OK)
		note_settlement(host);
	else
		assert_int_equal(rc, IDEM_PENDING);
}

/* The record did not fit: the host settles for doubt. */
static void
settle_for_less(struct host *host)
{
	int rc;

	host->life->end |= MAY_DOUBT;
	host->waits = true;
	rc = idem_guard_give_up(host->guard);
	if (rc != IDEM_PENDING)
		host->waits = false;
	host->response = rc == IDEM_E_INVALID ? host->response : 0;
}

static void
act(struct host *host)
{
	if (host->freed)
		return;
	if (!host->begun)
		begin(host);
	else if (choose(host->life, 4) == 1)
		leave(host);
	else if (host->waits || !host->executes)
		return;
	else if (idem_guard_settled_status(host->guard) == IDEM_PENDING)
		settle(host);
	else if (idem_guard_settled_status(host->guard) == IDEM_E_FULL && host->response != 0)
		settle_for_less(host);
}

/* ---- a life ---- */

static void
open_life(struct life *life, unsigned seed)
{
	*life = (struct life){.loop = sim_loop_make(), .seed = seed, .tags = seed, .choices = seed};
	life->store = sim_store_make(&life->loop);
	life->env = (struct idem_guard_env){.store = &life->store.base,
	                                    .loop = &life->loop.base,
	                                    .random = sim_random,
	                                    .random_data = &life->tags,
	                                    .store_timeout_ms = 500};
	life->request.policy = (struct idem_policy){60000, TTL_MS, choose(life, 4) == 1};
	if (life->request.policy.retry_in_doubt)
		life->request.policy.lease_ms = 1500;
	life->request.wait_ms = choose(life, 2) == 1 ? 5000 : 0;
	life->store.can_watch = choose(life, 2) == 1;
	for (size_t i = 0; i < 12; i++)
		life->store.faults[i] =
			choose(life, 2) == 1 ? (enum sim_fault)choose(life, SIM_FAULTS) : SIM_WORKS;
	for (size_t i = 0; i < GUARDS; i++) {
		life->hosts[i].life = life;
		assert_ok(idem_guard_new(&life->env, &life->request, &events, &life->hosts[i],
		                         &life->hosts[i].guard));
	}
}

/* All have left, and all that went on behind them has ended. */
static void
close_life(struct life *life)
{
	for (size_t i = 0; i < GUARDS; i++) {
		if (!life->hosts[i].freed)
			leave(&life->hosts[i]);
	}
	sim_pass(&life->loop, 20000);
	if (life->env.busy != 0 || life->loop.count != 0 || life->store.watches != NULL)
		broke(life, "it does not end");
	if (life->store.releases != life->store.finished)
		broke(life, "an io was not released");
	for (size_t i = 0; i < GUARDS; i++) {
		if (life->hosts[i].decided > 1 || life->hosts[i].settled > 2)
			broke(life, "called back too often");
	}
}

/* What the store says in the end, once it works, is what the hosts were told. */
static void
compare_with_ledger(struct life *life)
{
	struct host last = {.life = life};
	enum idem_verdict verdict;

	memset(life->store.faults, 0, sizeof life->store.faults);
	life->request.wait_ms = 0;
	life->request.policy.retry_in_doubt = false;
	assert_ok(idem_guard_new(&life->env, &life->request, &events, &last, &last.guard));
	assert_ok(idem_guard_begin(last.guard));
	assert_ok(idem_guard_status(last.guard));
	verdict = idem_guard_verdict(last.guard);
	if (life->answer != 0       ? verdict != IDEM_REPLAY
	    : life->executions == 0 ? verdict != IDEM_EXECUTE
	                            : !(verdict == IDEM_REPLAY && life->end & MAY_REPLAY) &&
	                                      !(verdict == IDEM_IN_DOUBT && life->end & MAY_DOUBT))
		broke(life, idem_verdict_name(verdict));
	if (verdict == IDEM_REPLAY)
		note_answer(life, *(const char *)idem_guard_found(last.guard)->payload.data);
	idem_guard_free(last.guard);
	assert_int_equal(life->env.busy, 0);
}

static void
run(unsigned seed)
{
	struct life life;
	bool retry;

	open_life(&life, seed);
	retry = life.request.policy.retry_in_doubt;
	for (int turn = 0; turn < 30; turn++) {
		act(&life.hosts[choose(&life, GUARDS)]);
		if (choose(&life, 3) == 1)
			sim_hint(&life.store, &life.request.id);
		sim_pass(&life.loop, choose(&life, 700));
	}
	close_life(&life);
	if (!retry)
		compare_with_ledger(&life);
}

static void
hosts_are_told_the_truth_whatever_fails(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 50000; seed++)
		run(seed);
}

/* test_guard_lives SEED runs one life, to look into it. */
int
main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_are_told_the_truth_whatever_fails),
	};

	if (argc > 1) {
		run((unsigned)strtoul(argv[1], NULL, 10));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
