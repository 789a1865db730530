/* Making an empty store of a region, and recognising one. */
#include <string.h>
#include <unistd.h>

#include <idem/guard.h>

#include "layout.h"

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

bool
idem_memory_plan(size_t len, struct region *plan)
{
	uint64_t buckets;

	if (len < IDEM_MEMORY_MIN_BYTES || len > (uint64_t)1 << 38)
		return false;
	/* Whole cache lines of buckets for each shard. */
	plan->buckets_per_shard = (uint32_t)round_up(len / BYTES_PER_BUCKET / SHARD_COUNT + 1, 8);
	buckets = (uint64_t)plan->buckets_per_shard * SHARD_COUNT;
	plan->len = len;
	plan->buckets_at = round_up(sizeof(struct region), 64);
	plan->blocks_at = round_up(plan->buckets_at + buckets * sizeof(struct bucket), BLOCK_BYTES);
	plan->block_count = (len - plan->blocks_at) / BLOCK_BYTES;
	return true;
}

static int
init_locks(struct region *region)
{
	int rc = idem_memory_lock_init(&region->pool.lock);

	for (unsigned i = 0; i < SHARD_COUNT && rc == IDEM_OK; i++)
		rc = idem_memory_lock_init(&region->shards[i].lock);
	return rc;
}

int
idem_memory_format(void *memory, size_t len, struct idem_bytes name)
{
	struct region *region = memory, plan = {0};
	long page = sysconf(_SC_PAGESIZE);
	int rc;

	/* What is refused is not touched: it may be shorter than a header. */
	if (name.len == 0 || name.len >= sizeof region->name || page <= 0 ||
	    (uintptr_t)memory % (uintptr_t)page != 0 || !idem_memory_plan(len, &plan))
		return IDEM_E_INVALID;
	*region = plan;
	memset((char *)memory + region->buckets_at, 0, (size_t)(region->blocks_at - region->buckets_at));
	rc = idem_random(NULL, region->board.uuid, sizeof region->board.uuid);
	if (rc == IDEM_OK)
		rc = idem_random(NULL, &region->secret, sizeof region->secret);
	if (rc != IDEM_OK)
		return rc;
	region->secret |= 1; /* odd numbers lose no bit of what they multiply */
	memcpy(region->name, name.data, name.len);
	region->version = IDEM_MEMORY_VERSION;
	region->pool.fresh = 1;
	rc = init_locks(region);
	if (rc != IDEM_OK)
		return rc;
	/* Last: what is half made is not recognised. */
	memcpy(region->magic, IDEM_MEMORY_MAGIC, sizeof region->magic);
	return IDEM_OK;
}

int
idem_memory_check(const void *memory, size_t len)
{
	const struct region *region = memory;
	struct region plan;

	if (len < sizeof *region || memcmp(region->magic, IDEM_MEMORY_MAGIC, sizeof region->magic) != 0)
		return IDEM_E_CORRUPT;
	if (region->version != IDEM_MEMORY_VERSION)
		return IDEM_E_VERSION;
	if (region->len != len)
		return IDEM_E_INVALID;
	if (!idem_memory_plan(len, &plan) || plan.buckets_per_shard != region->buckets_per_shard ||
	    plan.block_count != region->block_count || plan.buckets_at != region->buckets_at ||
	    plan.blocks_at != region->blocks_at)
		return IDEM_E_CORRUPT;
	return IDEM_OK;
}
