/* What the files of the guard share: its state, and one store operation at a time. */
#ifndef IDEM_GUARD_INTERNAL_H
#define IDEM_GUARD_INTERNAL_H

#include <idem/guard.h>

/* Longer than this between two tries of something that failed is never needed. */
#define IDEM_GUARD_MAX_DELAY_MS 1000

enum idem_guard_phase {
	IDEM_GUARD_NEW,        /* begin() was not called */
	IDEM_GUARD_CLAIMING,   /* a claim is on its way */
	IDEM_GUARD_WAITING,    /* for somebody else's execution, between two claims */
	IDEM_GUARD_EXECUTING,  /* the host executes; renewals in between */
	IDEM_GUARD_SETTLING,   /* the host waits for its settlement */
	IDEM_GUARD_BACKGROUND, /* nobody waits for what is on its way */
	IDEM_GUARD_OVER,       /* nothing will happen any more */
};

struct idem_guard {
	struct idem_guard_env *env;
	const struct idem_guard_events *events;
	void *host;
	struct idem_guard_request request;

	enum idem_guard_phase phase;
	bool detached; /* the host has called free() */
	bool lost;     /* a renewal found another owner */

	/* The result of begin(), and of the settlement. */
	int status;
	enum idem_verdict verdict;
	struct idem_cell found;
	uint64_t lease_left_ms;
	int settled_status;
	enum idem_verdict settled_verdict;

	/* The lock that is held. */
	struct idem_tag owner;
	uint32_t attempt;
	uint64_t lease_until_ms; /* by the loop's clock */
	void *record;            /* what op.payload points to */

	/* Waiting for another's execution. */
	struct idem_watch watch;
	bool watching;
	bool hinted; /* a hint came while a claim was on its way */
	uint64_t wait_since_ms, wait_until_ms, waited_ms;

	/* One operation at a time; op_ended() hears of its end. */
	struct idem_op op;
	struct idem_io io;
	bool io_pending;  /* the store has it */
	bool io_finished; /* it is to be released */
	bool io_in_doubt; /* it may have been applied; the store has not said */
	uint64_t op_since_ms, op_until_ms, delay_ms, store_ms;
	void (*op_ended)(struct idem_guard *guard);

	/* One timer; each state needs it for at most one thing. */
	struct idem_timer timer;
	void (*timer_fired)(struct idem_guard *guard);
};

/* guard_op.c: performing one op */

/*
 * Starts guard->op, whose "in" members are filled in but for id, fingerprint,
 * policy and fresh.  IDEM_OK: it has ended, op_ended() is not called; IDEM_PENDING: it will be.
 */
int idem_guard_op_start(struct idem_guard *guard, void (*op_ended)(struct idem_guard *guard)) IDEM_MUST_CHECK;

/* As above, with the tag of the try before: a write that did land is recognised. */
int idem_guard_op_repeat(struct idem_guard *guard,
                         void (*op_ended)(struct idem_guard *guard)) IDEM_MUST_CHECK;

/* Forgets the op, if one is on its way.  Its write may still land. */
void idem_guard_op_cancel(struct idem_guard *guard);

/* Ends the life of op.found.payload. */
void idem_guard_op_release(struct idem_guard *guard);

uint64_t idem_guard_now(const struct idem_guard *guard);
void idem_guard_timer_start(struct idem_guard *guard, uint64_t after_ms,
                            void (*timer_fired)(struct idem_guard *guard));
void idem_guard_timer_stop(struct idem_guard *guard);

/* guard_wait.c: waiting for another's execution */

/* A claim found an execution under way.  IDEM_PENDING: the guard waits; IDEM_OK: it is not going to. */
int idem_guard_wait(struct idem_guard *guard) IDEM_MUST_CHECK;
void idem_guard_wait_end(struct idem_guard *guard);

/* guard.c */
int idem_guard_claim(struct idem_guard *guard) IDEM_MUST_CHECK;
void idem_guard_claim_again(struct idem_guard *guard);

/* guard_settle.c: renewals, settlements, and what goes on behind the host */

void idem_guard_keep_alive(struct idem_guard *guard);
void idem_guard_release_behind(struct idem_guard *guard, const struct idem_tag *owner, uint32_t attempt);
void idem_guard_give_up_behind(struct idem_guard *guard);
void idem_guard_destroy(struct idem_guard *guard);

#endif
