/*
 * idem/store.h - the contract between the engine and a store.
 *
 * For whom.  Those who write a store, or who drive one without the guard.
 * Whoever wants to guard requests needs idem/guard.h alone.
 *
 * The idea.  A store keeps one *cell* per (scope, key) and knows one verb:
 * replace a cell if its tag is still the expected one (compare-and-swap).  All
 * meaning - claiming, replaying, leases, doubt - is decided by idem_step()
 * (idem/step.h), which does no I/O.  A store that swaps cells faithfully is a
 * correct store.
 *
 * What every store guarantees:
 *
 *  - cas() is one atomic step.  No other writer comes between the comparison
 *    of the tag and the write.
 *  - A cell is kept for at least its retain_ms after it was written.  After
 *    that it is as if it had never been, whether or not its bytes are gone.
 *  - Ages are measured by the store's own clock, which every user of that store
 *    shares; a store never compares two hosts' clocks.
 *  - A store that has no room refuses (IDEM_E_FULL).  It never drops a cell
 *    whose time is not over to make room for another.
 *  - An error that may hide a write that took effect is IDEM_E_INDOUBT, and no
 *    other error is.
 *  - The payload of a cell leaves the store only for a caller that wants it and
 *    brings the cell's own fingerprint.
 *
 * Threads.  A struct idem_store belongs to one thread: every call on it and
 * every callback from it happens there.  Many stores, in many threads, processes
 * or machines, may be opened on the same cells.
 */
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include <idem/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_ID_LEN 32
#define IDEM_TAG_LEN 16
#define IDEM_FINGERPRINT_LEN 32

/* A payload longer than this is refused by every store. */
#define IDEM_PAYLOAD_MAX ((size_t)1 << 30)

/*
 * Which cell.  The first half names the scope, the second the key within the
 * scope (idem_id_make() in idem/key.h); a store may use the first half to count
 * or list one scope's cells.  Both are digests: neither key nor scope can be
 * read back from them.
 */
struct idem_id {
	uint8_t b[IDEM_ID_LEN];
};

/*
 * Which version of the cell.  Every write brings one that was never there before: it
 * is at once the lock's token and the fence.  The first bytes are random and
 * name the owner, one execution; the last ones count the owner's writes.  All
 * zero: there is no cell.
 */
struct idem_tag {
	uint8_t b[IDEM_TAG_LEN];
};

#define IDEM_TAG_OWNER_LEN 12

/* Which request.  See idem/fingerprint.h. */
struct idem_fingerprint {
	uint8_t b[IDEM_FINGERPRINT_LEN];
};

enum idem_state {
	IDEM_ABSENT = 0, /* no cell; in a write: remove it */
	IDEM_LOCKED = 1, /* somebody executes the request */
	IDEM_STORED = 2, /* executed; the payload is its response */
	IDEM_DOUBT = 3,  /* it may have been executed; nobody knows */
};

struct idem_cell {
	struct idem_tag tag;
	enum idem_state state;
	uint32_t attempt;   /* 1, and one more for each further execution */
	uint64_t lease_ms;  /* LOCKED: its owner is trusted for this long */
	uint64_t retain_ms; /* the store keeps the cell for at least this long */
	uint64_t age_ms;    /* read only: time since the cell was written */
	struct idem_fingerprint fingerprint;
	struct idem_bytes payload;
};

/*
 * One compare-and-swap.  The caller owns it, embeds it where it likes, and
 * neither moves nor changes it while it is pending.
 */
struct idem_io {
	/* in */
	struct idem_id id;
	struct idem_tag expect; /* all zero: only if there is no cell */
	struct idem_cell write; /* age_ms is ignored; payload must stay valid */
	bool want_payload;      /* fill seen.payload on a conflict, see there */
	void (*done)(struct idem_io *io);

	/* out */
	int status;   /* IDEM_OK, or a negative enum idem_status */
	bool applied; /* the write took effect; seen is not set */

	/*
	 * What was there instead (status IDEM_OK, applied false).  state is
	 * IDEM_ABSENT when a cell was expected and none is there.  payload is
	 * filled only if want_payload was set, the state is IDEM_STORED, and
	 * seen.fingerprint equals write.fingerprint; its bytes are valid until
	 * release().
	 */
	struct idem_cell seen;

	/* The store's own, from cas() until release(). */
	void *store_data;
	struct idem_io *next, **link;
};

/*
 * A wish to hear of changes to a cell.  The caller owns it; it must not move
 * between watch() and unwatch().
 */
struct idem_watch {
	struct idem_id id;

	/*
	 * A hint that the cell may have changed; a renewal by its owner is no change.  It can come too often;
	 * it can be lost (a process died, a connection broke), so ask again now and then anyway.  Never
	 * called from inside watch() or cas(); may be called more than once; calling cas() and unwatch(),
	 * also for other watches, from inside it is allowed.
	 */
	void (*changed)(struct idem_watch *watch);

	/* The store's own, until unwatch(). */
	void *store_data;
	struct idem_watch *next, **link;
};

struct idem_store;

struct idem_store_ops {
	const char *name; /* "memory", "redis", ... */

	/*
	 * Required.  Starts io.
	 *
	 * IDEM_OK: io is finished (look at io->status, which may be an error)
	 * and done() will not be called.  IDEM_PENDING: done() is called exactly
	 * once, later, and never from inside cas().  Nothing else is returned.
	 *
	 * A write with state IDEM_ABSENT removes the cell.
	 * io->write.payload is read until the io has finished.
	 */
	IDEM_MUST_CHECK int (*cas)(struct idem_store *store, struct idem_io *io);

	/*
	 * Required unless cas() always finishes at once.  Forgets a pending io:
	 * done() will not be called, the io may be reused.  Its write may still
	 * take effect.
	 */
	void (*cancel)(struct idem_store *store, struct idem_io *io);

	/*
	 * Required.  Ends the life of seen.payload.  Called once for each io
	 * that finished, whatever its status; harmless where nothing is held.
	 */
	void (*release)(struct idem_store *store, struct idem_io *io);

	/*
	 * Optional, both or neither.  watch() returns IDEM_OK when hints can be
	 * expected, or an error, after which unwatch() is not called.  To close
	 * the race between reading a cell and watching it: watch first, then
	 * ask again.  A cas() on a watched cell that finds it locked makes sure that the
	 * end of that lock will be hinted.
	 */
	IDEM_MUST_CHECK int (*watch)(struct idem_store *store, struct idem_watch *watch);
	void (*unwatch)(struct idem_store *store, struct idem_watch *watch);

	/*
	 * Required.  Frees the store.  Pending ios are cancelled, watches are
	 * gone.  What is stored stays.  Not from inside done() or changed().
	 */
	void (*close)(struct idem_store *store);
};

/* Concrete stores embed this as their first member. */
struct idem_store {
	const struct idem_store_ops *ops;
};

static inline bool
idem_tag_is_zero(const struct idem_tag *tag)
{
	uint8_t all = 0;

	for (size_t i = 0; i < IDEM_TAG_LEN; i++)
		all |= tag->b[i];
	return all == 0;
}

/* Are these tags of one owner? */
static inline bool
idem_tag_same_owner(const struct idem_tag *a, const struct idem_tag *b)
{
	uint8_t differ = 0;

	for (size_t i = 0; i < IDEM_TAG_OWNER_LEN; i++)
		differ |= a->b[i] ^ b->b[i];
	return differ == 0;
}

/* Closes a store; NULL is allowed. */
static inline void
idem_store_close(struct idem_store *store)
{
	if (store != NULL)
		store->ops->close(store);
}

#ifdef __cplusplus
}
#endif

#endif
