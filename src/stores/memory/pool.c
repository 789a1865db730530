/* Free blocks: shared by all shards, moved in chains, one transaction each. */
#include "layout.h"

/* free, free_count and fresh stand together and change together. */
#define POOL_WORDS (3 * sizeof(uint32_t))

/* Links the blocks from first on, which nobody else can reach yet. */
static void
link_fresh(struct memory_store *store, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		block_at(store, first + i)->next = i + 1 < count ? first + i + 1 : 0;
}

static uint32_t
last_of(const struct memory_store *store, uint32_t chain, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		chain = block_at(store, chain)->next;
	return chain;
}

static uint32_t
end_of(const struct memory_store *store, uint32_t chain, uint32_t *ret_count)
{
	uint32_t count = 1;

	while (block_at(store, chain)->next != 0) {
		chain = block_at(store, chain)->next;
		count++;
	}
	*ret_count = count;
	return chain;
}

/* The pool is locked and has enough. */
static void
move_to_shard(struct memory_store *store, struct shard *shard, uint32_t count)
{
	struct pool *pool = &store->region->pool;
	uint32_t used = count < pool->free_count ? count : pool->free_count;
	uint32_t fresh = count - used;
	uint32_t chain = used > 0 ? pool->free : pool->fresh;

	link_fresh(store, pool->fresh, fresh);
	idem_memory_save(store, &pool->lock, &pool->free, POOL_WORDS);
	idem_memory_save(store, &pool->lock, &shard->grabbed, sizeof shard->grabbed);
	if (used > 0) {
		union block *last = block_at(store, last_of(store, chain, used));

		idem_memory_save(store, &pool->lock, &last->next, sizeof last->next);
		pool->free = last->next;
		pool->free_count -= used;
		last->next = fresh > 0 ? pool->fresh : 0;
	}
	pool->fresh += fresh;
	shard->grabbed = chain;
	idem_memory_commit(&pool->lock);
}

int
idem_memory_grab(struct memory_store *store, struct shard *shard, uint32_t count, uint64_t spare)
{
	struct pool *pool = &store->region->pool;
	uint64_t available;
	bool died;
	int rc;

	if (count == 0)
		return IDEM_OK;
	rc = idem_memory_lock(store, &pool->lock, &died);
	if (rc != IDEM_OK)
		return rc;
	available = store->region->block_count - (pool->fresh - 1) + pool->free_count;
	if (count + spare <= available)
		move_to_shard(store, shard, count);
	else
		rc = IDEM_E_FULL;
	idem_memory_unlock(&pool->lock);
	return rc;
}

/* The pool is locked; *word holds a chain, or nothing. */
static void
move_to_pool(struct memory_store *store, uint32_t *word)
{
	struct pool *pool = &store->region->pool;
	uint32_t count;
	union block *last;

	if (*word == 0)
		return;
	last = block_at(store, end_of(store, *word, &count));
	idem_memory_save(store, &pool->lock, &pool->free, POOL_WORDS);
	idem_memory_save(store, &pool->lock, word, sizeof *word);
	idem_memory_save(store, &pool->lock, &last->next, sizeof last->next);
	last->next = pool->free;
	pool->free = *word;
	pool->free_count += count;
	*word = 0;
	idem_memory_commit(&pool->lock);
}

int
idem_memory_give_back(struct memory_store *store, struct shard *shard)
{
	struct pool *pool = &store->region->pool;
	bool died;
	int rc;

	rc = idem_memory_lock(store, &pool->lock, &died);
	if (rc != IDEM_OK)
		return rc;
	move_to_pool(store, &shard->grabbed);
	move_to_pool(store, &shard->garbage);
	idem_memory_unlock(&pool->lock);
	return IDEM_OK;
}
