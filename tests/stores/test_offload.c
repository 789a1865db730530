/* Work on a thread of its own: it is done on the loop's thread, or discarded, and never both. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../src/stores/offload.h"
#include "../support/test.h"

struct job {
	pthread_mutex_t gate; /* held: the work waits */
	pthread_t loops_thread;
	int result;
	bool done;
	atomic_int discarded;
};

static void
do_work(void *data)
{
	struct job *job = data;

	assert_false(pthread_equal(pthread_self(), job->loops_thread));
	(void)pthread_mutex_lock(&job->gate);
	job->result = 42;
	(void)pthread_mutex_unlock(&job->gate);
}

static void
is_done(void *data)
{
	struct job *job = data;

	assert_true(pthread_equal(pthread_self(), job->loops_thread));
	job->done = true;
}

static void
is_discarded(void *data)
{
	struct job *job = data;

	atomic_fetch_add(&job->discarded, 1);
}

static const struct idem_offload_ops ops = {do_work, is_done, is_discarded};

static void
set_up(struct job *job, struct idem_loop **ret_loop)
{
	*job = (struct job){.gate = PTHREAD_MUTEX_INITIALIZER, .loops_thread = pthread_self()};
	assert_ok(idem_poll_loop_new(ret_loop));
}

static void
await_discard(struct job *job)
{
	for (int i = 0; i < 10000 && atomic_load(&job->discarded) == 0; i++)
		(void)usleep(1000);
	assert_int_equal(atomic_load(&job->discarded), 1);
}

static void
the_result_comes_to_the_loop(void **state)
{
	struct idem_offload *offload;
	struct idem_loop *loop;
	struct job job;

	(void)state;
	set_up(&job, &loop);
	for (int i = 0; i < 100; i++) {
		job.result = 0;
		job.done = false;
		assert_ok(idem_offload_start(&offload, loop, &ops, &job));
		assert_false(job.done);
		assert_ok(idem_poll_loop_run(loop, &job.done, 10000));
		assert_int_equal(job.result, 42);
	}
	assert_int_equal(atomic_load(&job.discarded), 0);
	idem_poll_loop_free(loop);
}

static void
what_is_cancelled_in_time_is_discarded_when_it_ends(void **state)
{
	struct idem_offload *offload;
	struct idem_loop *loop;
	struct job job;

	(void)state;
	set_up(&job, &loop);
	(void)pthread_mutex_lock(&job.gate);
	assert_ok(idem_offload_start(&offload, loop, &ops, &job));
	idem_offload_cancel(offload);
	assert_int_equal(atomic_load(&job.discarded), 0);
	(void)pthread_mutex_unlock(&job.gate);
	await_discard(&job);
	assert_int_equal(idem_poll_loop_run(loop, NULL, 10), IDEM_PENDING);
	assert_false(job.done);
	idem_poll_loop_free(loop);
}

static void
what_is_cancelled_at_any_moment_is_discarded_once(void **state)
{
	struct idem_offload *offload;
	struct idem_loop *loop;
	struct job job;

	(void)state;
	set_up(&job, &loop);
	for (useconds_t i = 0; i < 200; i++) {
		atomic_store(&job.discarded, 0);
		assert_ok(idem_offload_start(&offload, loop, &ops, &job));
		(void)usleep(i); /* that the thread has got a little further each time */
		idem_offload_cancel(offload);
		await_discard(&job);
	}
	assert_false(job.done);
	idem_poll_loop_free(loop);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_result_comes_to_the_loop),
		cmocka_unit_test(what_is_cancelled_in_time_is_discarded_when_it_ends),
		cmocka_unit_test(what_is_cancelled_at_any_moment_is_discarded_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
