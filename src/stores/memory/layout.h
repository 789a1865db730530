/*
 * The map of the memory store's region.
 *
 *   region header | shards | buckets | blocks
 *
 * Blocks of 64 bytes are all there is.  A cell is two of them, its first and its second half,
 * and its payload is a chain of others.  Every block begins with the number of
 * the block that follows it in whatever chain it stands: a bucket's cells, a
 * payload, the free list.  Numbers begin at 1; 0 ends a chain.
 *
 * Locks.  Each shard's lock protects its buckets and the cells in them; the pool's lock
 * protects the free list and is taken last.  Both locks are robust, and each has a journal:
 * before anything that can be reached is changed, its old bytes go there.  Whoever
 * finds that a lock's owner has died puts the old bytes back.  At most one of a
 * process' two journals is in use at any time.
 *
 * Blocks on their way between the pool and a shard hang on two words of the
 * shard, grabbed and garbage, so that a death loses none.
 */
#ifndef IDEM_MEMORY_LAYOUT_H
#define IDEM_MEMORY_LAYOUT_H

#include <pthread.h>

#include <idem/memory.h>

#include "../wake.h"

#define IDEM_MEMORY_MAGIC "idem-mem"
#define IDEM_MEMORY_VERSION 4

#define BLOCK_BYTES 64
#define BLOCK_PAYLOAD (BLOCK_BYTES - sizeof(uint32_t))
#define SHARD_BITS 6
#define SHARD_COUNT (1 << SHARD_BITS)
#define BYTES_PER_BUCKET 512
#define JOURNAL_ENTRIES 16

/* Ends of cells are counted in these from the clock's zero; the last one stands for all beyond: 8 years. */
#define UNTIL_UNIT_MS 16000
#define UNTIL_MAX ((1u << 24) - 1)

struct first_half {
	uint32_t next;   /* in its bucket */
	uint32_t second; /* the other half */
	struct idem_id id;
	uint64_t stamp_ms; /* when it was written */
	uint64_t retain_ms;
	uint32_t attempt;
	uint32_t state;
};

struct second_half {
	uint32_t next; /* the payload */
	union {
		uint32_t payload_len; /* STORED */
		uint32_t lease_ms;    /* LOCKED */
	} u;
	struct idem_tag tag;
	struct idem_fingerprint fingerprint;
};

struct piece {
	uint32_t next;
	uint8_t bytes[BLOCK_PAYLOAD];
};

union block {
	uint32_t next;
	struct first_half first;
	struct second_half second;
	struct piece piece;
	uint8_t bytes[BLOCK_BYTES];
};

_Static_assert(sizeof(union block) == BLOCK_BYTES, "a block has 64 bytes");

struct saved {
	uint64_t offset;
	uint32_t len;
	uint8_t old[BLOCK_BYTES];
};

struct lock {
	pthread_mutex_t mutex;
	uint32_t count; /* of entries that are to be put back */
	struct saved saved[JOURNAL_ENTRIES];
};

/*
 * What is known of a bucket's cells without a look at them, so that most new keys
 * and most sweeps touch this line of memory alone.  Both may be too cautious, never wrong.
 */
struct bucket {
	uint32_t first;
	uint32_t until : 24; /* no cell here is over before */
	uint32_t filter : 8; /* a cell whose bit is not set is not here */
};

struct shard {
	struct lock lock;
	uint32_t grabbed; /* a chain from the pool, not yet in a cell */
	uint32_t garbage; /* a chain from cells, not yet in the pool */
	uint32_t hand;    /* the bucket that is swept next */
	uint32_t cells;
} __attribute__((aligned(64)));

struct pool {
	struct lock lock;
	uint32_t free; /* a chain of blocks that were used before */
	uint32_t free_count;
	uint32_t fresh; /* the first block that never was */
} __attribute__((aligned(64)));

struct region {
	char magic[8];
	uint32_t version;
	uint32_t buckets_per_shard;
	uint64_t len;
	uint64_t block_count;
	uint64_t buckets_at, blocks_at; /* offsets */
	uint64_t secret;                /* odd; by it keys are spread over shards and buckets */
	char name[64];
	struct wake_board board;
	struct pool pool;
	struct shard shards[SHARD_COUNT];
};

struct memory_store {
	struct idem_store base;
	struct region *region;
	struct bucket *buckets;
	union block *blocks;
	struct idem_memory_options options;

	struct wake wake;
};

/* A test build kills the process at the Nth of these. */
#ifdef IDEM_MEMORY_POINTS
void idem_memory_point(void);
#define POINT() idem_memory_point()
#else
#define POINT() ((void)0)
#endif

static inline union block *
block_at(const struct memory_store *store, uint32_t number)
{
	return &store->blocks[number - 1];
}

static inline struct bucket *
bucket_of(const struct memory_store *store, const struct shard *shard, uint32_t number)
{
	size_t index = (size_t)(shard - store->region->shards);

	return &store->buckets[index * store->region->buckets_per_shard + number];
}

/* Where a cell belongs. */
struct place {
	struct shard *shard;
	struct bucket *bucket;
	uint32_t filter; /* its bit */
};

struct place idem_memory_place(const struct memory_store *store, const struct idem_id *id);

/* format.c */

/* The geometry that a region of len bytes gets; false: it is too small or too large. */
bool idem_memory_plan(size_t len, struct region *plan) IDEM_MUST_CHECK;

/* lock.c */

/* IDEM_OK, or IDEM_E_CORRUPT if the lock is beyond repair.  *ret_died: its owner had died. */
int idem_memory_lock(struct memory_store *store, struct lock *lock, bool *ret_died) IDEM_MUST_CHECK;
void idem_memory_unlock(struct lock *lock);
int idem_memory_lock_init(struct lock *lock) IDEM_MUST_CHECK;

/* Saves len (at most a block) bytes that are about to be changed. */
void idem_memory_save(struct memory_store *store, struct lock *lock, const void *bytes, size_t len);
/* What was changed since the first save stays. */
void idem_memory_commit(struct lock *lock);

/* pool.c: the shard is locked, and its journal empty */

/*
 * Puts a chain of count blocks on shard->grabbed, which is empty, if spare others are free too.
 * IDEM_OK, IDEM_E_FULL, IDEM_E_CORRUPT.
 */
int idem_memory_grab(struct memory_store *store, struct shard *shard, uint32_t count,
                     uint64_t spare) IDEM_MUST_CHECK;
/* Gives back what hangs on grabbed and garbage. */
int idem_memory_give_back(struct memory_store *store, struct shard *shard) IDEM_MUST_CHECK;

/* cells.c: the shard is locked */

/* The number of the cell's first half, or 0.  *ret_link: the word that holds that number. */
uint32_t idem_memory_find(const struct memory_store *store, const struct place *place,
                          const struct idem_id *id, uint32_t **ret_link);
bool idem_memory_is_over(const struct first_half *cell, uint64_t now_ms);
/* When a cell is over, as buckets count; never too late. */
uint32_t idem_memory_until(uint64_t stamp_ms, uint64_t retain_ms);
/* Takes the cell out of its bucket and puts its blocks on the shard's garbage. */
void idem_memory_remove(struct memory_store *store, struct shard *shard, uint32_t *link);
/* Writes a cell: a new one if number is 0.  Its blocks hang on shard->grabbed. */
void idem_memory_write(struct memory_store *store, const struct place *place, uint32_t number,
                       const struct idem_io *io, uint64_t now_ms);
void idem_memory_fill(struct memory_store *store, uint32_t chain, struct idem_bytes payload);
void idem_memory_copy(const struct memory_store *store, uint32_t chain, uint8_t *out, size_t len);
uint32_t idem_memory_pieces(size_t len);

/* sweep.c */

/* Removes cells that are over, a few at most; lines: how many groups of eight buckets to look at. */
void idem_memory_sweep(struct memory_store *store, struct shard *shard, uint64_t now_ms, unsigned lines,
                       unsigned max_removed);

/* store.c */

/* Locks a shard and repairs it if its owner died. */
int idem_memory_enter(struct memory_store *store, struct shard *shard) IDEM_MUST_CHECK;
struct memory_store *idem_memory_downcast(struct idem_store *base);
uint64_t idem_memory_now(const struct memory_store *store);

#endif
