/*
 * idem/guard.h - the life of one guarded request, for those who serve HTTP.
 *
 * The idea.  A host makes a guard for a request that carries a key, begins it,
 * and does as the verdict says.  After IDEM_EXECUTE it runs the request and
 * settles the guard with exactly one of complete, release or give up.  The guard does what has to go
 * on meanwhile: it renews the lease every third of it, holds a waiting duplicate
 * until the first one is done, repeats a store operation whose answer was
 * lost, and finishes a completion even if the HTTP request is gone by then.
 *
 *   guard = new(...)
 *   begin -> verdict EXECUTE ----> complete / release / give_up -> settled
 *                    REPLAY, IN_PROGRESS, MISMATCH, IN_DOUBT: answer, free
 *
 * Invariants.
 *
 *  - A response may be sent to a client only after settled() said IDEM_OK and
 *    IDEM_RECORDED (or after the host decided what a failed store means).
 *  - free() may be called at any time, by a host whose client has gone too, and is the last call on
 *    the guard.  No callback comes after it.  What has been started goes on in the background on the loop:
 *    a completion is finished; a claim that turns out to have been won is
 *    released.  A guard that was told to execute and is freed unsettled gives up: its
 *    request may have been executed, and nobody knows.
 *  - The store and the loop must outlive every guard and its background work;
 *    env->busy counts them.
 *
 * Threads.  One guard belongs to one thread, the loop's.  Callbacks come from the
 * loop or the store, never from inside a call on the guard.
 */
#ifndef IDEM_GUARD_H
#define IDEM_GUARD_H

#include <sys/types.h>

#include <idem/loop.h>
#include <idem/step.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What many guards share.  The host owns it; it must outlive every guard made with it, the background work of
 * freed guards included (see busy).
 */
struct idem_guard_env {
	struct idem_store *store;
	struct idem_loop *loop;

	/*
	 * Fills buf with len bytes nobody can guess.  IDEM_OK or IDEM_E_RANDOM.
	 * NULL: idem_random(), which is OpenSSL's RAND_bytes().  Tests give a
	 * seeded one.
	 */
	int (*random)(void *random_data, void *buf, size_t len);
	void *random_data;

	/* Random bytes for the next tags, so that the source is asked once for many.  Starts zeroed; the
	 * guards' own. */
	uint8_t spare_random[32 * IDEM_TAG_LEN];
	size_t spare_random_len;
	pid_t spare_random_process; /* a child of fork() asks for its own */

	/* How long a store operation may take before it counts as failed.  > 0. */
	uint64_t store_timeout_ms;

	/* Guards alive, the background work of freed ones included.  Starts as 0; read only. */
	size_t busy;
};

struct idem_guard;

struct idem_guard_events {
	/* After begin() returned IDEM_PENDING: status and verdict are known now. */
	void (*decided)(struct idem_guard *guard, void *host);

	/*
	 * After complete(), release() or give_up() returned IDEM_PENDING: the store has answered, or
	 * its time is over.  Comes once.
	 */
	void (*settled)(struct idem_guard *guard, void *host);

	/*
	 * Optional.  A renewal found that the lock belongs to somebody else by
	 * now (IDEM_LOST): the execution goes on, but its result will not be kept.  At most once.
	 */
	void (*lost)(struct idem_guard *guard, void *host);
};

struct idem_guard_request {
	struct idem_id id;
	struct idem_fingerprint fingerprint;
	struct idem_policy policy;
	uint64_t wait_ms; /* how long to wait for an execution that is under way; 0: not at all */
};

/*
 * Makes a guard.  request is copied; env and events must outlive it.  host is handed to every event.
 * IDEM_OK, IDEM_E_INVALID (a duration that must not be zero is), or IDEM_E_NOMEM.
 */
IDEM_API int idem_guard_new(struct idem_guard_env *env, const struct idem_guard_request *request,
                            const struct idem_guard_events *events, void *host,
                            struct idem_guard **ret_guard) IDEM_MUST_CHECK;

/*
 * Claims the key.  Once.  IDEM_OK: decided already, look at the status and verdict; events->decided
 * will not be called.  IDEM_PENDING: it will.  Nothing else is returned.
 */
IDEM_API int idem_guard_begin(struct idem_guard *guard) IDEM_MUST_CHECK;

/*
 * The result of begin().  Status IDEM_OK: the verdict is one of EXECUTE, REPLAY,
 * IN_PROGRESS, MISMATCH, IN_DOUBT.  A negative status: the store failed
 * (IDEM_E_FULL, _UNAVAILABLE, _INDOUBT, _CORRUPT, _NOMEM, _RANDOM); nothing may be executed on the
 * strength of this guard.  After IDEM_E_INDOUBT the guard itself sees to it in the background that a claim
 * that was won unnoticed is released.
 */
IDEM_API int idem_guard_status(const struct idem_guard *guard);
IDEM_API enum idem_verdict idem_guard_verdict(const struct idem_guard *guard);

/*
 * What was found (see struct idem_op); with REPLAY its payload is the record (idem/response.h), valid until
 * idem_guard_free().  With EXECUTE: attempt is the number of this execution.
 */
IDEM_API const struct idem_cell *idem_guard_found(const struct idem_guard *guard);
IDEM_API uint32_t idem_guard_attempt(const struct idem_guard *guard);

/* IN_PROGRESS: what the other owner's lease has left, at least 1 and at most lease_ms. */
IDEM_API uint64_t idem_guard_lease_left_ms(const struct idem_guard *guard);

/* How long begin() waited for another execution, and how long store operations took in all, by the loop's
 * clock. */
IDEM_API uint64_t idem_guard_waited_ms(const struct idem_guard *guard);
IDEM_API uint64_t idem_guard_store_ms(const struct idem_guard *guard);

/*
 * Settle a guard whose verdict is EXECUTE; exactly one of these, once.  IDEM_OK: settled, look at
 * idem_guard_settled_status() and _verdict(); events->settled will not be called.  IDEM_PENDING: it will.
 * IDEM_E_INVALID: nothing to settle.
 *
 * complete() takes over record, a buffer from malloc(3) holding an encoded response, in every case.
 *
 * If the store fails, the settled status is negative, and the guard goes on trying in the background, until
 * it succeeds or the lease that was last renewed is over.  After IDEM_E_FULL the host may settle once more,
 * with a shorter record or by giving up: that takes the place of what is being tried.
 */
IDEM_API int idem_guard_complete(struct idem_guard *guard, void *record, size_t len) IDEM_MUST_CHECK;
IDEM_API int idem_guard_release(struct idem_guard *guard) IDEM_MUST_CHECK;
IDEM_API int idem_guard_give_up(struct idem_guard *guard) IDEM_MUST_CHECK;

/* IDEM_OK with IDEM_RECORDED or IDEM_LOST, or the store's failure. */
IDEM_API int idem_guard_settled_status(const struct idem_guard *guard);
IDEM_API enum idem_verdict idem_guard_settled_verdict(const struct idem_guard *guard);

/* The host's last call on a guard; see the invariants.  NULL is allowed. */
IDEM_API void idem_guard_free(struct idem_guard *guard);

/* The default source of randomness.  IDEM_OK or IDEM_E_RANDOM.  Any thread. */
IDEM_API int idem_random(void *unused, void *buf, size_t len) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
