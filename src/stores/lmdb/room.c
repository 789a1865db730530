/*
 * How much can still be written.
 *
 * LMDB copies each page it changes: in a full map nothing can be removed either.  So the last part of it
 * is kept for removals, and some more for the responses of the requests that are under way.
 */
#include <errno.h>
#include <sys/statvfs.h>

#include "layout.h"

#define CHECK_EVERY_MS 100
#define CHECK_AGAIN_MS 10

/* A new cell, its index, and what is left empty beside them; generous. */
#define CELL_BYTES 320

/* With less than this an error of the disk is taken for a full one. */
#define DISK_FULL_BYTES ((uint64_t)1 << 20)

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

int
idem_lmdb_free_pages(MDB_txn *txn, uint64_t *ret_pages)
{
	MDB_cursor *cursor;
	MDB_val key, value;
	size_t count;
	int rc = mdb_cursor_open(txn, 0, &cursor); /* LMDB's list of free pages: table 0 */

	*ret_pages = 0;
	if (rc != 0)
		return rc;
	while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
		if (value.mv_size < sizeof count) {
			rc = MDB_CORRUPTED;
			break;
		}
		count = *(const size_t *)value.mv_data; /* aligned, as LMDB itself reads it */
		*ret_pages += count;
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

/* That the file system still has for us. */
static int
disk_bytes(const struct lmdb_env *env, uint64_t *ret_bytes)
{
	struct statvfs fs;
	int fd, rc = mdb_env_get_fd(env->mdb, &fd);

	if (rc == 0 && fstatvfs(fd, &fs) == -1)
		rc = errno;
	if (rc == 0)
		*ret_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	return rc;
}

bool
idem_lmdb_room_has_disk(const struct lmdb_env *env)
{
	uint64_t bytes;

	return disk_bytes(env, &bytes) != 0 || bytes >= DISK_FULL_BYTES;
}

/* LMDB lets nobody look at its list in a transaction that writes. */
static int
committed_free_pages(const struct lmdb_env *env, uint64_t *ret_pages)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &txn);

	*ret_pages = 0;
	if (rc != 0)
		return rc;
	rc = idem_lmdb_free_pages(txn, ret_pages);
	mdb_txn_abort(txn);
	return rc;
}

static int
measure(struct lmdb_env *env)
{
	uint64_t map, map_left, disk_left, free_pages = 0, page = env->page_bytes;
	struct room *room = &env->room;
	MDB_envinfo info;
	int rc = mdb_env_info(env->mdb, &info);

	if (rc == 0)
		rc = disk_bytes(env, &disk_left);
	if (rc != 0)
		return rc;
	disk_left /= page;
	map = info.me_mapsize / page;
	map_left = map - MIN(map, (uint64_t)info.me_last_pgno + 1);
	room->for_new = page * MAX(64, MIN(map / 16, 16384));
	room->for_all = page * MAX(32, MIN(map / 128, 1024));
	room->disk = disk_left < map_left;
	if (page * MIN(map_left, disk_left) < 2 * room->for_new)
		rc = committed_free_pages(env, &free_pages);
	room->bytes = page * (MIN(map_left, disk_left) + free_pages);
	return rc;
}

int
idem_lmdb_room_check(struct lmdb_env *env)
{
	uint64_t now_ms = idem_lmdb_uptime_ms();
	uint64_t every_ms = idem_lmdb_room_is_short(env) ? CHECK_AGAIN_MS : CHECK_EVERY_MS;
	int rc;

	if (env->room.checked && now_ms - env->room.checked_ms < every_ms)
		return 0;
	rc = measure(env);
	env->room.checked = rc == 0;
	env->room.checked_ms = now_ms;
	return rc;
}

bool
idem_lmdb_room_is_short(const struct lmdb_env *env)
{
	return env->room.bytes < env->room.for_new + env->room.for_new / 2;
}

/* A payload that is longer than half a page has pages of its own. */
static uint64_t
needs(const struct lmdb_env *env, const struct op *op, bool is_new)
{
	uint64_t payload = op->write.payload.len, page = env->page_bytes;

	if (payload > page / 2)
		payload = (payload + 16 + page - 1) / page * page;
	return payload + (is_new ? CELL_BYTES : 0);
}

bool
idem_lmdb_room_take(struct lmdb_env *env, const struct op *op, bool is_new)
{
	uint64_t need = needs(env, op, is_new);
	uint64_t spare = is_new ? env->room.for_new : env->room.for_all;

	if (env->room.bytes < need + spare)
		return false;
	env->room.bytes -= need;
	return true;
}
