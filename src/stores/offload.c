/* Work that blocks, on a thread of its own: see offload.h. */
#include "offload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WORKING, FINISHED, CANCELLED };

struct idem_offload {
	struct idem_loop *loop;
	const struct idem_offload_ops *ops;
	void *data;
	struct idem_fd bell;
	atomic_int state;
	atomic_int users; /* the thread and the loop's side; the last one frees it */
};

static void
leave(struct idem_offload *offload)
{
	if (atomic_fetch_sub(&offload->users, 1) > 1)
		return;
	(void)close(offload->bell.fd);
	free(offload);
}

static void *
work(void *data)
{
	struct idem_offload *offload = data;
	uint64_t one = 1;

	offload->ops->work(offload->data);
	if (atomic_exchange(&offload->state, FINISHED) == CANCELLED) {
		offload->ops->discard(offload->data);
	} else {
		ssize_t rang = write(offload->bell.fd, &one, sizeof one);

		(void)rang; /* the counter is 0: eventfd(2) takes it */
	}
	leave(offload);
	return NULL;
}

static void
unwatch(struct idem_offload *offload)
{
	int stopped = offload->loop->ops->fd_watch(offload->loop, &offload->bell, 0);

	(void)stopped; /* stopping cannot fail */
}

static void
bell_rang(struct idem_fd *bell, unsigned readiness)
{
	struct idem_offload *offload =
		(struct idem_offload *)(void *)((char *)bell - offsetof(struct idem_offload, bell));
	const struct idem_offload_ops *ops = offload->ops;
	void *data = offload->data;

	(void)readiness;
	if (atomic_load(&offload->state) != FINISHED)
		return; /* not rung: and this is where the thread's writes become ours */
	unwatch(offload);
	leave(offload);
	ops->done(data);
}

/* Signals are for the host's own threads. */
static int
start_thread(struct idem_offload *offload)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	int rc = pthread_attr_init(&attributes);

	if (rc != 0)
		return rc;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (rc == 0)
		rc = pthread_create(&thread, &attributes, work, offload);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	return rc;
}

static int
start(struct idem_offload *offload)
{
	int rc;

	offload->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (offload->bell.fd < 0)
		return IDEM_E_SYSTEM;
	rc = offload->loop->ops->fd_watch(offload->loop, &offload->bell, IDEM_READABLE);
	if (rc == IDEM_OK && (errno = start_thread(offload)) != 0) {
		unwatch(offload);
		rc = IDEM_E_SYSTEM;
	}
	if (rc != IDEM_OK)
		(void)close(offload->bell.fd);
	return rc;
}

int
idem_offload_start(struct idem_offload **ret, struct idem_loop *loop, const struct idem_offload_ops *ops,
                   void *data)
{
	struct idem_offload *offload = calloc(1, sizeof *offload);
	int rc;

	if (offload == NULL)
		return IDEM_E_NOMEM;
	offload->loop = loop;
	offload->ops = ops;
	offload->data = data;
	offload->bell.ready = bell_rang;
	atomic_init(&offload->state, WORKING);
	atomic_init(&offload->users, 2);
	rc = start(offload);
	if (rc != IDEM_OK)
		free(offload);
	else
		*ret = offload;
	return rc;
}

void
idem_offload_cancel(struct idem_offload *offload)
{
	unwatch(offload);
	if (atomic_exchange(&offload->state, CANCELLED) == FINISHED)
		offload->ops->discard(offload->data);
	leave(offload);
}
