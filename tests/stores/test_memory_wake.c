/* Who waits for a cell hears when it changes: from another handle, from another process, and not too early.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES ((size_t)1 << 20)
#define LEASE_MS 60000
#define TTL_MS 3600000
#define SOON_MS 10000 /* only a test that fails waits so long */
#define SLOTS 64

struct stage {
	struct memory_world world;
	struct idem_loop *loop;
	struct actor hearer, doer;
	struct request request;
	struct claim claim; /* won by doer */
};

static int
open_stage(void **state)
{
	static struct stage stage;

	*state = &stage;
	if (!memory_world_make(&stage.world, REGION_BYTES) || idem_poll_loop_new(&stage.loop) != IDEM_OK)
		return -1;
	stage.hearer = (struct actor){memory_world_open(&stage.world, stage.loop), stage.loop};
	stage.doer = (struct actor){memory_world_open(&stage.world, NULL), NULL};
	stage.request = actor_request(1, LEASE_MS, TTL_MS);
	if (stage.hearer.store == NULL || stage.doer.store == NULL)
		return -1;
	return actor_claim(&stage.doer, &stage.request, &stage.claim) == IDEM_EXECUTE ? 0 : -1;
}

static int
close_stage(void **state)
{
	struct stage *stage = *state;

	idem_store_close(stage->hearer.store);
	idem_store_close(stage->doer.store);
	idem_poll_loop_free(stage->loop);
	memory_world_free(&stage->world);
	return 0;
}

/* ---- an ear ---- */

struct ear {
	struct idem_watch watch;
	struct idem_store *store;
	unsigned count;
	bool heard;
	bool leave;         /* unwatch from inside changed() */
	struct ear *others; /* to unwatch from inside changed() as well, or NULL */
};

static void
changed(struct idem_watch *watch)
{
	struct ear *ear = (struct ear *)watch;

	ear->count++;
	ear->heard = true;
	if (ear->leave)
		ear->store->ops->unwatch(ear->store, watch);
	if (ear->others != NULL)
		ear->store->ops->unwatch(ear->store, &ear->others->watch);
}

static void
listen_to(struct ear *ear, struct idem_store *store, const struct idem_id *id)
{
	*ear = (struct ear){.watch = {.id = *id, .changed = changed}, .store = store};
	assert_ok(store->ops->watch(store, &ear->watch));
	assert_int_equal(ear->count, 0);
}

static void
stop_listening(struct ear *ear)
{
	ear->store->ops->unwatch(ear->store, &ear->watch);
}

static void
assert_hears(struct stage *stage, struct ear *ear)
{
	ear->heard = false;
	assert_ok(idem_poll_loop_run(stage->loop, &ear->heard, SOON_MS));
}

/* What has been sent is in the socket already: one turn of the loop would bring it. */
static void
assert_silence(struct stage *stage, const struct ear *ear)
{
	unsigned count = ear->count;

	assert_int_equal(idem_poll_loop_run(stage->loop, NULL, 0), IDEM_PENDING);
	assert_int_equal(ear->count, count);
}

static int
settle(struct stage *stage, enum idem_verb verb)
{
	return actor_settle(&stage->doer, &stage->request, &stage->claim, verb, bytes_of("x"));
}

/* ---- promises ---- */

static void
each_end_of_an_execution_is_heard_once(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_RELEASE, IDEM_GIVE_UP, IDEM_COMPLETE};
	struct stage *stage = *state;

	stage->request.policy.retry_in_doubt = true;
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct ear ear;

		if (i > 0)
			assert_int_equal(actor_claim(&stage->doer, &stage->request, &stage->claim),
			                 IDEM_EXECUTE);
		listen_to(&ear, stage->hearer.store, &stage->request.id);
		assert_silence(stage, &ear);
		assert_int_equal(settle(stage, verbs[i]), IDEM_RECORDED);
		assert_int_equal(ear.count, 0); /* from the loop, not from the other's call */
		assert_hears(stage, &ear);
		assert_int_equal(ear.count, 1);
		assert_silence(stage, &ear);
		stop_listening(&ear);
	}
}

static void
a_renewal_is_no_change_and_does_not_deafen(void **state)
{
	struct stage *stage = *state;
	struct ear ear;

	listen_to(&ear, stage->hearer.store, &stage->request.id);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(actor_renew(&stage->doer, &stage->request, &stage->claim), IDEM_RECORDED);
		assert_silence(stage, &ear);
	}
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	assert_hears(stage, &ear);
	stop_listening(&ear);
}

static void
only_the_cell_that_is_watched_is_heard(void **state)
{
	struct stage *stage = *state;
	struct request other = actor_request(2, LEASE_MS, TTL_MS);
	struct claim claim;
	struct ear ear, other_ear;

	assert_int_equal(actor_claim(&stage->doer, &other, &claim), IDEM_EXECUTE);
	listen_to(&ear, stage->hearer.store, &stage->request.id);
	listen_to(&other_ear, stage->hearer.store, &other.id);
	assert_int_equal(actor_complete(&stage->doer, &other, &claim, bytes_of("x")), IDEM_RECORDED);
	assert_hears(stage, &other_ear);
	assert_int_equal(ear.count, 0);
	stop_listening(&ear);
	stop_listening(&other_ear);
}

static void
after_unwatch_nothing_is_heard(void **state)
{
	struct stage *stage = *state;
	struct ear ear;

	listen_to(&ear, stage->hearer.store, &stage->request.id);
	stop_listening(&ear);
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	assert_silence(stage, &ear);
}

/* Whoever asks for a watched cell and meets another's lock hears of the end of that lock too. */
static void
the_lock_after_the_one_that_was_watched_is_heard_as_well(void **state)
{
	struct stage *stage = *state;
	struct ear ear;

	listen_to(&ear, stage->hearer.store, &stage->request.id);
	assert_int_equal(settle(stage, IDEM_RELEASE), IDEM_RECORDED);
	assert_hears(stage, &ear);
	assert_int_equal(actor_claim(&stage->doer, &stage->request, &stage->claim), IDEM_EXECUTE);
	assert_int_equal(actor_claim(&stage->hearer, &stage->request, NULL), IDEM_IN_PROGRESS);
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	assert_hears(stage, &ear);
	stop_listening(&ear);
}

static void
a_takeover_leaves_those_who_wait_their_ears(void **state)
{
	struct stage *stage = *state;
	struct ear ear;

	listen_to(&ear, stage->hearer.store, &stage->request.id);
	memory_world_advance(&stage->world, LEASE_MS);
	stage->request.policy.retry_in_doubt = true;
	assert_int_equal(actor_claim(&stage->doer, &stage->request, &stage->claim), IDEM_EXECUTE);
	assert_hears(stage, &ear);
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	assert_hears(stage, &ear);
	stop_listening(&ear);
}

static void
changed_may_unwatch_itself_and_its_neighbours(void **state)
{
	struct stage *stage = *state;

	for (int which = 0; which < 3; which++) {
		struct ear ears[3];
		unsigned heard = 0;

		if (which > 0)
			assert_int_equal(actor_claim(&stage->doer, &stage->request, &stage->claim),
			                 IDEM_EXECUTE);
		for (int i = 0; i < 3; i++)
			listen_to(&ears[i], stage->hearer.store, &stage->request.id);
		/* The last one that came is called first. */
		ears[2].leave = true;
		ears[2].others = which == 1 ? &ears[1] : which == 2 ? &ears[0] : NULL;
		assert_int_equal(settle(stage, IDEM_RELEASE), IDEM_RECORDED);
		assert_hears(stage, &ears[2]);
		assert_silence(stage, &ears[2]);
		for (int i = 0; i < 3; i++)
			heard += ears[i].count;
		assert_int_equal(ears[2].count, 1);
		assert_int_equal(heard, which == 0 ? 3 : 2);
		if (which != 2)
			stop_listening(&ears[0]);
		if (which != 1)
			stop_listening(&ears[1]);
	}
}

static void
another_process_is_heard(void **state)
{
	struct stage *stage = *state;
	struct ear ear;
	int status;
	pid_t child;

	listen_to(&ear, stage->hearer.store, &stage->request.id);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(settle(stage, IDEM_COMPLETE) == IDEM_RECORDED ? 0 : 1);
	assert_hears(stage, &ear);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(actor_claim(&stage->hearer, &stage->request, NULL), IDEM_REPLAY);
	stop_listening(&ear);
}

static void
a_waiter_that_died_harms_nobody(void **state)
{
	struct stage *stage = *state;
	struct ear ear;
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		struct idem_store *store = memory_world_open(&stage->world, stage->loop);

		ear = (struct ear){.watch = {.id = stage->request.id, .changed = changed}};
		_exit(store != NULL && store->ops->watch(store, &ear.watch) == IDEM_OK ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The dead one's slot, which the cell still names, is this one's now. */
	listen_to(&ear, stage->hearer.store, &stage->request.id);
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	assert_hears(stage, &ear);
	stop_listening(&ear);
}

/* In a child, so that the 65th is another process. */
static bool
cannot_watch(struct stage *stage)
{
	struct idem_loop *loop = NULL;
	struct idem_store *store;
	struct ear ear = {.watch = {.id = stage->request.id, .changed = changed}};
	int rc;

	if (idem_poll_loop_new(&loop) != IDEM_OK)
		return false;
	store = memory_world_open(&stage->world, loop);
	if (store == NULL)
		return false;
	rc = store->ops->watch(store, &ear.watch);
	/* It can do all the rest. */
	if (actor_claim(&(struct actor){store, loop}, &stage->request, NULL) != IDEM_IN_PROGRESS)
		return false;
	idem_store_close(store);
	idem_poll_loop_free(loop);
	return rc == IDEM_E_UNAVAILABLE;
}

static void
more_waiters_than_there_are_slots_are_told_so(void **state)
{
	struct stage *stage = *state;
	struct idem_store *stores[SLOTS];
	struct ear ears[SLOTS];
	int status;
	pid_t child;

	for (int i = 0; i < SLOTS; i++) {
		stores[i] = memory_world_open(&stage->world, stage->loop);
		assert_non_null(stores[i]);
		listen_to(&ears[i], stores[i], &stage->request.id);
	}
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(cannot_watch(stage) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(settle(stage, IDEM_COMPLETE), IDEM_RECORDED);
	for (int i = 0; i < SLOTS; i++) {
		if (ears[i].count == 0)
			assert_hears(stage, &ears[i]);
		assert_int_equal(ears[i].count, 1);
		stop_listening(&ears[i]);
	}
	idem_store_close(stores[7]);
	stores[7] = NULL;
	listen_to(&ears[7], stage->hearer.store, &stage->request.id); /* its slot is free again */
	stop_listening(&ears[7]);
	for (int i = 0; i < SLOTS; i++)
		idem_store_close(stores[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_end_of_an_execution_is_heard_once),
		TEST(a_renewal_is_no_change_and_does_not_deafen),
		TEST(only_the_cell_that_is_watched_is_heard),
		TEST(after_unwatch_nothing_is_heard),
		TEST(the_lock_after_the_one_that_was_watched_is_heard_as_well),
		TEST(a_takeover_leaves_those_who_wait_their_ears),
		TEST(changed_may_unwatch_itself_and_its_neighbours),
		TEST(another_process_is_heard),
		TEST(a_waiter_that_died_harms_nobody),
		TEST(more_waiters_than_there_are_slots_are_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
