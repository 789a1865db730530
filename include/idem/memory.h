/*
 * idem/memory.h - the memory store: cells in one region shared by processes.
 *
 * Caveats first.
 *
 *  - Nothing here survives the machine, nor the last process that maps the region.
 *  - One machine only.  Two machines with memory stores are two stores, and a
 *    key sent to both is executed by both.
 *  - A full region refuses new keys (IDEM_E_FULL) until some expire.  It never drops a
 *    cell to make room.  "Full" leaves a sixteenth free, for the responses of the
 *    requests that are under way.
 *  - The region belongs to this machine's Idem of the same format version; it is not a file format.
 *
 * The region is any memory that all processes map shared: an mmap() of
 * a memfd, of a file on tmpfs, or MAP_ANONYMOUS made before fork().  It may lie at another
 * address in each of them: inside there are offsets, no pointers.
 *
 * A process may be killed at any instant, also while it holds one of the locks
 * (which are robust, process-shared mutexes, one for each of many shards).  The next one who takes
 * the lock undoes the half-made change from a journal in the region and goes on.
 */
#ifndef IDEM_MEMORY_H
#define IDEM_MEMORY_H

#include <idem/loop.h>
#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The smallest region that can be formatted.  One for n records is about 512 * n bytes, if bodies are small.
 */
#define IDEM_MEMORY_MIN_BYTES ((size_t)1 << 20)

/*
 * Makes an empty store of a region of len bytes, aligned to a page.  name (at most 63 bytes, not empty) is
 * kept for tools to show.  No other process may use the region yet.  IDEM_OK; IDEM_E_INVALID (too small, more
 * than 2^38 bytes, not aligned, bad name); IDEM_E_RANDOM; IDEM_E_SYSTEM (a lock could not be made).
 */
IDEM_API int idem_memory_format(void *region, size_t len, struct idem_bytes name) IDEM_MUST_CHECK;

/*
 * Is this a region that was formatted by this version, with this length?
 * IDEM_OK; IDEM_E_CORRUPT (no region of ours, or cut short); IDEM_E_VERSION (of another version);
 * IDEM_E_INVALID (ours, but of another length). Reads the header alone; any time.
 */
IDEM_API int idem_memory_check(const void *region, size_t len) IDEM_MUST_CHECK;

struct idem_memory_options {
	void *region; /* formatted, mapped shared and writable, mapped until the store is closed */
	size_t len;

	/*
	 * Where to hear of other processes' changes.  NULL: idem_store_ops.watch
	 * fails with IDEM_E_INVALID, and waiting duplicates ask now and then.
	 */
	struct idem_loop *loop;

	/* The store's clock, shared by all who use the region.  NULL: CLOCK_MONOTONIC in ms.  For tests. */
	uint64_t (*clock_ms)(void *clock_data);
	void *clock_data;
};

/*
 * Opens a formatted region.  As idem_memory_check(), and IDEM_E_NOMEM.  cas()
 * always finishes at once.  A lock is held for microseconds, and waiting for one sleeps in the kernel.  The
 * socket by which a process hears of others' changes is made at the first watch() in that process.
 */
IDEM_API int idem_memory_open(const struct idem_memory_options *options,
                              struct idem_store **ret_store) IDEM_MUST_CHECK;

struct idem_memory_usage {
	uint64_t cells;       /* kept now, those included that are over but not yet removed */
	uint64_t bytes_total; /* what cells can use of the region */
	uint64_t bytes_used;
};

/* Takes each shard's lock in turn; cheap enough for a status page.  store must be a memory store:
 * IDEM_E_INVALID. */
IDEM_API int idem_memory_usage(struct idem_store *store, struct idem_memory_usage *ret_usage) IDEM_MUST_CHECK;

/*
 * Checks every invariant of a region (each block is in exactly one place, each
 * chain ends, each cell is where its id belongs and where its expiry belongs) with all locks held.
 * IDEM_OK, or IDEM_E_CORRUPT and one sentence on what is wrong in buf (cap bytes, NUL included).  For tests
 * and tools: it stops every user of the region for as long as it takes.
 */
IDEM_API int idem_memory_verify(struct idem_store *store, char *buf, size_t cap) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
