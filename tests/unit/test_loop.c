/* The loop over poll(2): timers in order, descriptors when they are ready, changes from inside callbacks. */
#include <unistd.h>

#include "test.h"

struct ticker {
	struct idem_timer timer;
	struct idem_loop *loop;
	struct idem_timer *stops;
	int number, *order, *count;
};

static void
tick(struct idem_timer *timer)
{
	struct ticker *ticker = (struct ticker *)(void *)timer;

	ticker->order[(*ticker->count)++] = ticker->number;
	if (ticker->stops != NULL)
		ticker->loop->ops->timer_stop(ticker->loop, ticker->stops);
}

static void
timers_fire_in_order_and_once(void **state)
{
	struct idem_loop *loop;
	int order[8], count = 0;
	struct ticker tickers[4];
	static const uint64_t after[] = {30, 10, 20, 20};

	(void)state;
	assert_ok(idem_poll_loop_new(&loop));
	for (int i = 0; i < 4; i++) {
		tickers[i] = (struct ticker){{.fire = tick}, loop, NULL, i, order, &count};
		loop->ops->timer_start(loop, &tickers[i].timer, after[i]);
	}
	loop->ops->timer_start(loop, &tickers[1].timer, 25); /* anew */
	tickers[2].stops = &tickers[0].timer;
	assert_int_equal(idem_poll_loop_run(loop, NULL, -1), IDEM_PENDING); /* nothing is left */
	assert_int_equal(count, 3);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 3);
	assert_int_equal(order[2], 1);
	assert_false(tickers[0].timer.armed);
	loop->ops->timer_stop(loop, &tickers[0].timer);
	idem_poll_loop_free(loop);
}

struct reader {
	struct idem_fd watch;
	struct idem_loop *loop;
	bool stop;
	char got;
};

static void
readable(struct idem_fd *watch, unsigned readiness)
{
	struct reader *reader = (struct reader *)(void *)watch;

	assert_int_equal(readiness, IDEM_READABLE);
	assert_int_equal(read(watch->fd, &reader->got, 1), 1);
	assert_ok(reader->loop->ops->fd_watch(reader->loop, watch, 0));
	reader->stop = true;
}

static void
descriptors_are_heard_until_they_are_given_back(void **state)
{
	struct idem_loop *loop;
	struct reader readers[12] = {{{0}, NULL, false, 0}};
	int pipes[12][2];

	(void)state;
	assert_ok(idem_poll_loop_new(&loop));
	for (int i = 0; i < 12; i++) {
		assert_int_equal(pipe(pipes[i]), 0);
		readers[i] = (struct reader){{.fd = pipes[i][0], .ready = readable}, loop, false, 0};
		assert_ok(loop->ops->fd_watch(loop, &readers[i].watch, IDEM_READABLE));
	}
	assert_int_equal(idem_poll_loop_run(loop, NULL, 5), IDEM_PENDING);
	for (int i = 11; i >= 0; i--) {
		assert_int_equal(write(pipes[i][1], "xy", 2), 2);
		assert_ok(idem_poll_loop_run(loop, &readers[i].stop, 5000));
		assert_int_equal(readers[i].got, 'x');
	}
	assert_int_equal(idem_poll_loop_run(loop, NULL, -1), IDEM_PENDING);
	for (int i = 0; i < 12; i++) {
		(void)close(pipes[i][0]);
		(void)close(pipes[i][1]);
	}
	idem_poll_loop_free(loop);
	idem_poll_loop_free(NULL);
}

struct feeder {
	struct idem_timer timer;
	struct idem_loop *loop;
	int fd, fired;
};

static void
feed(struct idem_timer *timer)
{
	struct feeder *feeder = (struct feeder *)(void *)timer;

	if (++feeder->fired == 1)
		assert_int_equal(write(feeder->fd, "x", 1), 1);
	feeder->loop->ops->timer_start(feeder->loop, timer, 0);
}

static void
a_timer_that_starts_itself_anew_lets_descriptors_be_heard(void **state)
{
	struct idem_loop *loop;
	struct feeder feeder;
	struct reader reader;
	int pipes[2];

	(void)state;
	assert_ok(idem_poll_loop_new(&loop));
	assert_int_equal(pipe(pipes), 0);
	feeder = (struct feeder){{.fire = feed}, loop, pipes[1], 0};
	reader = (struct reader){{.fd = pipes[0], .ready = readable}, loop, false, 0};
	assert_ok(loop->ops->fd_watch(loop, &reader.watch, IDEM_READABLE));
	loop->ops->timer_start(loop, &feeder.timer, 0);
	assert_ok(idem_poll_loop_run(loop, &reader.stop, 5000));
	assert_int_equal(feeder.fired, 1);
	loop->ops->timer_stop(loop, &feeder.timer);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	idem_poll_loop_free(loop);
}

struct rival {
	struct idem_fd watch;
	struct idem_loop *loop;
	struct rival *other;
	int heard;
};

static void
give_back_both(struct idem_fd *watch, unsigned readiness)
{
	struct rival *rival = (struct rival *)(void *)watch;

	(void)readiness;
	rival->heard++;
	assert_ok(rival->loop->ops->fd_watch(rival->loop, &rival->other->watch, 0));
	assert_ok(rival->loop->ops->fd_watch(rival->loop, watch, 0));
}

static void
a_descriptor_given_back_by_another_callback_is_not_heard(void **state)
{
	struct idem_loop *loop;
	struct rival rivals[2];
	int pipes[2];

	(void)state;
	assert_ok(idem_poll_loop_new(&loop));
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	for (int i = 0; i < 2; i++) {
		rivals[i] =
			(struct rival){{.fd = pipes[0], .ready = give_back_both}, loop, &rivals[1 - i], 0};
		assert_ok(loop->ops->fd_watch(loop, &rivals[i].watch, IDEM_READABLE));
	}
	assert_int_equal(idem_poll_loop_run(loop, NULL, -1), IDEM_PENDING);
	assert_int_equal(rivals[0].heard + rivals[1].heard, 1);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	idem_poll_loop_free(loop);
}

static void
free_timer(struct idem_timer *timer)
{
	free(timer);
}

static void
a_timer_may_be_freed_by_its_callback(void **state)
{
	struct idem_loop *loop;

	(void)state;
	assert_ok(idem_poll_loop_new(&loop));
	for (int i = 0; i < 3; i++) {
		struct idem_timer *timer = calloc(1, sizeof *timer);

		assert_non_null(timer);
		timer->fire = free_timer;
		loop->ops->timer_start(loop, timer, 1);
	}
	assert_int_equal(idem_poll_loop_run(loop, NULL, -1), IDEM_PENDING);
	idem_poll_loop_free(loop); /* the sanitizer looks for what was not freed, or twice */
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_fire_in_order_and_once),
		cmocka_unit_test(descriptors_are_heard_until_they_are_given_back),
		cmocka_unit_test(a_timer_that_starts_itself_anew_lets_descriptors_be_heard),
		cmocka_unit_test(a_descriptor_given_back_by_another_callback_is_not_heard),
		cmocka_unit_test(a_timer_may_be_freed_by_its_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
