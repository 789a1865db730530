/*
 * idem/step.h - the protocol: what to write to a cell, and what an answer means.
 *
 * idem_step() is a pure function over a struct idem_op: no I/O, no clock, no
 * memory of its own, no randomness.  Somebody else (idem/guard.h, or a test)
 * performs the idem_io it asks for and hands the result back.
 *
 *            claim (absent or expired)
 *  absent --------------------------------> LOCKED (owner, attempt, lease)
 *    ^                                        |    |   ^
 *    |  release: known not to have executed   |    |   | renew
 *    +----------------------------------------+    |   |
 *    ^                                    complete |   | give up, or lease over
 *    |  retain_ms over                             v   v
 *    +------------------------------------- STORED    DOUBT
 *                                                      | claim, if policy says retry:
 *                                                      | LOCKED again, attempt + 1
 *
 * Rules that the store cannot know and this function keeps:
 *
 *  - A fingerprint that differs is a mismatch in every state, before anything
 *    else is looked at.
 *  - A lock whose lease is over stays as it is under the policy "reject": its
 *    owner, if it lives after all, may still complete it.  Everybody else is told
 *    IDEM_IN_DOUBT.
 *  - A release after a second attempt does not forget the first: the cell goes
 *    back to DOUBT, because what the first attempt did is still unknown.
 *  - The lock is kept for lease_ms + ttl_ms, so that a dead owner's key stays in
 *    doubt and is not taken for a new one.
 *  - An io that ended IDEM_E_INDOUBT may be performed again unchanged, while the
 *    ttl is not over: a write that did take effect the first time is recognised by
 *    its tag.
 */
#ifndef IDEM_STEP_H
#define IDEM_STEP_H

#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

enum idem_verb {
	IDEM_CLAIM,    /* may I execute this request? */
	IDEM_COMPLETE, /* I did; here is the response */
	IDEM_RELEASE,  /* I did not, and can prove it */
	IDEM_RENEW,    /* I am still at it */
	IDEM_GIVE_UP,  /* I do not know whether it was executed */
};

enum idem_verdict {
	IDEM_UNDECIDED = 0,
	IDEM_EXECUTE,     /* claim: yours.  Execute, then complete, release or give up */
	IDEM_REPLAY,      /* claim: executed before; found.payload is the response */
	IDEM_IN_PROGRESS, /* claim: another owner is at it; wait_ms is what its lease has left */
	IDEM_MISMATCH,    /* claim: the key was used for a different request */
	IDEM_IN_DOUBT,    /* claim: an earlier execution's outcome is not known */
	IDEM_RECORDED,    /* the other verbs: done, or found to be done already */
	IDEM_LOST,        /* the other verbs: no longer the owner; nothing was written */
};

struct idem_policy {
	uint64_t lease_ms;   /* how long an owner is trusted without a sign of life; > 0 */
	uint64_t ttl_ms;     /* how long a response answers retries, from its completion; > 0 */
	bool retry_in_doubt; /* execute again when the outcome is not known (at least once) */
};

struct idem_op {
	/* in */
	enum idem_verb verb;
	struct idem_policy policy;
	struct idem_id id;
	struct idem_fingerprint fingerprint;
	struct idem_bytes payload; /* COMPLETE: the encoded response; must stay valid */
	struct idem_tag owner;     /* all but CLAIM: the tag of the lock that is held, from won */
	uint32_t attempt;          /* all but CLAIM: the attempt a claim was won with */
	struct idem_tag fresh;     /* all but RENEW: random, new for each op, not zero */

	/* out, once idem_step() has returned false */
	int status; /* IDEM_OK, or why there is no verdict */
	enum idem_verdict verdict;
	struct idem_tag won;    /* EXECUTE, and RENEW recorded: the tag of the lock from now on.  A claim
	                         * that ended with an error: the tag it may hold a lock with */
	struct idem_cell found; /* claim, not EXECUTE: what was there; after MISMATCH only zeros */
	uint64_t wait_ms;       /* IN_PROGRESS; at least 1 */
};

/*
 * Advances op.  Pass result = NULL at first, then the idem_io that was
 * performed.  True: perform *next (this function fills in all its "in" members
 * except done) and come back.  False: op->status and op->verdict are set.
 *
 * result and next may be the same object.  found.payload points into
 * result->seen, so release the io only after use.  For an io that ended IDEM_E_INDOUBT this
 * returns false with that status; the caller may perform the same io again and
 * call again, as if the first had not been.  An attempt number that would pass UINT32_MAX stays there.
 *
 * Ends: at most one cas per call; a claim whose cell keeps changing under it (which
 * takes a state change between two of its own steps each time) asks again.
 */
IDEM_API bool idem_step(struct idem_op *op, const struct idem_io *result,
                        struct idem_io *next) IDEM_MUST_CHECK;

/* The name of a verdict, in lower case with underscores ("in_progress").  Static text. */
IDEM_API const char *idem_verdict_name(enum idem_verdict verdict);

#ifdef __cplusplus
}
#endif

#endif
