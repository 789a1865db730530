/*
 * The map of the LMDB store.
 *
 *   DIR/data.mdb, DIR/lock.mdb   LMDB's
 *   DIR/idem.run                 what the processes of one boot share: struct run
 *
 * In data.mdb are four tables:
 *
 *   (main)     "idem" -> struct meta, written again by every transaction
 *   index      id -> place
 *   cells      place -> struct kept
 *   payloads   number -> bytes
 *
 * A place is the time at which its cell may be removed and a number that is never given twice, both
 * big-endian: cells that are written one after another stand side by side, and a commit
 * touches few pages of them.  The index alone is random.  Cells that are over stand in front.
 *
 * Threads.  Each environment has one writer thread, which alone begins write transactions.  Handles read in
 * their own threads.  Everybody who uses the MDB_env holds the gate for reading, whoever closes or maps it
 * anew holds it for writing.  Queues and lists of answers are under env->lock, which is held for moments.
 */
#ifndef IDEM_LMDB_LAYOUT_H
#define IDEM_LMDB_LAYOUT_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <lmdb.h>

#include <idem/lmdb.h>

#include "../wake.h"

#define IDEM_LMDB_MAGIC "idem-kv"
#define IDEM_LMDB_VERSION 1

#define WHY_MAX 512
#define BOOT_MAX 40

/* ---- on disk; numbers in the machine's own order, as LMDB's are ---- */

struct meta {
	char magic[8];
	uint32_t version;
	uint32_t unused; /* 0 */
	uint8_t uuid[16];
	char boot[BOOT_MAX];   /* in which boot the offset holds: see clock.c */
	uint64_t clock_offset; /* added to CLOCK_BOOTTIME, modulo 2^64 */
	uint64_t clock_ms;     /* the latest time anybody wrote */
	uint64_t next_number;  /* of places and payloads; from 1 */
	uint64_t commit;       /* which transaction of ours this is; LMDB's own count begins anew in a copy */
};

#define SUM_LEN 16

struct kept {
	struct idem_id id;
	struct idem_fingerprint fingerprint;
	struct idem_tag tag;
	uint64_t lease_ms, retain_ms, stamp_ms;
	uint64_t commit;  /* which wrote it */
	uint64_t payload; /* its number, 0: none, or an empty one */
	uint32_t payload_len;
	uint32_t attempt;
	uint32_t state;
	uint32_t unused; /* 0 */
	uint8_t payload_sum[SUM_LEN];
	uint8_t sum[SUM_LEN]; /* of all above */
};

_Static_assert(sizeof(struct meta) == 104, "meta has no holes");
_Static_assert(sizeof(struct kept) == 168, "a kept cell has no holes");

struct place {
	uint8_t b[16];
};

/* ---- idem.run ---- */

#define RUN_MAGIC "idem-run"
#define RUN_VERSION 1

struct run {
	char magic[8];
	uint32_t version;
	uint32_t unused;
	char boot[BOOT_MAX];
	uint32_t relaxed;         /* all here open with IDEM_LMDB_SYNC_PROCESS, or none does */
	uint32_t unsynced;        /* what is in data.mdb may not outlive this boot */
	uint64_t data_inode;      /* of data.mdb */
	uint64_t lock_inode;      /* of lock.mdb: whoever locks another one writes at the same time */
	_Atomic uint64_t floor;   /* how long data.mdb has been: it never becomes shorter */
	_Atomic uint64_t durable; /* this commit and all before it would survive a power cut */
	_Atomic uint32_t suspect; /* an fsync failed: the next commit must sync all it depends on */
	struct wake_board board;
};

/* ---- in memory ---- */

enum trouble {
	TROUBLE_NONE,
	TROUBLE_FULL,  /* the map or the disk */
	TROUBLE_WRITE, /* a commit failed */
	TROUBLE_OPEN,  /* the files cannot be used */
	TROUBLE_KINDS,
};

struct lmdb_store;

/* One write on its way: from cas() to the writer, and from there back. */
struct op {
	struct op *next;
	struct idem_io *io; /* the handle's thread's; NULL: nobody wants the answer */
	struct lmdb_store *store;

	struct idem_id id;
	struct idem_tag expect;
	struct idem_cell write; /* its payload is ours */
	bool want_payload;

	int status;
	bool applied;
	uint64_t commit; /* the answer may be given only when this commit is durable; 0: at once */
	struct idem_cell seen;
	void *seen_payload;

	uint8_t payload[]; /* a copy of write.payload */
};

struct op_list {
	struct op *first, **last;
};

struct room {
	bool checked;
	uint64_t checked_ms;
	uint64_t bytes;   /* that can still be had */
	uint64_t for_new; /* a new key is refused when fewer are there */
	uint64_t for_all; /* any write is, but a removal */
	bool disk;        /* it is the disk that is short, not the map */
};

struct lmdb_env {
	struct lmdb_env *next; /* in the registry, and all these under its lock */
	unsigned users;
	pid_t pid;
	dev_t device;
	ino_t inode;

	char *path;
	enum idem_lmdb_sync sync;
	size_t size; /* as asked for; 0: as it is */
	uint64_t (*clock_ms)(void *clock_data);
	void *clock_data;

	pthread_rwlock_t gate;
	MDB_env *mdb; /* NULL: cannot be used at the moment, status says why */
	MDB_dbi main, index, cells, payloads;
	unsigned page_bytes;
	uint64_t generation; /* one more each time mdb is another */
	uint64_t clock_offset;
	uint8_t uuid[16];
	int run_fd;
	struct run *run;
	_Atomic int status;

	/* the writer's own */
	pthread_t writer;
	struct op_list held; /* their answers wait for an fsync */
	uint64_t last_commit;
	MDB_txn *begun; /* the next batch's, or NULL */
	bool strict;    /* the transaction that is open syncs its meta page too */
	struct meta begun_meta;
	struct room room;
	uint64_t repair_tried_ms;
	uint64_t readers_checked_ms;
	bool due; /* cells that are over were left */
	int ring_fd;

	pthread_mutex_t lock;
	pthread_cond_t wanted;
	struct op_list queue;
	bool stopping;
	struct lmdb_store *stores;

	/* for reports; under lock */
	char report[WHY_MAX];
	enum trouble trouble; /* that has not ended */
	uint64_t reported_ms[TROUBLE_KINDS];
	_Atomic uint64_t report_count;
};

struct lmdb_store {
	struct idem_store base;
	struct lmdb_env *env;
	struct idem_loop *loop;
	void (*report)(void *report_data, const char *sentence);
	void *report_data;
	uint64_t reports_heard;

	/* under env->lock */
	struct lmdb_store *next, **link;
	struct op_list done;
	unsigned pending; /* ops that are neither in done nor in delivered */
	bool closed;      /* the last of these frees it */

	struct op_list delivered; /* taken from done, not yet told */
	struct idem_fd bell;      /* an eventfd: something is in done */
	MDB_txn *reader;          /* reset between reads; under the gate */
	uint64_t generation;      /* of the mdb that reader belongs to */
	uint8_t board_uuid[16];   /* of the board that wake has its slot on */
	struct wake wake;
};

/* why.c: what LMDB's and the system's errors mean */

int idem_lmdb_status(int rc) IDEM_MUST_CHECK;
bool idem_lmdb_no_space(int rc) IDEM_MUST_CHECK;
/* One sentence that names the file and the cure.  Returns idem_lmdb_status(rc). */
int idem_lmdb_why(char *why, size_t cap, const char *path, const char *file, int rc);
/* As that, in words of the caller's own. */
int idem_lmdb_say(char *why, size_t cap, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* run.c */

/* The name of a file in the directory; false: it is too long. */
bool idem_lmdb_name(const struct lmdb_env *env, const char *file, char ret_name[PATH_MAX]) IDEM_MUST_CHECK;

/* Opens DIR/idem.run, makes it if need be.  Holds the opening lock.  *ret_alone: nobody else has it. */
int idem_lmdb_run_open(struct lmdb_env *env, bool *ret_alone, char *why, size_t cap) IDEM_MUST_CHECK;
/* The end of opening: others may open now. */
void idem_lmdb_run_opened(struct lmdb_env *env);
/* Before closing: true if nobody else is there; and nobody else comes until idem_lmdb_run_close(). */
bool idem_lmdb_run_last(struct lmdb_env *env);
/* Ends the locks; what is mapped stays until it is opened again, or unmapped. */
void idem_lmdb_run_close(struct lmdb_env *env);
void idem_lmdb_run_unmap(struct lmdb_env *env);
/* Makes a change to the header survive a power cut. */
int idem_lmdb_run_sync(struct lmdb_env *env) IDEM_MUST_CHECK;

/* boot.c */

/* This boot's name.  IDEM_OK, IDEM_E_SYSTEM. */
int idem_lmdb_boot(char boot[BOOT_MAX]) IDEM_MUST_CHECK;
/* How long ago it was; the time of suspend counts. */
uint64_t idem_lmdb_uptime_ms(void);

/* clock.c */

uint64_t idem_lmdb_now(const struct lmdb_env *env);
/* Continues the clock in a new boot, or takes it over. */
int idem_lmdb_clock_start(struct lmdb_env *env, struct meta *meta) IDEM_MUST_CHECK;

/* env.c: the gate is held for writing, or nobody knows of the environment yet */

int idem_lmdb_env_open(struct lmdb_env *env, bool create, char *why, size_t cap) IDEM_MUST_CHECK;
void idem_lmdb_env_close(struct lmdb_env *env);
/*
 * Takes the gate for writing itself.  Maps it anew: as large as others made it, and at least size.  If it
 * cannot be, it has failed, and is opened again with the size it had.
 */
int idem_lmdb_env_remap(struct lmdb_env *env, size_t size) IDEM_MUST_CHECK;
/* The gate is held for reading.  Are the files what they were?  Before anything else is read of them. */
int idem_lmdb_env_health(struct lmdb_env *env) IDEM_MUST_CHECK;
/* As that, and are the other files still where others look for them? */
int idem_lmdb_env_health_of_all(struct lmdb_env *env) IDEM_MUST_CHECK;
/* Nobody uses it until it was opened again. */
void idem_lmdb_env_fail(struct lmdb_env *env, int status);

/* registry.c */

int idem_lmdb_env_get(const struct idem_lmdb_options *options, struct lmdb_env **ret_env, char *why,
                      size_t cap) IDEM_MUST_CHECK;
void idem_lmdb_env_put(struct lmdb_env *env);

/* cells.c: LMDB's errors, MDB_CORRUPTED for what none of ours wrote */

struct found {
	bool there; /* its bytes are */
	bool live;  /* and its time is not over */
	struct place place;
	struct kept kept;
};

int idem_lmdb_meta_get(const struct lmdb_env *env, MDB_txn *txn, struct meta *ret_meta) IDEM_MUST_CHECK;
int idem_lmdb_meta_put(const struct lmdb_env *env, MDB_txn *txn, const struct meta *meta) IDEM_MUST_CHECK;
int idem_lmdb_find(const struct lmdb_env *env, MDB_txn *txn, const struct idem_id *id, uint64_t now_ms,
                   struct found *ret_found) IDEM_MUST_CHECK;
/* Writes op's cell; meta->commit is this transaction's. */
int idem_lmdb_put(const struct lmdb_env *env, MDB_txn *txn, struct meta *meta, const struct found *old,
                  const struct op *op, uint64_t now_ms) IDEM_MUST_CHECK;
int idem_lmdb_remove(const struct lmdb_env *env, MDB_txn *txn, const struct found *old) IDEM_MUST_CHECK;
/* Checks the payload, and points to it in the map. */
int idem_lmdb_payload(const struct lmdb_env *env, MDB_txn *txn, const struct kept *kept,
                      MDB_val *ret_bytes) IDEM_MUST_CHECK;
int idem_lmdb_kept_check(const struct kept *kept) IDEM_MUST_CHECK;
uint64_t idem_lmdb_due(const struct place *place);
/* Removes cells that are over, at most max.  *ret_more: some are left. */
int idem_lmdb_sweep(const struct lmdb_env *env, MDB_txn *txn, uint64_t now_ms, unsigned max,
                    bool *ret_more) IDEM_MUST_CHECK;
/* A conflict, as its caller may see it.  *ret_payload: from malloc(), or NULL. */
int idem_lmdb_show(const struct lmdb_env *env, MDB_txn *txn, const struct found *found, uint64_t now_ms,
                   const struct idem_fingerprint *brought, bool want_payload, struct idem_cell *ret_seen,
                   void **ret_payload) IDEM_MUST_CHECK;

/* room.c */

/* Looks how much can still be had, now and then.  LMDB's errors. */
int idem_lmdb_room_check(struct lmdb_env *env) IDEM_MUST_CHECK;
bool idem_lmdb_room_has_disk(const struct lmdb_env *env);
/* New keys are refused, or will be soon. */
bool idem_lmdb_room_is_short(const struct lmdb_env *env);
/* The pages of the file that hold nothing; txn must only read. */
int idem_lmdb_free_pages(MDB_txn *txn, uint64_t *ret_pages) IDEM_MUST_CHECK;
/* Takes what the op needs from what is known to be free; false: there is not enough. */
bool idem_lmdb_room_take(struct lmdb_env *env, const struct op *op, bool is_new);

/* batch.c: the writer's thread, the gate held for reading */

/* Begins the transaction of the next batch: waits for other processes'. */
void idem_lmdb_batch_begin(struct lmdb_env *env);
/* Runs the ops, each to its answer. */
void idem_lmdb_batch(struct lmdb_env *env, struct op **ops, size_t count);
/* Removes some cells that are over, and keeps the clock on disk. */
void idem_lmdb_tick(struct lmdb_env *env);

/* True: there were some. */
bool idem_lmdb_forget_dead_readers(struct lmdb_env *env);
/* Makes all that was committed durable, or fails what is held for it. */
void idem_lmdb_sync(struct lmdb_env *env);
/* An fsync failed: what waits for one is in doubt. */
void idem_lmdb_fail_held(struct lmdb_env *env);
/* Must an answer that tells of this cell wait until it is durable? */
bool idem_lmdb_is_undurable(const struct lmdb_env *env, const struct found *found);

/* writer.c */

int idem_lmdb_writer_start(struct lmdb_env *env) IDEM_MUST_CHECK;
/* Writes what is queued, and ends the thread. */
void idem_lmdb_writer_stop(struct lmdb_env *env);
void idem_lmdb_report(struct lmdb_env *env, enum trouble kind, const char *sentence);
void idem_lmdb_recovered(struct lmdb_env *env, enum trouble kind);

void idem_lmdb_list_init(struct op_list *list);
void idem_lmdb_list_add(struct op_list *list, struct op *op);
struct op *idem_lmdb_list_take(struct op_list *list);
/* False: it is not there. */
bool idem_lmdb_list_remove(struct op_list *list, struct op *op);
void idem_lmdb_op_free(struct op *op);

/* store.c */

struct lmdb_store *idem_lmdb_downcast(struct idem_store *base);
/* A read transaction of the handle's own; the gate is held for reading while it is used. */
int idem_lmdb_read_begin(struct lmdb_store *store, MDB_txn **ret_txn) IDEM_MUST_CHECK;
void idem_lmdb_read_end(struct lmdb_store *store);

#endif
