/* The memory store: one compare-and-swap under a shard's lock. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../rules.h"
#include "layout.h"

/* Per write, and when there is no room: how many lines of buckets are swept, and cells removed. */
#define SWEEP_LINES 1
#define SWEEP_CELLS 4
#define SWEEP_LINES_FULL 512
#define SWEEP_CELLS_FULL 4096
/* Of each other shard, when its own has nothing that is over. */
#define SWEEP_LINES_OTHER 64
#define SWEEP_CELLS_OTHER 256

static const struct idem_store_ops memory_ops;

struct memory_store *
idem_memory_downcast(struct idem_store *base)
{
	return base->ops == &memory_ops ? (struct memory_store *)base : NULL;
}

uint64_t
idem_memory_now(const struct memory_store *store)
{
	struct timespec now;

	if (store->options.clock_ms != NULL)
		return store->options.clock_ms(store->options.clock_data);
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int
idem_memory_enter(struct memory_store *store, struct shard *shard)
{
	bool died;
	int rc = idem_memory_lock(store, &shard->lock, &died);

	if (rc != IDEM_OK)
		return rc;
	if (died)
		rc = idem_memory_give_back(store, shard);
	if (rc != IDEM_OK)
		idem_memory_unlock(&shard->lock);
	return rc;
}

static int
leave(struct memory_store *store, struct shard *shard)
{
	int rc = shard->garbage != 0 ? idem_memory_give_back(store, shard) : IDEM_OK;

	idem_memory_unlock(&shard->lock);
	return rc;
}

/* ---- conflict ---- */

static int
show_payload(struct memory_store *store, struct idem_io *io, const struct second_half *second)
{
	uint8_t *copy = malloc((size_t)second->u.payload_len + 1);

	if (copy == NULL)
		return IDEM_E_NOMEM;
	idem_memory_copy(store, second->next, copy, second->u.payload_len);
	io->store_data = copy;
	io->seen.payload = (struct idem_bytes){copy, second->u.payload_len};
	return IDEM_OK;
}

static int
show(struct memory_store *store, struct idem_io *io, uint32_t number, uint64_t now_ms)
{
	const struct first_half *first;
	const struct second_half *second;

	memset(&io->seen, 0, sizeof io->seen);
	if (number == 0)
		return IDEM_OK;
	first = &block_at(store, number)->first;
	second = &block_at(store, first->second)->second;
	io->seen.tag = second->tag;
	io->seen.state = (enum idem_state)first->state;
	io->seen.attempt = first->attempt;
	io->seen.lease_ms = first->state == IDEM_LOCKED ? second->u.lease_ms : 0;
	io->seen.retain_ms = first->retain_ms;
	io->seen.age_ms = idem_rule_age_ms(first->stamp_ms, now_ms);
	io->seen.fingerprint = second->fingerprint;
	if (!idem_rule_may_see_payload(io->seen.state, &second->fingerprint, &io->write.fingerprint,
	                               io->want_payload))
		return IDEM_OK;
	return show_payload(store, io, second);
}

/* ---- write ---- */

/*
 * A new cell is refused while less than a sixteenth of the region is free: the
 * rest is for the responses of those that run already.
 */
static uint64_t
spare_for(const struct memory_store *store, uint32_t number)
{
	return number == 0 ? store->region->block_count / 16 : 0;
}

static int
make_room(struct memory_store *store, struct shard *shard, uint32_t count, uint64_t spare, uint64_t now_ms)
{
	int rc = idem_memory_grab(store, shard, count, spare);

	if (rc != IDEM_E_FULL)
		return rc;
	idem_memory_sweep(store, shard, now_ms, SWEEP_LINES_FULL, SWEEP_CELLS_FULL);
	if (shard->garbage == 0)
		return IDEM_E_FULL;
	rc = idem_memory_give_back(store, shard);
	return rc == IDEM_OK ? idem_memory_grab(store, shard, count, spare) : rc;
}

/*
 * The sweep in make_room() may move the cell's neighbours, never the cell: it
 * is not over, or the caller has removed it.
 */
static int
write_cell(struct memory_store *store, const struct place *place, uint32_t number, struct idem_io *io,
           uint64_t now_ms)
{
	uint32_t head = number == 0 ? 2 : 0;
	uint32_t pieces = idem_memory_pieces(io->write.payload.len);
	uint32_t chain;
	int rc;

	rc = make_room(store, place->shard, head + pieces, spare_for(store, number), now_ms);
	if (rc != IDEM_OK)
		return rc;
	chain = place->shard->grabbed;
	for (uint32_t i = 0; i < head; i++)
		chain = block_at(store, chain)->next;
	idem_memory_fill(store, chain, io->write.payload);
	idem_memory_write(store, place, number, io, now_ms);
	return IDEM_OK;
}

static int
apply(struct memory_store *store, const struct place *place, uint32_t number, struct idem_io *io,
      uint64_t now_ms)
{
	uint32_t *link;

	if (io->write.state != IDEM_ABSENT)
		return write_cell(store, place, number, io, now_ms);
	if (number != 0) {
		(void)idem_memory_find(store, place, &io->id, &link);
		idem_memory_remove(store, place->shard, link);
	}
	return IDEM_OK;
}

/* The cell that counts: what is over is taken away first. */
static uint32_t
find_live(struct memory_store *store, const struct place *place, const struct idem_id *id, uint64_t now_ms)
{
	uint32_t *link, number = idem_memory_find(store, place, id, &link);

	if (number == 0 || !idem_memory_is_over(&block_at(store, number)->first, now_ms))
		return number;
	idem_memory_remove(store, place->shard, link);
	return 0;
}

static bool
expected(const struct memory_store *store, uint32_t number, const struct idem_tag *expect)
{
	static const struct idem_tag nothing;
	const struct idem_tag *tag = &nothing;

	if (number != 0)
		tag = &block_at(store, block_at(store, number)->first.second)->second.tag;
	return memcmp(tag->b, expect->b, IDEM_TAG_LEN) == 0;
}

static int
swap(struct memory_store *store, const struct place *place, struct idem_io *io)
{
	uint64_t now_ms = idem_memory_now(store);
	uint32_t number = find_live(store, place, &io->id, now_ms);
	int rc;

	if (!expected(store, number, &io->expect))
		return show(store, io, number, now_ms);
	idem_memory_sweep(store, place->shard, now_ms, SWEEP_LINES, SWEEP_CELLS);
	rc = apply(store, place, number, io, now_ms);
	io->applied = rc == IDEM_OK;
	return rc;
}

static bool
fits(const struct memory_store *store, const struct idem_cell *write)
{
	return write->payload.len <= IDEM_PAYLOAD_MAX &&
	       write->payload.len / BLOCK_PAYLOAD < store->region->block_count;
}

static int
swap_in_shard(struct memory_store *store, const struct place *place, struct idem_io *io)
{
	int rc, status = idem_memory_enter(store, place->shard);

	if (status != IDEM_OK)
		return status;
	status = swap(store, place, io);
	rc = leave(store, place->shard);
	return rc != IDEM_OK && status == IDEM_OK && !io->applied ? rc : status;
}

/* True: the shard had something that is over, and the pool has it now. */
static bool
clear_out(struct memory_store *store, struct shard *shard)
{
	bool found;

	if (idem_memory_enter(store, shard) != IDEM_OK)
		return false;
	idem_memory_sweep(store, shard, idem_memory_now(store), SWEEP_LINES_OTHER, SWEEP_CELLS_OTHER);
	found = shard->garbage != 0;
	return leave(store, shard) == IDEM_OK && found;
}

/* The room may be where no write has come by.  One shard is locked at a time. */
static void
find_room_elsewhere(struct memory_store *store, const struct place *place, struct idem_io *io)
{
	size_t own = (size_t)(place->shard - store->region->shards);

	for (size_t i = 1; i < SHARD_COUNT && io->status == IDEM_E_FULL; i++)
		if (clear_out(store, &store->region->shards[(own + i) % SHARD_COUNT]))
			io->status = swap_in_shard(store, place, io);
}

static int
memory_cas(struct idem_store *base, struct idem_io *io)
{
	struct memory_store *store = (struct memory_store *)base;
	struct place place = idem_memory_place(store, &io->id);

	io->applied = false;
	io->store_data = NULL;
	if (io->write.lease_ms > UINT32_MAX) {
		io->status = IDEM_E_INVALID;
		return IDEM_OK;
	}
	if (!fits(store, &io->write)) {
		io->status = IDEM_E_FULL;
		return IDEM_OK;
	}
	io->status = swap_in_shard(store, &place, io);
	if (io->status == IDEM_E_FULL)
		find_room_elsewhere(store, &place, io);
	if (io->applied && idem_rule_is_news(&io->write, &io->expect))
		idem_wake_ring_from(&store->wake, &io->id);
	return IDEM_OK;
}

static void
memory_release(struct idem_store *base, struct idem_io *io)
{
	(void)base;
	free(io->store_data);
	io->store_data = NULL;
}

static int
memory_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct memory_store *store = (struct memory_store *)base;

	return idem_wake_watch(&store->wake, watch);
}

static void
memory_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	struct memory_store *store = (struct memory_store *)base;

	idem_wake_unwatch(&store->wake, watch);
}

static void
memory_close(struct idem_store *base)
{
	struct memory_store *store = (struct memory_store *)base;

	idem_wake_close(&store->wake);
	free(store);
}

static const struct idem_store_ops memory_ops = {
	.name = "memory",
	.cas = memory_cas,
	.release = memory_release,
	.watch = memory_watch,
	.unwatch = memory_unwatch,
	.close = memory_close,
};

int
idem_memory_open(const struct idem_memory_options *options, struct idem_store **ret_store)
{
	struct region *region = options->region;
	struct memory_store *store;
	int rc = idem_memory_check(region, options->len);

	if (rc != IDEM_OK)
		return rc;
	store = calloc(1, sizeof *store);
	if (store == NULL)
		return IDEM_E_NOMEM;
	store->base.ops = &memory_ops;
	store->region = region;
	store->buckets = (struct bucket *)(void *)((char *)region + region->buckets_at);
	store->blocks = (union block *)(void *)((char *)region + region->blocks_at);
	store->options = *options;
	idem_wake_init(&store->wake, &region->board, options->loop);
	*ret_store = &store->base;
	return IDEM_OK;
}

int
idem_memory_usage(struct idem_store *base, struct idem_memory_usage *ret_usage)
{
	struct memory_store *store = idem_memory_downcast(base);
	struct idem_memory_usage usage = {0};
	struct pool *pool;
	bool died;
	int rc = IDEM_OK;

	if (store == NULL)
		return IDEM_E_INVALID;
	for (unsigned i = 0; i < SHARD_COUNT && rc == IDEM_OK; i++) {
		struct shard *shard = &store->region->shards[i];

		rc = idem_memory_enter(store, shard);
		if (rc != IDEM_OK)
			break;
		usage.cells += shard->cells;
		idem_memory_unlock(&shard->lock);
	}
	if (rc != IDEM_OK)
		return rc;
	pool = &store->region->pool;
	rc = idem_memory_lock(store, &pool->lock, &died);
	if (rc != IDEM_OK)
		return rc;
	usage.bytes_total = store->region->block_count * BLOCK_BYTES;
	usage.bytes_used = (uint64_t)(pool->fresh - 1 - pool->free_count) * BLOCK_BYTES;
	idem_memory_unlock(&pool->lock);
	*ret_usage = usage;
	return IDEM_OK;
}
