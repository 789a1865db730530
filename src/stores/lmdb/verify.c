/* Is everything where it must be?  For tests and tools. */
#include <endian.h>
#include <string.h>

#include "layout.h"

struct census {
	const struct lmdb_env *env;
	MDB_txn *txn;
	char *buf;
	size_t cap;
	size_t payloads;
};

static int
wrong(const struct census *census, const char *what)
{
	return idem_lmdb_say(census->buf, census->cap, IDEM_E_CORRUPT, "%s/data.mdb: %s", census->env->path,
	                     what);
}

static int
check_cell(struct census *census, const MDB_val *key, const MDB_val *value)
{
	struct place place;
	struct kept kept;
	MDB_val id, indexed;

	if (key->mv_size != sizeof place || value->mv_size != sizeof kept)
		return wrong(census, "a cell has a wrong length");
	memcpy(&place, key->mv_data, sizeof place);
	memcpy(&kept, value->mv_data, sizeof kept);
	if (idem_lmdb_kept_check(&kept) != 0)
		return wrong(census, "the checksum of a cell is wrong");
	if (kept.state < IDEM_LOCKED || kept.state > IDEM_DOUBT)
		return wrong(census, "a cell is in no known state");
	if (kept.stamp_ms + kept.retain_ms > idem_lmdb_due(&place) &&
	    kept.stamp_ms + kept.retain_ms >= kept.retain_ms)
		return wrong(census, "a cell would be removed too early");
	id = (MDB_val){.mv_size = sizeof kept.id, .mv_data = &kept.id};
	if (mdb_get(census->txn, census->env->index, &id, &indexed) != 0 || indexed.mv_size != sizeof place ||
	    memcmp(indexed.mv_data, &place, sizeof place) != 0)
		return wrong(census, "a cell is not in the index");
	census->payloads += kept.payload != 0;
	if (idem_lmdb_payload(census->env, census->txn, &kept, &indexed) != 0)
		return wrong(census, "the response of a cell is missing or damaged");
	return IDEM_OK;
}

static int
check_cells(struct census *census)
{
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc = mdb_cursor_open(census->txn, census->env->cells, &cursor), status = IDEM_OK;

	if (rc != 0)
		return idem_lmdb_status(rc);
	while (status == IDEM_OK && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
		status = check_cell(census, &key, &value);
	mdb_cursor_close(cursor);
	if (status == IDEM_OK && rc != MDB_NOTFOUND)
		status = wrong(census, mdb_strerror(rc));
	return status;
}

/* Each cell was found in the other tables: if these are as long, they have nothing else. */
static int
check_counts(struct census *census)
{
	MDB_stat cells, index, payloads;
	int rc = mdb_stat(census->txn, census->env->cells, &cells);

	if (rc == 0)
		rc = mdb_stat(census->txn, census->env->index, &index);
	if (rc == 0)
		rc = mdb_stat(census->txn, census->env->payloads, &payloads);
	if (rc != 0)
		return wrong(census, mdb_strerror(rc));
	if (index.ms_entries != cells.ms_entries)
		return wrong(census, "the index has keys without a cell");
	return payloads.ms_entries == census->payloads ? IDEM_OK
	                                               : wrong(census, "there are responses of no cell");
}

static int
verify(struct lmdb_store *store, char *buf, size_t cap)
{
	struct census census = {.env = store->env, .buf = buf, .cap = cap};
	int rc = idem_lmdb_env_health(store->env);

	if (rc != IDEM_OK)
		return idem_lmdb_say(buf, cap, rc, "%s: %s", store->env->path, idem_strerror(rc));
	rc = idem_lmdb_read_begin(store, &census.txn);
	if (rc != 0)
		return idem_lmdb_why(buf, cap, store->env->path, "data.mdb", rc);
	rc = check_cells(&census);
	if (rc == IDEM_OK)
		rc = check_counts(&census);
	idem_lmdb_read_end(store);
	return rc;
}

int
idem_lmdb_verify(struct idem_store *base, char *buf, size_t cap)
{
	struct lmdb_store *store = idem_lmdb_downcast(base);
	int rc;

	if (store == NULL)
		return idem_lmdb_say(buf, cap, IDEM_E_INVALID, "it is no LMDB store");
	(void)pthread_rwlock_rdlock(&store->env->gate);
	rc = verify(store, buf, cap);
	(void)pthread_rwlock_unlock(&store->env->gate);
	return rc;
}
