/*
 * Work that blocks (a name to resolve, a connection to make), on a thread of its own.
 *
 * The thread lives as long as the work; what it made is handed to the loop's thread.
 */
#ifndef IDEM_STORES_OFFLOAD_H
#define IDEM_STORES_OFFLOAD_H

#include <idem/loop.h>

struct idem_offload;

struct idem_offload_ops {
	void (*work)(void *data);    /* on the thread; all signals are blocked there */
	void (*done)(void *data);    /* later, on the loop's thread; data is the caller's again */
	void (*discard)(void *data); /* instead of done() if it was cancelled; on either thread */
};

/*
 * Starts a thread.  One of done() and discard() is called, once, and ends the life of *ret; neither from
 * inside this function.  IDEM_OK, IDEM_E_NOMEM, or IDEM_E_SYSTEM (no descriptor, no thread); then data is
 * still the caller's.
 */
int idem_offload_start(struct idem_offload **ret, struct idem_loop *loop, const struct idem_offload_ops *ops,
                       void *data) IDEM_MUST_CHECK;

/* Not after done(). What is done cannot be stopped: discard() comes when it ends, perhaps from inside this
 * call. */
void idem_offload_cancel(struct idem_offload *offload);

#endif
