/*
 * idem/lmdb.h - the LMDB store: cells in a directory of one machine, durable.
 *
 * Caveats first.
 *
 *  - One machine only, and a local file system: LMDB's locks do not work over NFS.
 *  - Processes that share a directory must see each other's process ids (one PID namespace), or LMDB
 *    takes a living reader for a dead one.  To wake each other they must share a network namespace;
 *    otherwise waiting duplicates ask once a second.
 *  - Either all who share a directory open it with IDEM_LMDB_SYNC_PROCESS, or none does.
 *  - LMDB has no checksum of its own.  Each cell and each response has one here, so that a
 *    damaged one is an error and never an answer; a damaged index can still lose a key.
 *  - A store with IDEM_LMDB_SYNC_PROCESS starts empty after a power cut, and says so.
 *  - After fork() a child opens the store anew; what its parent opened is not for it.
 *
 * The directory holds data.mdb and lock.mdb, which are LMDB's, and idem.run, which is ours and needs no
 * backup.  LMDB lets one process open a directory only once: however many stores a process opens on one path,
 * they share one environment and one thread, which writes what all of them queue, many operations in
 * one transaction.
 */
#ifndef IDEM_LMDB_H
#define IDEM_LMDB_H

#include <idem/loop.h>
#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_LMDB_MIN_BYTES ((size_t)1 << 20)
#define IDEM_LMDB_MAX_BYTES ((size_t)1 << 44)
#define IDEM_LMDB_DEFAULT_BYTES ((size_t)1 << 30)

/* When a write is acknowledged.  In each of these, what was acknowledged survives the end of every process.
 */
enum idem_lmdb_sync {
	IDEM_LMDB_SYNC_FULL = 0,   /* when it would survive a power cut */
	IDEM_LMDB_SYNC_COMPLETION, /* responses and doubt: as above; claims, renewals, releases: sooner */
	IDEM_LMDB_SYNC_PROCESS,    /* never waits for the disk; a power cut loses every key */
};

struct idem_lmdb_options {
	const char *path;         /* a directory; made if its parent is there.  Read during the call only */
	size_t size;              /* how far data.mdb may grow; 0: as far as before, or the default */
	enum idem_lmdb_sync sync; /* the same for all stores of a process on one path */
	struct idem_loop *loop;   /* where answers and hints arrive; required, but not by idem_lmdb_check() */

	/*
	 * Told of trouble that began or ended while the store was open, as one sentence that names the path
	 * and the cure.  At most once a minute for one kind of trouble.  On the thread that calls the store
	 * (or idem_lmdb_check()). May be NULL.
	 */
	void (*report)(void *report_data, const char *sentence);
	void *report_data;

	/* The store's clock, shared by all who use the directory.  NULL: CLOCK_BOOTTIME, continued over
	 * reboots; the time for which the machine is off does not count.  For tests. */
	uint64_t (*clock_ms)(void *clock_data);
	void *clock_data;
};

/*
 * Opens a directory, and makes it and its files if they are not there.  IDEM_OK; IDEM_E_INVALID
 * (no path, no loop, a size out of range, or a sync that does not go with those who have it open);
 * IDEM_E_NOMEM; IDEM_E_RANDOM; IDEM_E_SYSTEM (no boot id in /proc, no descriptor); IDEM_E_CORRUPT (not our
 * files, or cut short); IDEM_E_VERSION (of another version of Idem or LMDB); IDEM_E_FULL (no room on the
 * disk); IDEM_E_UNAVAILABLE (permissions, a read-only file system, a missing parent, ...).  why (cap bytes,
 * NUL included) gets one sentence that names the path and the cure, or "".
 *
 * cas() answers at once what a committed transaction tells (a replay, a lock, a mismatch) and later
 * what must be written.  Nothing here waits for the disk, but a page that is not in memory is read from it.
 */
IDEM_API int idem_lmdb_open(const struct idem_lmdb_options *options, struct idem_store **ret_store, char *why,
                            size_t cap) IDEM_MUST_CHECK;

/*
 * Would idem_lmdb_open() succeed?  Makes what is missing, and leaves nothing open: a parent that
 * forks its workers can ask before.  Errors as there.
 */
IDEM_API int idem_lmdb_check(const struct idem_lmdb_options *options, char *why, size_t cap) IDEM_MUST_CHECK;

struct idem_lmdb_usage {
	uint64_t cells;       /* kept now, those included that are over but not yet removed */
	uint64_t bytes_total; /* how far the file may grow */
	uint64_t bytes_used;  /* of it; the file may be larger, by pages that will be used again */
	uint64_t bytes_file;
};

/* Looks at a snapshot; cheap enough for a status page.  store must be an LMDB store: IDEM_E_INVALID. */
IDEM_API int idem_lmdb_usage(struct idem_store *store, struct idem_lmdb_usage *ret_usage) IDEM_MUST_CHECK;

/*
 * Reads everything and checks every invariant (each key leads to its cell, each cell to its key
 * and its response, each checksum).  IDEM_OK; IDEM_E_CORRUPT, or as idem_lmdb_open() if the store cannot be
 * read at the moment; then one sentence on what is wrong is in buf (cap bytes, NUL included).  Others go on
 * meanwhile, but pages they free are not used again until it ends.
 */
IDEM_API int idem_lmdb_verify(struct idem_store *store, char *buf, size_t cap) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
