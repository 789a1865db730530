/* The checker: every block is in exactly one place, and every cell where it belongs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

struct audit {
	struct memory_store *store;
	uint8_t *seen; /* one byte for each block */
	char *buf;
	size_t cap;
	bool wrong;
};

static void __attribute__((format(printf, 2, 3))) blame(struct audit *audit, const char *format, ...)
{
	va_list arguments;

	if (audit->wrong)
		return; /* the first fault is the one to read */
	audit->wrong = true;
	va_start(arguments, format);
	(void)vsnprintf(audit->buf, audit->cap, format, arguments);
	va_end(arguments);
}

/* Counts a block as found; false if it cannot be one, or was found before. */
static bool
meet(struct audit *audit, uint32_t number, const char *where)
{
	if (number == 0 || number >= audit->store->region->pool.fresh) {
		blame(audit, "%s leads to block %u, which does not exist", where, number);
		return false;
	}
	if (audit->seen[number] != 0) {
		blame(audit, "block %u is in two places, one of them %s", number, where);
		return false;
	}
	audit->seen[number] = 1;
	return true;
}

static uint64_t
walk(struct audit *audit, uint32_t chain, const char *where)
{
	uint64_t count = 0;

	for (; chain != 0 && meet(audit, chain, where); chain = block_at(audit->store, chain)->next)
		count++;
	return count;
}

static void
check_payload(struct audit *audit, const struct first_half *first, const struct second_half *second)
{
	uint64_t pieces = walk(audit, second->next, "a payload");
	uint64_t wanted = first->state == IDEM_STORED ? idem_memory_pieces(second->u.payload_len) : 0;

	if (pieces != wanted)
		blame(audit, "a payload has %llu blocks and should have %llu", (unsigned long long)pieces,
		      (unsigned long long)wanted);
}

static void
check_cell(struct audit *audit, const struct shard *shard, const struct bucket *bucket, uint32_t number)
{
	const struct first_half *first = &block_at(audit->store, number)->first;
	struct place place = idem_memory_place(audit->store, &first->id);

	if (place.shard != shard || place.bucket != bucket)
		blame(audit, "cell %u is in the wrong bucket", number);
	if (first->state < IDEM_LOCKED || first->state > IDEM_DOUBT)
		blame(audit, "cell %u has no state", number);
	if (idem_memory_until(first->stamp_ms, first->retain_ms) < bucket->until)
		blame(audit, "cell %u is over before its bucket says so", number);
	if ((bucket->filter & place.filter) == 0)
		blame(audit, "cell %u is not in its bucket's filter", number);
	if (!meet(audit, first->second, "a cell's second half"))
		return;
	if (idem_tag_is_zero(&block_at(audit->store, first->second)->second.tag))
		blame(audit, "cell %u has no tag", number);
	check_payload(audit, first, &block_at(audit->store, first->second)->second);
}

static void
check_shard(struct audit *audit, const struct shard *shard)
{
	uint32_t cells = 0;

	if (shard->lock.count != 0)
		blame(audit, "a shard's journal is in use");
	(void)walk(audit, shard->grabbed, "a shard's grabbed blocks");
	(void)walk(audit, shard->garbage, "a shard's garbage");
	for (uint32_t i = 0; i < audit->store->region->buckets_per_shard; i++) {
		const struct bucket *bucket = bucket_of(audit->store, shard, i);
		uint32_t number = bucket->first;

		for (; number != 0 && meet(audit, number, "a bucket");
		     number = block_at(audit->store, number)->next) {
			check_cell(audit, shard, bucket, number);
			cells++;
		}
	}
	if (cells != shard->cells)
		blame(audit, "a shard counts %u cells and has %u", shard->cells, cells);
}

static void
check_pool(struct audit *audit)
{
	const struct pool *pool = &audit->store->region->pool;
	uint64_t count = walk(audit, pool->free, "the free list");

	if (pool->lock.count != 0)
		blame(audit, "the pool's journal is in use");
	if (count != pool->free_count)
		blame(audit, "the pool counts %u free blocks and has %llu", pool->free_count,
		      (unsigned long long)count);
	for (uint32_t number = 1; number < pool->fresh; number++)
		if (audit->seen[number] == 0)
			blame(audit, "block %u is lost", number);
}

static int
lock_all(struct memory_store *store, unsigned *ret_locked)
{
	bool died;
	int rc = IDEM_OK;

	for (*ret_locked = 0; *ret_locked < SHARD_COUNT; (*ret_locked)++) {
		rc = idem_memory_enter(store, &store->region->shards[*ret_locked]);
		if (rc != IDEM_OK)
			return rc;
	}
	return idem_memory_lock(store, &store->region->pool.lock, &died);
}

int
idem_memory_verify(struct idem_store *base, char *buf, size_t cap)
{
	struct memory_store *store = idem_memory_downcast(base);
	struct audit audit = {.store = store, .buf = buf, .cap = cap};
	unsigned locked;
	int rc;

	if (store == NULL)
		return IDEM_E_INVALID;
	audit.seen = calloc((size_t)store->region->block_count + 1, 1);
	if (audit.seen == NULL)
		return IDEM_E_NOMEM;
	rc = lock_all(store, &locked);
	if (rc == IDEM_OK) {
		for (unsigned i = 0; i < SHARD_COUNT; i++)
			check_shard(&audit, &store->region->shards[i]);
		check_pool(&audit);
		idem_memory_unlock(&store->region->pool.lock);
		rc = audit.wrong ? IDEM_E_CORRUPT : IDEM_OK;
	}
	while (locked > 0)
		idem_memory_unlock(&store->region->shards[--locked].lock);
	free(audit.seen);
	return rc;
}
