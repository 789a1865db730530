/*
 * Expiry.  Each write moves a hand over a few more buckets and removes what is
 * over there, so that the work per request does not grow with what is stored.
 * A bucket knows when its first cell is over; eight of them share a cache line.
 * A look at a bucket also forgets what its filter says of cells that are gone.
 */
#include "layout.h"

#define BUCKETS_PER_LINE 8

/* False: max_removed was reached before the end of the bucket. */
static bool
sweep_bucket(struct memory_store *store, struct shard *shard, struct bucket *bucket, uint64_t now_ms,
             unsigned *removed, unsigned max_removed)
{
	uint32_t *link = &bucket->first;
	uint32_t until = UNTIL_MAX, filter = 0;

	while (*link != 0) {
		struct first_half *cell = &block_at(store, *link)->first;

		if (!idem_memory_is_over(cell, now_ms)) {
			uint32_t cell_until = idem_memory_until(cell->stamp_ms, cell->retain_ms);

			until = cell_until < until ? cell_until : until;
			filter |= idem_memory_place(store, &cell->id).filter;
			link = &cell->next;
			continue;
		}
		if (*removed == max_removed)
			return false;
		(*removed)++;
		idem_memory_remove(store, shard, link);
	}
	bucket->until = until & UNTIL_MAX;
	bucket->filter = filter & 0xff;
	return true;
}

void
idem_memory_sweep(struct memory_store *store, struct shard *shard, uint64_t now_ms, unsigned lines,
                  unsigned max_removed)
{
	uint32_t count = store->region->buckets_per_shard, now = idem_memory_until(now_ms, 0);
	unsigned removed = 0;

	for (unsigned i = 0; i < lines * BUCKETS_PER_LINE && i < count; i++) {
		struct bucket *bucket = bucket_of(store, shard, shard->hand);

		if (bucket->first != 0 && bucket->until <= now &&
		    !sweep_bucket(store, shard, bucket, now_ms, &removed, max_removed))
			return;
		shard->hand = shard->hand + 1 < count ? shard->hand + 1 : 0;
	}
}
