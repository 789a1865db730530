/* The board by which processes tell each other of changes: whose bits stand on it, and who hears. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/stores/wake.h"
#include "../support/sim.h"

#define SOON_MS 10000 /* only a test that fails waits so long */

struct stage {
	struct wake_board *board; /* mapped shared */
	struct idem_loop *loop;
	struct wake wake;
};

static int
open_stage(void **state)
{
	static struct stage stage;

	*state = &stage;
	stage.board =
		mmap(NULL, sizeof *stage.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if ((void *)stage.board == MAP_FAILED || idem_poll_loop_new(&stage.loop) != IDEM_OK)
		return -1;
	idem_wake_init(&stage.wake, stage.board, stage.loop);
	return idem_random(NULL, stage.board->uuid, sizeof stage.board->uuid);
}

static int
close_stage(void **state)
{
	struct stage *stage = *state;

	idem_wake_close(&stage->wake);
	idem_poll_loop_free(stage->loop);
	return munmap(stage->board, sizeof *stage->board);
}

/* Ids of one bucket have the same last bytes. */
static struct idem_id
id_in(uint8_t bucket, uint8_t number)
{
	struct idem_id id = {{number}};

	id.b[IDEM_ID_LEN - 2] = bucket;
	return id;
}

static uint64_t
slots_in(const struct stage *stage, size_t bucket)
{
	return atomic_load(&stage->board->waiting[bucket]);
}

static size_t
buckets_in_use(const struct stage *stage)
{
	size_t count = 0;

	for (size_t i = 0; i < WAKE_BUCKETS; i++)
		count += slots_in(stage, i) != 0;
	return count;
}

/* ---- an ear ---- */

struct ear {
	struct idem_watch watch;
	bool heard;
};

static void
changed(struct idem_watch *watch)
{
	((struct ear *)watch)->heard = true;
}

static struct ear
ear_for(struct idem_id id)
{
	return (struct ear){.watch = {.id = id, .changed = changed}};
}

/* For children too, which must not end as a test that fails. */
static bool
hears(struct idem_loop *loop, struct ear *ear)
{
	bool in_time = idem_poll_loop_run(loop, &ear->heard, SOON_MS) == IDEM_OK;

	ear->heard = false;
	return in_time;
}

static void
assert_silence(struct stage *stage, const struct ear *ear)
{
	assert_int_equal(idem_poll_loop_run(stage->loop, NULL, 0), IDEM_PENDING);
	assert_false(ear->heard);
}

static void
assert_child_is_fine(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- one handle ---- */

static void
every_watch_of_the_id_hears_and_no_other(void **state)
{
	struct stage *stage = *state;
	struct ear first = ear_for(id_in(1, 1)), second = first, neighbour = ear_for(id_in(1, 2));

	assert_ok(idem_wake_watch(&stage->wake, &first.watch));
	assert_ok(idem_wake_watch(&stage->wake, &second.watch));
	assert_ok(idem_wake_watch(&stage->wake, &neighbour.watch));
	idem_wake_ring(stage->board, -1, &first.watch.id);
	assert_true(hears(stage->loop, &first));
	assert_true(hears(stage->loop, &second));
	assert_silence(stage, &neighbour);
}

static void
an_unwatch_deafens_no_other_watch_of_its_bucket(void **state)
{
	struct stage *stage = *state;
	struct ear first = ear_for(id_in(1, 1)), same = first, neighbour = ear_for(id_in(1, 2));

	assert_ok(idem_wake_watch(&stage->wake, &first.watch));
	assert_ok(idem_wake_watch(&stage->wake, &same.watch));
	assert_ok(idem_wake_watch(&stage->wake, &neighbour.watch));
	idem_wake_unwatch(&stage->wake, &first.watch);
	idem_wake_ring_from(&stage->wake, &same.watch.id);
	assert_true(hears(stage->loop, &same));
	idem_wake_unwatch(&stage->wake, &same.watch);
	idem_wake_ring_from(&stage->wake, &neighbour.watch.id);
	assert_true(hears(stage->loop, &neighbour));
	idem_wake_unwatch(&stage->wake, &neighbour.watch);
	assert_int_equal(buckets_in_use(stage), 0);
}

static void
a_handle_that_closes_takes_its_bits_away(void **state)
{
	struct stage *stage = *state;
	struct ear one = ear_for(id_in(1, 1)), other = ear_for(id_in(2, 1)), stays = ear_for(id_in(2, 2));
	struct wake leaves;

	idem_wake_init(&leaves, stage->board, stage->loop);
	assert_ok(idem_wake_watch(&stage->wake, &stays.watch));
	assert_ok(idem_wake_watch(&leaves, &one.watch));
	assert_ok(idem_wake_watch(&leaves, &other.watch));
	idem_wake_close(&leaves);
	assert_int_equal(buckets_in_use(stage), 1);
	idem_wake_ring(stage->board, -1, &stays.watch.id);
	assert_true(hears(stage->loop, &stays));
}

static void
without_a_loop_one_rings_and_does_not_hear(void **state)
{
	struct stage *stage = *state;
	struct ear ear = ear_for(id_in(1, 1)), deaf = ear;
	struct wake mute;

	idem_wake_init(&mute, stage->board, NULL);
	assert_int_equal(idem_wake_watch(&mute, &deaf.watch), IDEM_E_INVALID);
	assert_int_equal(buckets_in_use(stage), 0);
	assert_ok(idem_wake_watch(&stage->wake, &ear.watch));
	idem_wake_ring_from(&mute, &ear.watch.id);
	assert_true(hears(stage->loop, &ear));
	idem_wake_close(&mute);
}

static void
a_loop_that_refuses_leaves_nothing_behind(void **state)
{
	struct stage *stage = *state;
	struct sim_loop refusing = sim_loop_make();
	struct ear ear = ear_for(id_in(1, 1));
	struct wake wake;

	idem_wake_init(&wake, stage->board, &refusing.base);
	assert_int_equal(idem_wake_watch(&wake, &ear.watch), IDEM_E_SYSTEM);
	assert_int_equal(buckets_in_use(stage), 0);
	idem_wake_close(&wake);
	assert_ok(idem_wake_watch(&stage->wake, &ear.watch));
	assert_int_equal(stage->wake.slot, 0);
}

static void
junk_in_the_socket_is_passed_over(void **state)
{
	struct stage *stage = *state;
	struct ear ear = ear_for(id_in(1, 1));
	struct sockaddr_un address = {0};
	socklen_t len = sizeof address;
	int fd = idem_wake_socket();

	assert_true(fd >= 0);
	assert_ok(idem_wake_watch(&stage->wake, &ear.watch));
	assert_int_equal(getsockname(stage->wake.socket.fd, (struct sockaddr *)&address, &len), 0);
	assert_int_equal(sendto(fd, "", 0, 0, (struct sockaddr *)&address, len), 0);
	assert_int_equal(sendto(fd, "junk", 4, 0, (struct sockaddr *)&address, len), 4);
	idem_wake_ring(stage->board, fd, &ear.watch.id);
	assert_true(hears(stage->loop, &ear));
	(void)close(fd);
}

/* ---- many processes ---- */

/* Hears one change of the id in a handle of its own, then rings for the answer. */
static bool
hear_and_answer(struct stage *stage, struct idem_id question, struct idem_id answer)
{
	struct idem_loop *loop = NULL;
	struct ear ear = ear_for(question);
	struct wake wake;
	bool fine;

	if (idem_poll_loop_new(&loop) != IDEM_OK)
		return false;
	idem_wake_init(&wake, stage->board, loop);
	if (idem_wake_watch(&wake, &ear.watch) != IDEM_OK)
		return false;
	idem_wake_ring_from(&wake, &answer); /* it is ready */
	fine = hears(loop, &ear);
	idem_wake_ring_from(&wake, &answer);
	idem_wake_close(&wake);
	idem_poll_loop_free(loop);
	return fine;
}

static void
two_processes_hear_each_other(void **state)
{
	struct stage *stage = *state;
	struct idem_id question = id_in(1, 1);
	struct ear answer = ear_for(id_in(2, 1));
	pid_t child;

	assert_ok(idem_wake_watch(&stage->wake, &answer.watch));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(hear_and_answer(stage, question, answer.watch.id) ? 0 : 1);
	assert_true(hears(stage->loop, &answer));
	idem_wake_ring_from(&stage->wake, &question);
	assert_true(hears(stage->loop, &answer));
	assert_child_is_fine(child);
}

static void
watch_until_killed(struct stage *stage, struct idem_id id, int ready)
{
	struct ear ear = ear_for(id);

	if (idem_wake_watch(&stage->wake, &ear.watch) == IDEM_OK && write(ready, "", 1) == 1)
		for (;;)
			(void)pause();
	_exit(1);
}

static void
the_slot_of_a_killed_process_is_taken_and_its_bits_are_cleared(void **state)
{
	struct stage *stage = *state;
	struct idem_id left = id_in(1, 1);
	struct ear ear = ear_for(id_in(2, 1));
	int ready[2], status;
	char byte;
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		watch_until_killed(stage, left, ready[1]);
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(slots_in(stage, 1) == 1); /* nobody could clear it */
	idem_wake_ring(stage->board, -1, &left);

	assert_ok(idem_wake_watch(&stage->wake, &ear.watch));
	assert_int_equal(stage->wake.slot, 0);
	assert_true(slots_in(stage, 1) == 0 && slots_in(stage, 2) == 1);
	idem_wake_ring(stage->board, -1, &ear.watch.id);
	assert_true(hears(stage->loop, &ear));
}

static void
a_child_that_leaves_what_it_inherited_deafens_nobody(void **state)
{
	struct stage *stage = *state;
	struct ear first = ear_for(id_in(1, 1)), second = ear_for(id_in(2, 1));
	pid_t child;

	assert_ok(idem_wake_watch(&stage->wake, &first.watch));
	assert_ok(idem_wake_watch(&stage->wake, &second.watch));
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		idem_wake_unwatch(&stage->wake, &first.watch);
		idem_wake_close(&stage->wake);
		_exit(0);
	}
	assert_child_is_fine(child);
	assert_int_equal(buckets_in_use(stage), 2);
	idem_wake_ring(stage->board, -1, &first.watch.id);
	assert_true(hears(stage->loop, &first));
	idem_wake_ring(stage->board, -1, &second.watch.id);
	assert_true(hears(stage->loop, &second));
}

/* Rings for go when it listens; then both hear of shared, each in its own socket. */
static bool
watch_in_the_child(struct stage *stage, struct ear *shared, struct idem_id go)
{
	struct ear own = ear_for(id_in(4, 1));

	if (idem_wake_watch(&stage->wake, &own.watch) != IDEM_OK || stage->wake.slot != 1)
		return false;
	idem_wake_ring_from(&stage->wake, &go);
	if (!hears(stage->loop, shared))
		return false;
	idem_wake_ring_from(&stage->wake, &own.watch.id);
	if (!hears(stage->loop, &own))
		return false;
	idem_wake_close(&stage->wake);
	return true;
}

static void
a_child_that_watches_has_a_slot_of_its_own(void **state)
{
	struct stage *stage = *state;
	struct ear shared = ear_for(id_in(1, 1)), go = ear_for(id_in(2, 1));
	pid_t child;

	assert_ok(idem_wake_watch(&stage->wake, &shared.watch));
	assert_ok(idem_wake_watch(&stage->wake, &go.watch));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(watch_in_the_child(stage, &shared, go.watch.id) ? 0 : 1);
	assert_true(hears(stage->loop, &go));
	idem_wake_ring_from(&stage->wake, &shared.watch.id);
	assert_true(hears(stage->loop, &shared));
	assert_child_is_fine(child);
	assert_true(slots_in(stage, 1) == 1 && slots_in(stage, 4) == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_watch_of_the_id_hears_and_no_other),
		TEST(an_unwatch_deafens_no_other_watch_of_its_bucket),
		TEST(a_handle_that_closes_takes_its_bits_away),
		TEST(without_a_loop_one_rings_and_does_not_hear),
		TEST(a_loop_that_refuses_leaves_nothing_behind),
		TEST(junk_in_the_socket_is_passed_over),
		TEST(two_processes_hear_each_other),
		TEST(the_slot_of_a_killed_process_is_taken_and_its_bits_are_cleared),
		TEST(a_child_that_leaves_what_it_inherited_deafens_nobody),
		TEST(a_child_that_watches_has_a_slot_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
