/* A loop over poll(2), for programs that have none of their own. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <idem/loop.h>

/* What a timer's host area holds: its place in the list, which is sorted by time. */
struct entry {
	uint64_t at_ms;
	unsigned turn; /* of the loop, when it was started */
	struct idem_timer *next;
	struct idem_timer **link;
};

_Static_assert(sizeof(struct entry) <= IDEM_LOOP_HOST_BYTES, "an entry fits into a timer");

struct watched {
	struct idem_fd *watch; /* NULL: to be removed */
	unsigned readiness;
};

struct poll_loop {
	struct idem_loop base;
	struct idem_timer *timers;
	unsigned turn;
	struct watched *watched;
	struct pollfd *polled;
	size_t count, cap;
};

static struct entry *
entry_of(struct idem_timer *timer)
{
	return (struct entry *)(void *)timer->host;
}

static uint64_t
poll_now_ms(struct idem_loop *loop)
{
	struct timespec now;

	(void)loop;
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- timers ---- */

static void
poll_timer_stop(struct idem_loop *loop, struct idem_timer *timer)
{
	struct entry *entry = entry_of(timer);

	(void)loop;
	if (!timer->armed)
		return;
	timer->armed = false;
	*entry->link = entry->next;
	if (entry->next != NULL)
		entry_of(entry->next)->link = entry->link;
}

static void
poll_timer_start(struct idem_loop *base, struct idem_timer *timer, uint64_t after_ms)
{
	struct poll_loop *loop = (struct poll_loop *)base;
	struct entry *entry = entry_of(timer);
	struct idem_timer **link = &loop->timers;
	uint64_t now = poll_now_ms(base);

	poll_timer_stop(base, timer);
	entry->at_ms = after_ms > UINT64_MAX - now ? UINT64_MAX : now + after_ms;
	while (*link != NULL && entry_of(*link)->at_ms <= entry->at_ms)
		link = &entry_of(*link)->next;
	entry->turn = loop->turn;
	entry->next = *link;
	entry->link = link;
	if (entry->next != NULL)
		entry_of(entry->next)->link = &entry->next;
	*link = timer;
	timer->armed = true;
}

/* ---- descriptors ---- */

static size_t
find(const struct poll_loop *loop, const struct idem_fd *watch)
{
	size_t i = 0;

	while (i < loop->count && loop->watched[i].watch != watch)
		i++;
	return i;
}

static int
grow(struct poll_loop *loop)
{
	size_t cap = loop->cap > 0 ? 2 * loop->cap : 8;
	struct watched *watched = realloc(loop->watched, cap * sizeof *watched);
	struct pollfd *polled;

	if (watched == NULL)
		return IDEM_E_NOMEM;
	loop->watched = watched;
	polled = realloc(loop->polled, cap * sizeof *polled);
	if (polled == NULL)
		return IDEM_E_NOMEM;
	loop->polled = polled;
	loop->cap = cap;
	return IDEM_OK;
}

static int
poll_fd_watch(struct idem_loop *base, struct idem_fd *watch, unsigned readiness)
{
	struct poll_loop *loop = (struct poll_loop *)base;
	size_t i = find(loop, watch);

	if (readiness == 0) {
		if (i < loop->count)
			loop->watched[i].watch = NULL; /* its place may be under the hand of run() */
		return IDEM_OK;
	}
	if (i == loop->count) {
		if (loop->count == loop->cap && grow(loop) != IDEM_OK)
			return IDEM_E_NOMEM;
		loop->count++;
	}
	loop->watched[i] = (struct watched){watch, readiness};
	return IDEM_OK;
}

static void
prepare(struct poll_loop *loop)
{
	size_t n = 0;

	for (size_t i = 0; i < loop->count; i++) {
		struct watched watched = loop->watched[i];

		if (watched.watch == NULL)
			continue;
		loop->watched[n] = watched;
		loop->polled[n].fd = watched.watch->fd;
		loop->polled[n].events = (short)((watched.readiness & IDEM_READABLE ? POLLIN : 0) |
		                                 (watched.readiness & IDEM_WRITABLE ? POLLOUT : 0));
		loop->polled[n].revents = 0;
		n++;
	}
	loop->count = n;
}

/* ---- running ---- */

static bool
stopped(const bool *stop)
{
	return stop != NULL && *stop;
}

static void
call_ready(struct poll_loop *loop, const bool *stop)
{
	size_t count = loop->count; /* those that come meanwhile were not polled */

	for (size_t i = 0; i < count && !stopped(stop); i++) {
		struct idem_fd *watch = loop->watched[i].watch;
		short revents = loop->polled[i].revents;
		unsigned readiness = 0;

		if (watch == NULL || revents == 0)
			continue;
		if (revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL))
			readiness |= IDEM_READABLE;
		if (revents & (POLLOUT | POLLERR | POLLNVAL))
			readiness |= IDEM_WRITABLE;
		readiness &= loop->watched[i].readiness | IDEM_READABLE;
		watch->ready(watch, readiness);
	}
}

/* Timers that are due when the turn begins. */
static void
call_due(struct poll_loop *loop, const bool *stop)
{
	uint64_t now = poll_now_ms(&loop->base);

	loop->turn++;
	while (loop->timers != NULL && entry_of(loop->timers)->at_ms <= now && !stopped(stop)) {
		struct idem_timer *timer = loop->timers;

		if (entry_of(timer)->turn == loop->turn)
			return; /* and so were those behind it */
		poll_timer_stop(&loop->base, timer);
		timer->fire(timer);
	}
}

static int
pause_ms(const struct poll_loop *loop, uint64_t now, uint64_t until)
{
	uint64_t at = loop->timers != NULL ? entry_of(loop->timers)->at_ms : UINT64_MAX;

	if (until < at)
		at = until;
	if (at == UINT64_MAX)
		return -1;
	if (at <= now)
		return 0;
	return at - now < INT_MAX ? (int)(at - now) : INT_MAX;
}

int
idem_poll_loop_run(struct idem_loop *base, const bool *stop, int64_t timeout_ms)
{
	struct poll_loop *loop = (struct poll_loop *)base;
	uint64_t until = timeout_ms < 0 ? UINT64_MAX : poll_now_ms(base) + (uint64_t)timeout_ms;

	while (!stopped(stop)) {
		uint64_t now = poll_now_ms(base);

		prepare(loop);
		if (loop->count == 0 && loop->timers == NULL)
			return IDEM_PENDING;
		if (poll(loop->polled, (nfds_t)loop->count, pause_ms(loop, now, until)) < 0 && errno != EINTR)
			return IDEM_E_SYSTEM;
		call_ready(loop, stop);
		call_due(loop, stop);
		if (!stopped(stop) && poll_now_ms(base) >= until)
			return IDEM_PENDING;
	}
	return IDEM_OK;
}

static const struct idem_loop_ops poll_ops = {
	.now_ms = poll_now_ms,
	.timer_start = poll_timer_start,
	.timer_stop = poll_timer_stop,
	.fd_watch = poll_fd_watch,
};

int
idem_poll_loop_new(struct idem_loop **ret_loop)
{
	struct poll_loop *loop = calloc(1, sizeof *loop);

	if (loop == NULL)
		return IDEM_E_NOMEM;
	loop->base.ops = &poll_ops;
	*ret_loop = &loop->base;
	return IDEM_OK;
}

void
idem_poll_loop_free(struct idem_loop *base)
{
	struct poll_loop *loop = (struct poll_loop *)base;

	if (loop == NULL)
		return;
	free(loop->watched);
	free(loop->polled);
	free(loop);
}
