/* Cells in their tables: found, written and removed, inside a transaction of the caller's. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../engine/sha256.h"
#include "../rules.h"
#include "layout.h"

/* A place is kept while its cell's end moves by no more than this part of its time: a completion after its
 * claim, a renewal, seldom need another. */
#define SLACK_PART 16

static uint64_t
add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* ---- sums ---- */

static int
sum(const void *bytes, size_t len, uint8_t ret_sum[SUM_LEN])
{
	struct idem_sha256 sha;
	uint8_t digest[IDEM_SHA256_LEN];

	if (idem_sha256_init(&sha) != IDEM_OK || idem_sha256_add(&sha, bytes, len) != IDEM_OK ||
	    idem_sha256_end(&sha, digest) != IDEM_OK)
		return ENOMEM;
	memcpy(ret_sum, digest, SUM_LEN);
	return 0;
}

static int
check_sum(const void *bytes, size_t len, const uint8_t expected[SUM_LEN])
{
	uint8_t actual[SUM_LEN];
	int rc = sum(bytes, len, actual);

	if (rc == 0 && memcmp(actual, expected, SUM_LEN) != 0)
		rc = MDB_CORRUPTED;
	return rc;
}

int
idem_lmdb_kept_check(const struct kept *kept)
{
	return check_sum(kept, offsetof(struct kept, sum), kept->sum);
}

/* ---- meta ---- */

static MDB_val
meta_key(void)
{
	static char name[] = "idem";

	return (MDB_val){.mv_size = sizeof name - 1, .mv_data = name};
}

int
idem_lmdb_meta_get(const struct lmdb_env *env, MDB_txn *txn, struct meta *ret_meta)
{
	static const uint8_t unknown[sizeof env->uuid];
	MDB_val key = meta_key(), value;
	int rc = mdb_get(txn, env->main, &key, &value);

	if (rc != 0)
		return rc;
	if (value.mv_size < offsetof(struct meta, unused))
		return MDB_INCOMPATIBLE;
	memset(ret_meta, 0, sizeof *ret_meta);
	memcpy(ret_meta, value.mv_data, value.mv_size < sizeof *ret_meta ? value.mv_size : sizeof *ret_meta);
	if (memcmp(ret_meta->magic, IDEM_LMDB_MAGIC, sizeof ret_meta->magic) != 0)
		return MDB_INCOMPATIBLE;
	if (ret_meta->version != IDEM_LMDB_VERSION || value.mv_size != sizeof *ret_meta)
		return MDB_VERSION_MISMATCH;
	/* Somebody wrote another store's file over the one that is open. */
	if (memcmp(env->uuid, unknown, sizeof unknown) != 0 &&
	    memcmp(env->uuid, ret_meta->uuid, sizeof env->uuid) != 0)
		return MDB_INVALID;
	return 0;
}

int
idem_lmdb_meta_put(const struct lmdb_env *env, MDB_txn *txn, const struct meta *meta)
{
	struct meta copy = *meta;
	MDB_val key = meta_key(), value = {.mv_size = sizeof copy, .mv_data = &copy};

	return mdb_put(txn, env->main, &key, &value, 0);
}

/* ---- reading ---- */

static MDB_val
id_key(struct idem_id *id)
{
	return (MDB_val){.mv_size = sizeof id->b, .mv_data = id->b};
}

static MDB_val
place_key(struct place *place)
{
	return (MDB_val){.mv_size = sizeof place->b, .mv_data = place->b};
}

uint64_t
idem_lmdb_due(const struct place *place)
{
	uint64_t due;

	memcpy(&due, place->b, sizeof due);
	return be64toh(due);
}

static struct place
place_make(uint64_t due_ms, uint64_t number)
{
	struct place place;

	due_ms = htobe64(due_ms);
	number = htobe64(number);
	memcpy(place.b, &due_ms, sizeof due_ms);
	memcpy(place.b + sizeof due_ms, &number, sizeof number);
	return place;
}

static int
read_kept(const MDB_val *value, struct kept *ret_kept)
{
	if (value->mv_size != sizeof *ret_kept)
		return MDB_CORRUPTED;
	memcpy(ret_kept, value->mv_data, sizeof *ret_kept); /* it may be unaligned there */
	return idem_lmdb_kept_check(ret_kept);
}

int
idem_lmdb_find(const struct lmdb_env *env, MDB_txn *txn, const struct idem_id *id, uint64_t now_ms,
               struct found *ret_found)
{
	struct idem_id copy = *id;
	MDB_val key = id_key(&copy), value;
	int rc = mdb_get(txn, env->index, &key, &value);

	memset(ret_found, 0, sizeof *ret_found);
	if (rc == MDB_NOTFOUND)
		return 0;
	if (rc != 0 || value.mv_size != sizeof ret_found->place.b)
		return rc != 0 ? rc : MDB_CORRUPTED;
	memcpy(ret_found->place.b, value.mv_data, sizeof ret_found->place.b);
	key = place_key(&ret_found->place);
	rc = mdb_get(txn, env->cells, &key, &value);
	if (rc == MDB_NOTFOUND) /* a sweep may have thrown away what was damaged, once its time was over */
		return idem_lmdb_due(&ret_found->place) <= now_ms ? 0 : MDB_CORRUPTED;
	if (rc == 0)
		rc = read_kept(&value, &ret_found->kept);
	if (rc == 0 && memcmp(ret_found->kept.id.b, id->b, sizeof id->b) != 0)
		rc = MDB_CORRUPTED;
	ret_found->there = rc == 0;
	ret_found->live =
		rc == 0 && !idem_rule_is_over(ret_found->kept.stamp_ms, ret_found->kept.retain_ms, now_ms);
	return rc;
}

static MDB_val
number_key(uint64_t *number)
{
	return (MDB_val){.mv_size = sizeof *number, .mv_data = number};
}

int
idem_lmdb_payload(const struct lmdb_env *env, MDB_txn *txn, const struct kept *kept, MDB_val *ret_bytes)
{
	uint64_t number = htobe64(kept->payload);
	MDB_val key = number_key(&number);
	int rc;

	*ret_bytes = (MDB_val){0};
	if (kept->payload == 0)
		return kept->payload_len == 0 ? 0 : MDB_CORRUPTED;
	rc = mdb_get(txn, env->payloads, &key, ret_bytes);
	if (rc == MDB_NOTFOUND || (rc == 0 && ret_bytes->mv_size != kept->payload_len))
		return MDB_CORRUPTED;
	return rc != 0 ? rc : check_sum(ret_bytes->mv_data, ret_bytes->mv_size, kept->payload_sum);
}

int
idem_lmdb_show(const struct lmdb_env *env, MDB_txn *txn, const struct found *found, uint64_t now_ms,
               const struct idem_fingerprint *brought, bool want_payload, struct idem_cell *ret_seen,
               void **ret_payload)
{
	const struct kept *kept = &found->kept;
	MDB_val bytes;
	int rc;

	memset(ret_seen, 0, sizeof *ret_seen);
	*ret_payload = NULL;
	if (!found->live)
		return 0;
	ret_seen->tag = kept->tag;
	ret_seen->state = (enum idem_state)kept->state;
	ret_seen->attempt = kept->attempt;
	ret_seen->lease_ms = kept->lease_ms;
	ret_seen->retain_ms = kept->retain_ms;
	ret_seen->age_ms = idem_rule_age_ms(kept->stamp_ms, now_ms);
	ret_seen->fingerprint = kept->fingerprint;
	if (!idem_rule_may_see_payload(ret_seen->state, &kept->fingerprint, brought, want_payload))
		return 0;
	rc = idem_lmdb_payload(env, txn, kept, &bytes);
	if (rc != 0)
		return rc;
	*ret_payload = malloc(bytes.mv_size + 1);
	if (*ret_payload == NULL)
		return ENOMEM;
	if (bytes.mv_size > 0)
		memcpy(*ret_payload, bytes.mv_data, bytes.mv_size);
	ret_seen->payload = (struct idem_bytes){*ret_payload, bytes.mv_size};
	return 0;
}

/* ---- removing ---- */

/* What is gone already is as good as removed. */
static int
delete_key(MDB_txn *txn, MDB_dbi table, MDB_val key)
{
	int rc = mdb_del(txn, table, &key, NULL);

	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int
remove_payload(const struct lmdb_env *env, MDB_txn *txn, const struct kept *kept)
{
	uint64_t number = htobe64(kept->payload);

	return kept->payload == 0 ? 0 : delete_key(txn, env->payloads, number_key(&number));
}

int
idem_lmdb_remove(const struct lmdb_env *env, MDB_txn *txn, const struct found *old)
{
	struct place place = old->place;
	struct idem_id id = old->kept.id;
	int rc = remove_payload(env, txn, &old->kept);

	if (rc == 0)
		rc = delete_key(txn, env->cells, place_key(&place));
	return rc == 0 ? delete_key(txn, env->index, id_key(&id)) : rc;
}

/* ---- writing ---- */

/* Keys mostly rise; then pages are filled one after another and not split. */
static int
put_rising(MDB_txn *txn, MDB_dbi table, MDB_val key, MDB_val value)
{
	int rc = mdb_put(txn, table, &key, &value, MDB_APPEND);

	return rc == MDB_KEYEXIST ? mdb_put(txn, table, &key, &value, 0) : rc;
}

static int
put_payload(const struct lmdb_env *env, MDB_txn *txn, struct meta *meta, const struct op *op,
            struct kept *kept)
{
	uint64_t number = meta->next_number;
	union {
		const void *ours;
		void *lmdbs; /* who writes nothing there */
	} bytes = {op->write.payload.data};
	MDB_val value = {.mv_size = op->write.payload.len, .mv_data = bytes.lmdbs};
	int rc;

	if (op->write.payload.len == 0)
		return 0;
	kept->payload = number;
	kept->payload_len = (uint32_t)op->write.payload.len;
	rc = sum(op->write.payload.data, op->write.payload.len, kept->payload_sum);
	if (rc != 0)
		return rc;
	meta->next_number++;
	number = htobe64(number);
	return put_rising(txn, env->payloads, number_key(&number), value);
}

static int
fill(const struct lmdb_env *env, MDB_txn *txn, struct meta *meta, const struct op *op, uint64_t now_ms,
     struct kept *kept)
{
	int rc;

	memset(kept, 0, sizeof *kept);
	kept->id = op->id;
	kept->fingerprint = op->write.fingerprint;
	kept->tag = op->write.tag;
	kept->lease_ms = op->write.state == IDEM_LOCKED ? op->write.lease_ms : 0;
	kept->retain_ms = op->write.retain_ms;
	kept->stamp_ms = now_ms;
	kept->commit = meta->commit;
	kept->attempt = op->write.attempt;
	kept->state = op->write.state;
	rc = put_payload(env, txn, meta, op, kept);
	return rc == 0 ? sum(kept, offsetof(struct kept, sum), kept->sum) : rc;
}

static int
put_at_new_place(const struct lmdb_env *env, MDB_txn *txn, struct place place, struct kept *kept)
{
	MDB_val key = id_key(&kept->id), value = {.mv_size = sizeof place.b, .mv_data = place.b};
	int rc = mdb_put(txn, env->index, &key, &value, 0);

	value = (MDB_val){.mv_size = sizeof *kept, .mv_data = kept};
	return rc == 0 ? put_rising(txn, env->cells, place_key(&place), value) : rc;
}

/* It must not be removed too early; nor, if its claim's lease was long and its own time is short, much too
 * late. */
static bool
may_stay(uint64_t due_ms, uint64_t end_ms, uint64_t retain_ms)
{
	return end_ms <= due_ms && due_ms - end_ms <= retain_ms;
}

int
idem_lmdb_put(const struct lmdb_env *env, MDB_txn *txn, struct meta *meta, const struct found *old,
              const struct op *op, uint64_t now_ms)
{
	uint64_t end_ms = add(now_ms, op->write.retain_ms);
	struct place place = old->place;
	struct kept kept;
	MDB_val key = place_key(&place), value = {.mv_size = sizeof kept, .mv_data = &kept};
	int rc = fill(env, txn, meta, op, now_ms, &kept);

	if (rc == 0 && old->there)
		rc = remove_payload(env, txn, &old->kept);
	if (rc != 0)
		return rc;
	if (old->there && may_stay(idem_lmdb_due(&place), end_ms, op->write.retain_ms))
		return mdb_put(txn, env->cells, &key, &value, 0);
	if (old->there)
		rc = delete_key(txn, env->cells, key);
	place = place_make(add(end_ms, op->write.retain_ms / SLACK_PART), meta->next_number++);
	return rc == 0 ? put_at_new_place(env, txn, place, &kept) : rc;
}

/* ---- sweeping ---- */

/* The first cell, if its time is over.  MDB_NOTFOUND: there is none. */
static int
first_due(const struct lmdb_env *env, MDB_txn *txn, uint64_t now_ms, struct found *ret_found)
{
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc = mdb_cursor_open(txn, env->cells, &cursor);

	if (rc != 0)
		return rc;
	memset(ret_found, 0, sizeof *ret_found);
	rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
	if (rc == 0 && key.mv_size != sizeof ret_found->place.b)
		rc = MDB_CORRUPTED;
	if (rc == 0) {
		memcpy(ret_found->place.b, key.mv_data, sizeof ret_found->place.b);
		rc = idem_lmdb_due(&ret_found->place) > now_ms ? MDB_NOTFOUND
		                                               : read_kept(&value, &ret_found->kept);
		ret_found->there = rc == 0;
		if (rc == MDB_CORRUPTED)
			rc = 0;
	}
	mdb_cursor_close(cursor);
	return rc;
}

int
idem_lmdb_sweep(const struct lmdb_env *env, MDB_txn *txn, uint64_t now_ms, unsigned max, bool *ret_more)
{
	struct found found;
	int rc = 0;

	*ret_more = false;
	for (unsigned i = 0; rc == 0 && i <= max; i++) {
		rc = first_due(env, txn, now_ms, &found);
		if (rc != 0)
			break;
		*ret_more = i == max;
		if (*ret_more)
			break;
		/* A damaged one cannot say where else it stands; its index leads nowhere from now on. */
		rc = found.there ? idem_lmdb_remove(env, txn, &found)
		                 : delete_key(txn, env->cells, place_key(&found.place));
	}
	return rc == MDB_NOTFOUND ? 0 : rc;
}
