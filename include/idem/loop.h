/*
 * idem/loop.h - the event loop a host lends to Idem.
 *
 * Idem starts no threads and blocks nowhere.  A store that talks to a socket and
 * a guard that waits need two things: to hear when a descriptor is ready and to
 * be called back after some time.  A host with an event loop (nginx, libuv, an
 * epoll of its own) implements these few functions; a program without one uses
 * idem_poll_loop_new().
 *
 * Threads.  A loop belongs to one thread, and with it everything that was
 * opened on it.  Callbacks come from the loop, never from inside one of these
 * functions.
 */
#ifndef IDEM_LOOP_H
#define IDEM_LOOP_H

#include <stdalign.h>

#include <idem/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Room for the host's own event structure inside ours, so that arming a timer allocates nothing. */
#define IDEM_LOOP_HOST_BYTES 128

struct idem_loop;

/*
 * A timer.  Owned by its user, who zeroes it, sets fire (and background) once, and
 * does not move or free it while it is armed.
 */
struct idem_timer {
	/* Called once for each start that was neither stopped nor started anew.  The timer is unarmed
	 * by then and may be started again or freed from inside the call. */
	void (*fire)(struct idem_timer *timer);

	/* True: nobody waits for it; a host that is shutting down need not stay alive for it. */
	bool background;

	bool armed;                                           /* the loop's to set; anybody's to read */
	alignas(16) unsigned char host[IDEM_LOOP_HOST_BYTES]; /* the loop's own */
};

enum idem_readiness {
	IDEM_READABLE = 1, /* also set at end of file and on errors */
	IDEM_WRITABLE = 2,
};

/* A descriptor being watched.  Level-triggered.  Same ownership rules as a timer. */
struct idem_fd {
	int fd;
	void (*ready)(struct idem_fd *watch, unsigned readiness);
	void *host; /* the loop's own; NULL before the first watch */
};

struct idem_loop_ops {
	/* Milliseconds of a clock that never goes back.  May be the time of the current turn of the loop. */
	uint64_t (*now_ms)(struct idem_loop *loop);

	/* Arms the timer, or arms it anew if it is armed.  Cannot fail. */
	void (*timer_start)(struct idem_loop *loop, struct idem_timer *timer, uint64_t after_ms);

	/* Unarms the timer.  Harmless if it is not armed. */
	void (*timer_stop)(struct idem_loop *loop, struct idem_timer *timer);

	/*
	 * Watches watch->fd for the given readiness (a set of enum
	 * idem_readiness); 0 stops watching and must precede close(fd).
	 * IDEM_OK, IDEM_E_NOMEM, or IDEM_E_SYSTEM (errno).  Stopping cannot fail.
	 */
	IDEM_MUST_CHECK int (*fd_watch)(struct idem_loop *loop, struct idem_fd *watch, unsigned readiness);
};

/* Concrete loops embed this as their first member. */
struct idem_loop {
	const struct idem_loop_ops *ops;
};

/* ---- a loop for programs that have none ---- */

/*
 * Makes a loop over poll(2).  IDEM_OK, or IDEM_E_NOMEM.  *ret_loop is untouched
 * on failure.  Free it with idem_poll_loop_free() after everything opened on it.
 */
IDEM_API int idem_poll_loop_new(struct idem_loop **ret_loop) IDEM_MUST_CHECK;
IDEM_API void idem_poll_loop_free(struct idem_loop *loop);

/*
 * Runs callbacks until *stop is true or timeout_ms has passed (negative: no
 * limit).  stop may be NULL; it is looked at after every callback.  IDEM_OK when *stop became true,
 * IDEM_PENDING when time ran out or nothing is left to wait for, IDEM_E_SYSTEM
 * when poll(2) failed.  Not to be called from inside a callback of the same loop.
 */
IDEM_API int idem_poll_loop_run(struct idem_loop *loop, const bool *stop, int64_t timeout_ms) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
