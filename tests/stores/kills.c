/*
 * Processes are killed at random instants while others work on.
 *
 * They claim, complete, renew, release and give up the same few keys, whose owners are soon taken
 * over.  An answer bears a number of its own; the first one seen of a key is
 * noted in shared memory, and no other may ever be seen of that key.
 */
#include "kills.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "actor.h"

#define CHILDREN 3
#define KILLS 200
#define KEYS_PER_KILL 20
#define KILLS_MAX (10 * KILLS) /* on a busy machine few live long enough to record something */
#define KEYS ((KILLS_MAX + 1) * KEYS_PER_KILL)
#define LEASE_MS 1
#define TTL_MS 100000000
#define CHURN 500

struct notes {
	uint64_t next;       /* numbers of answers */
	uint64_t first_key;  /* moves on, so that there are always keys without an answer */
	uint64_t recorded;   /* answers, in all */
	uint64_t wrong;      /* answers that changed, or that nobody wrote */
	uint64_t seen[KEYS]; /* the number of the answer of each key; 0: none yet */
};

struct stage {
	const struct kills *kills;
	struct notes *notes;
};

static uint64_t
count(uint64_t *word)
{
	return __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
}

static void
note(struct notes *notes, uint64_t key, uint64_t number)
{
	uint64_t expected = 0;

	if (!__atomic_compare_exchange_n(&notes->seen[key], &expected, number, false, __ATOMIC_SEQ_CST,
	                                 __ATOMIC_SEQ_CST) &&
	    expected != number)
		(void)count(&notes->wrong);
}

/* The answer begins with its number, which tells all of the rest. */
static size_t
answer_len(uint64_t number)
{
	return sizeof number + (size_t)(number * 331 % 900);
}

static int
answer(struct stage *stage, struct actor *actor, const struct request *request, const struct claim *claim,
       uint64_t key)
{
	uint64_t number = count(&stage->notes->next);
	uint8_t *bytes = payload_make(number, answer_len(number));
	int verdict;

	memcpy(bytes, &number, sizeof number);
	verdict = actor_complete(actor, request, claim, (struct idem_bytes){bytes, answer_len(number)});
	free(bytes);
	if (verdict == IDEM_RECORDED) {
		note(stage->notes, key, number);
		(void)count(&stage->notes->recorded);
	}
	return verdict;
}

static void
check_answer(struct stage *stage, uint64_t key, struct idem_bytes payload)
{
	uint64_t number = 0;
	uint8_t *wanted;

	if (payload.len >= sizeof number)
		memcpy(&number, payload.data, sizeof number);
	if (number == 0 || payload.len != answer_len(number)) {
		(void)count(&stage->notes->wrong);
		return;
	}
	wanted = payload_make(number, payload.len);
	memcpy(wanted, &number, sizeof number);
	if (memcmp(wanted, payload.data, payload.len) != 0)
		(void)count(&stage->notes->wrong);
	free(wanted);
	note(stage->notes, key, number);
}

static int
execute(struct stage *stage, struct actor *actor, const struct request *request, struct claim *claim,
        uint64_t key, unsigned choice)
{
	switch (choice % 4) {
	case 0:
		return actor_settle(actor, request, claim, IDEM_RELEASE, bytes_of(""));
	case 1:
		return actor_settle(actor, request, claim, IDEM_GIVE_UP, bytes_of(""));
	case 2:
		(void)actor_renew(actor, request, claim);
		return answer(stage, actor, request, claim, key);
	default:
		return answer(stage, actor, request, claim, key);
	}
}

/* Whoever is not killed says why it ended. */
static bool
is_a_verdict(int verdict)
{
	if (verdict < 0)
		(void)fprintf(stderr, "a user of the store ended: %s\n", idem_strerror(verdict));
	return verdict > 0;
}

static bool
work_on_key(struct stage *stage, struct actor *actor, unsigned *seed)
{
	uint64_t first = __atomic_load_n(&stage->notes->first_key, __ATOMIC_SEQ_CST);
	uint64_t key = first + (uint64_t)rand_r(seed) % KEYS_PER_KILL;
	struct request request = actor_request(key, LEASE_MS, TTL_MS);
	struct claim claim;
	int verdict;

	request.policy.retry_in_doubt = true;
	verdict = actor_claim(actor, &request, &claim);
	if (verdict == IDEM_EXECUTE)
		verdict = execute(stage, actor, &request, &claim, key, (unsigned)rand_r(seed));
	else if (verdict == IDEM_REPLAY)
		check_answer(stage, key, claim.found.payload);
	claim_free(&claim);
	return is_a_verdict(verdict);
}

/* Keys that come and go, so that blocks never rest. */
static bool
churn(struct actor *actor, unsigned *seed)
{
	uint64_t number = 1000000 + (uint64_t)rand_r(seed) % CHURN;
	struct request request = actor_request(number, LEASE_MS, 1);
	size_t len = (size_t)rand_r(seed) % 2000;
	void *bytes;
	struct claim claim;
	int verdict = actor_claim(actor, &request, &claim);

	claim_free(&claim);
	if (verdict != IDEM_EXECUTE)
		return is_a_verdict(verdict);
	bytes = payload_make(number, len);
	verdict = actor_complete(actor, &request, &claim, (struct idem_bytes){bytes, len});
	free(bytes);
	return is_a_verdict(verdict);
}

static pid_t
start(struct stage *stage, unsigned seed)
{
	pid_t child = fork();

	if (child == 0) {
		struct actor actor = {0};

		if (idem_poll_loop_new(&actor.loop) == IDEM_OK)
			actor.store = stage->kills->open(stage->kills->data, actor.loop);
		while (actor.store != NULL && getppid() != 1 && work_on_key(stage, &actor, &seed) &&
		       churn(&actor, &seed))
			;
		_exit(1); /* it is meant to be killed */
	}
	assert_true(child > 0);
	return child;
}

static void
kill_one(pid_t child)
{
	int status;

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void
assert_whole(const struct stage *stage, struct idem_store *store)
{
	char fault[512] = "";

	if (stage->kills->verify(store, fault, sizeof fault) != IDEM_OK)
		fail_msg("the store is damaged: %s", fault);
}

static bool
they_worked(struct notes *notes)
{
	return __atomic_load_n(&notes->recorded, __ATOMIC_SEQ_CST) > KILLS;
}

static void
kill_again_and_again(struct stage *stage, struct idem_store *store, unsigned seed)
{
	pid_t children[CHILDREN];

	for (int i = 0; i < CHILDREN; i++)
		children[i] = start(stage, seed + (unsigned)i);
	for (unsigned i = 0; i < KILLS || (i < KILLS_MAX && !they_worked(stage->notes)); i++) {
		int victim = rand_r(&seed) % CHILDREN;

		(void)usleep((useconds_t)rand_r(&seed) % stage->kills->instants_us); /* the instant */
		kill_one(children[victim]);
		children[victim] = start(stage, seed);
		if (i % 20 == 0)
			assert_whole(stage, store);
		(void)__atomic_add_fetch(&stage->notes->first_key, KEYS_PER_KILL, __ATOMIC_SEQ_CST);
	}
	for (int i = 0; i < CHILDREN; i++)
		kill_one(children[i]);
}

static void
assert_answers_kept(struct stage *stage, struct actor *actor)
{
	for (uint64_t key = 0; key < KEYS; key++) {
		struct request request = actor_request(key, LEASE_MS, TTL_MS);
		struct claim claim;

		if (stage->notes->seen[key] == 0)
			continue;
		assert_int_equal(actor_claim(actor, &request, &claim), IDEM_REPLAY);
		check_answer(stage, key, claim.found.payload);
		claim_free(&claim);
	}
}

void
kills_run(const struct kills *kills)
{
	const char *given = getenv("IDEM_TEST_SEED");
	unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	struct stage stage = {.kills = kills};
	struct actor actor;

	print_message("IDEM_TEST_SEED=%u\n", seed);
	stage.notes =
		mmap(NULL, sizeof *stage.notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true((void *)stage.notes != MAP_FAILED);
	assert_ok(idem_poll_loop_new(&actor.loop));
	actor.store = kills->open(kills->data, actor.loop);
	assert_non_null(actor.store);
	kill_again_and_again(&stage, actor.store, seed);
	assert_whole(&stage, actor.store);
	assert_answers_kept(&stage, &actor);
	assert_int_equal(stage.notes->wrong, 0);
	assert_true(they_worked(stage.notes));
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	(void)munmap(stage.notes, sizeof *stage.notes);
}
