/* Cells in their buckets: found, written and removed, each change one transaction. */
#include <string.h>

#include "../rules.h"
#include "layout.h"

struct place
idem_memory_place(const struct memory_store *store, const struct idem_id *id)
{
	struct place place;
	uint64_t key, bucket;

	/* The second half of an id is the key's, and differs where scopes do not. */
	memcpy(&key, id->b + IDEM_ID_LEN / 2, sizeof key);
	/* Clients choose keys, and could seek some that meet in one bucket, if it were known which do. */
	key *= store->region->secret;
	bucket = (key << SHARD_BITS >> 32) * store->region->buckets_per_shard >> 32;
	place.shard = &store->region->shards[key >> (64 - SHARD_BITS)];
	place.bucket = bucket_of(store, place.shard, (uint32_t)bucket);
	place.filter = 1u << (key >> 20 & 7);
	return place;
}

uint32_t
idem_memory_find(const struct memory_store *store, const struct place *place, const struct idem_id *id,
                 uint32_t **ret_link)
{
	uint32_t *link = &place->bucket->first;

	if ((place->bucket->filter & place->filter) == 0)
		return 0;
	while (*link != 0) {
		struct first_half *cell = &block_at(store, *link)->first;

		if (memcmp(cell->id.b, id->b, IDEM_ID_LEN) == 0) {
			*ret_link = link;
			return *link;
		}
		link = &cell->next;
	}
	return 0;
}

bool
idem_memory_is_over(const struct first_half *cell, uint64_t now_ms)
{
	return idem_rule_is_over(cell->stamp_ms, cell->retain_ms, now_ms);
}

/* ---- payloads ---- */

uint32_t
idem_memory_pieces(size_t len)
{
	return (uint32_t)((len + BLOCK_PAYLOAD - 1) / BLOCK_PAYLOAD);
}

void
idem_memory_fill(struct memory_store *store, uint32_t chain, struct idem_bytes payload)
{
	const uint8_t *p = payload.data;
	size_t left = payload.len;

	while (left > 0) {
		struct piece *piece = &block_at(store, chain)->piece;
		size_t n = left < BLOCK_PAYLOAD ? left : BLOCK_PAYLOAD;

		memcpy(piece->bytes, p, n);
		p += n;
		left -= n;
		chain = piece->next;
	}
}

void
idem_memory_copy(const struct memory_store *store, uint32_t chain, uint8_t *out, size_t len)
{
	while (len > 0) {
		const struct piece *piece = &block_at(store, chain)->piece;
		size_t n = len < BLOCK_PAYLOAD ? len : BLOCK_PAYLOAD;

		memcpy(out, piece->bytes, n);
		out += n;
		len -= n;
		chain = piece->next;
	}
}

/* ---- removing ---- */

/* Puts a chain before what hangs on the shard's garbage already.  Part of a transaction. */
static void
throw_away(struct memory_store *store, struct shard *shard, uint32_t chain)
{
	uint32_t last = chain;

	if (chain == 0)
		return;
	while (block_at(store, last)->next != 0)
		last = block_at(store, last)->next;
	idem_memory_save(store, &shard->lock, &shard->garbage, sizeof shard->garbage);
	idem_memory_save(store, &shard->lock, &block_at(store, last)->next, sizeof(uint32_t));
	block_at(store, last)->next = shard->garbage;
	shard->garbage = chain;
}

void
idem_memory_remove(struct memory_store *store, struct shard *shard, uint32_t *link)
{
	struct first_half *cell = &block_at(store, *link)->first;
	uint32_t number = *link;

	idem_memory_save(store, &shard->lock, link, sizeof *link);
	idem_memory_save(store, &shard->lock, &cell->next, sizeof cell->next);
	idem_memory_save(store, &shard->lock, &shard->cells, sizeof shard->cells);
	*link = cell->next;
	cell->next = cell->second; /* whose next is the payload: one chain of all its blocks */
	shard->cells--;
	throw_away(store, shard, number);
	idem_memory_commit(&shard->lock);
}

/* ---- writing ---- */

uint32_t
idem_memory_until(uint64_t stamp_ms, uint64_t retain_ms)
{
	uint64_t until = stamp_ms / UNTIL_UNIT_MS + retain_ms / UNTIL_UNIT_MS;

	return until < UNTIL_MAX ? (uint32_t)until : UNTIL_MAX;
}

static void
fill_cell(struct first_half *first, struct second_half *second, const struct idem_io *io, uint64_t now_ms,
          uint32_t payload)
{
	const struct idem_cell *write = &io->write;

	first->stamp_ms = now_ms;
	first->retain_ms = write->retain_ms;
	first->attempt = write->attempt;
	first->state = write->state;
	second->next = payload;
	if (write->state == IDEM_LOCKED)
		second->u.lease_ms = (uint32_t)write->lease_ms;
	else
		second->u.payload_len = (uint32_t)write->payload.len;
	second->tag = write->tag;
	second->fingerprint = write->fingerprint;
}

static void
write_new(struct memory_store *store, const struct place *place, const struct idem_io *io, uint64_t now_ms)
{
	struct lock *lock = &place->shard->lock;
	uint32_t number = place->shard->grabbed;
	union block *first = block_at(store, number), *second = block_at(store, first->next);
	uint32_t payload = second->next;

	/* Until the commit, the grabbed chain must be found whole. */
	idem_memory_save(store, lock, &first->next, sizeof first->next);
	idem_memory_save(store, lock, &place->shard->grabbed, sizeof place->shard->grabbed);
	idem_memory_save(store, lock, &place->shard->cells, sizeof place->shard->cells);
	idem_memory_save(store, lock, &place->bucket->first, sizeof place->bucket->first);
	first->first.second = first->next;
	first->first.id = io->id;
	fill_cell(&first->first, &second->second, io, now_ms, payload);
	first->next = place->bucket->first;
	place->bucket->first = number;
	place->shard->cells++;
	place->shard->grabbed = 0;
	idem_memory_commit(lock);
}

static void
write_over(struct memory_store *store, const struct place *place, uint32_t number, const struct idem_io *io,
           uint64_t now_ms)
{
	struct lock *lock = &place->shard->lock;
	struct first_half *first = &block_at(store, number)->first;
	struct second_half *second = &block_at(store, first->second)->second;
	uint32_t old_payload = second->next;

	idem_memory_save(store, lock, first, sizeof *first);
	idem_memory_save(store, lock, second, sizeof *second);
	idem_memory_save(store, lock, &place->shard->grabbed, sizeof place->shard->grabbed);
	fill_cell(first, second, io, now_ms, place->shard->grabbed);
	place->shard->grabbed = 0;
	throw_away(store, place->shard, old_payload);
	idem_memory_commit(lock);
}

void
idem_memory_write(struct memory_store *store, const struct place *place, uint32_t number,
                  const struct idem_io *io, uint64_t now_ms)
{
	struct bucket *bucket = place->bucket;
	uint32_t until = idem_memory_until(now_ms, io->write.retain_ms);

	/* Before the cell is there: too cautious costs one look, too late would hide the cell. */
	if (bucket->first == 0) {
		bucket->until = UNTIL_MAX;
		bucket->filter = 0;
	}
	if (until < bucket->until)
		bucket->until = until & UNTIL_MAX;
	bucket->filter |= place->filter & 0xff;
	if (number == 0)
		write_new(store, place, io, now_ms);
	else
		write_over(store, place, number, io, now_ms);
}
