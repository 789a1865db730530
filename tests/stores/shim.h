/*
 * A store around another that misbehaves at chosen calls.
 *
 * The store inside must answer at once.  Calls are counted from 0; those from fault_from up to
 * fault_to (not included) suffer the fault, all others work.
 */
#ifndef IDEM_TEST_SHIM_H
#define IDEM_TEST_SHIM_H

#include <idem/idem.h>

enum shim_fault {
	SHIM_WORKS,
	SHIM_UNAVAILABLE,
	SHIM_FULL,
	SHIM_NOMEM,
	SHIM_LOSE_BEFORE,      /* in doubt; nothing was written */
	SHIM_LOSE_AFTER,       /* in doubt; it was written */
	SHIM_LATE,             /* written and answered later */
	SHIM_LATE_LOSE_BEFORE, /* in doubt, later; nothing was written */
	SHIM_LATE_LOSE_AFTER,  /* in doubt, later; it was written at once */
	SHIM_NEVER_BEFORE,     /* no answer; nothing was written */
	SHIM_NEVER_AFTER,      /* no answer; it was written at once */
	SHIM_LANDS_LATE,       /* no answer; it is written when whoever asked has gone */
	SHIM_FAULTS,
};

#define SHIM_LATE_MS 20
#define SHIM_GHOST_MS 1000

struct shim {
	struct idem_store base;
	struct idem_store *inner;
	struct idem_loop *loop;
	enum shim_fault fault;
	size_t fault_from, fault_to;
	uint64_t late_ms; /* how late is SHIM_LATE; SHIM_LATE_MS at first */

	size_t calls;
	size_t finished, released; /* ios; equal when nobody holds one */
	size_t pending;            /* ios that wait for an answer, and ghosts that are to land */
	struct late *lates;        /* the shim's own */
};

/* Works until it is told otherwise.  Closing it closes the one inside.  NULL: no memory. */
struct shim *shim_open(struct idem_store *inner, struct idem_loop *loop);

#endif
