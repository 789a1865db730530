/* One MDB_env: opened, checked, mapped anew, closed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <idem/guard.h>

#include "layout.h"

#define READERS_MAX 1022

/* A transaction may own pages at the end of the file that it never had to write; but not many. */
#define UNWRITTEN_PAGES_MAX 256

/* ---- the files ---- */

static int
stat_data(const struct lmdb_env *env, struct stat *ret_stat)
{
	char name[PATH_MAX];

	if (!idem_lmdb_name(env, "data.mdb", name))
		return ENAMETOOLONG;
	return stat(name, ret_stat) == -1 ? errno : 0;
}

static int
say_cut_short(const struct lmdb_env *env, char *why, size_t cap)
{
	return idem_lmdb_say(
		why, cap, IDEM_E_CORRUPT,
		"%s/data.mdb: it was cut short: restore a backup, or move all files of the directory away "
		"and lose its keys",
		env->path);
}

static int
make_directory(const struct lmdb_env *env, char *why, size_t cap)
{
	if (mkdir(env->path, 0700) == -1 && errno != EEXIST)
		return idem_lmdb_why(why, cap, env->path, "", errno);
	return IDEM_OK;
}

/* Before LMDB sees it: an empty file would be a new store to it. */
static int
check_data(struct lmdb_env *env, bool create, bool alone, bool *ret_new, char *why, size_t cap)
{
	uint64_t floor = atomic_load(&env->run->floor); /* before the length: both only grow */
	struct stat st;
	int rc = stat_data(env, &st);

	*ret_new = rc == ENOENT;
	if (rc == ENOENT && create && alone && floor == 0) /* there never was one */
		return IDEM_OK;
	if (rc == ENOENT)
		return idem_lmdb_say(
			why, cap, IDEM_E_UNAVAILABLE,
			"%s/data.mdb: it was removed while it was in use: put it back, or stop all "
			"processes that use it, empty the directory and lose its keys",
			env->path);
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, "data.mdb", rc);
	if (st.st_size == 0) /* LMDB would begin anew in it */
		return say_cut_short(env, why, cap);
	if (st.st_ino == env->run->data_inode)
		return (uint64_t)st.st_size < floor ? say_cut_short(env, why, cap) : IDEM_OK;
	if (!alone)
		return idem_lmdb_say(why, cap, IDEM_E_UNAVAILABLE,
		                     "%s/data.mdb: it was replaced while other processes use it: they will "
		                     "notice, or stop "
		                     "them",
		                     env->path);
	return IDEM_OK;
}

/* What the file says of its own length.  Pages beyond its end would be a SIGBUS. */
static int
check_length(const struct lmdb_env *env, char *why, size_t cap)
{
	MDB_envinfo info;
	struct stat st;
	int fd, rc = mdb_env_info(env->mdb, &info);

	if (rc == 0)
		rc = mdb_env_get_fd(env->mdb, &fd);
	if (rc == 0 && fstat(fd, &st) == -1)
		rc = errno;
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, "data.mdb", rc);
	if ((uint64_t)st.st_size / env->page_bytes + UNWRITTEN_PAGES_MAX <= info.me_last_pgno)
		return say_cut_short(env, why, cap);
	return IDEM_OK;
}

static void
raise_floor(struct run *run, uint64_t bytes)
{
	uint64_t floor = atomic_load(&run->floor);

	while (floor < bytes && !atomic_compare_exchange_weak(&run->floor, &floor, bytes))
		;
}

int
idem_lmdb_env_health(struct lmdb_env *env)
{
	uint64_t floor = atomic_load(&env->run->floor); /* before the length: both only grow */
	struct stat st;
	int fd;

	if (atomic_load(&env->status) != IDEM_OK)
		return atomic_load(&env->status);
	if (mdb_env_get_fd(env->mdb, &fd) != 0 || fstat(fd, &st) == -1 || st.st_nlink == 0)
		return IDEM_E_UNAVAILABLE;
	if ((uint64_t)st.st_size < floor)
		return IDEM_E_CORRUPT;
	raise_floor(env->run, (uint64_t)st.st_size);
	return IDEM_OK;
}

int
idem_lmdb_env_health_of_all(struct lmdb_env *env)
{
	int rc = idem_lmdb_env_health(env);
	struct stat st;

	/* Who opens it now has another one, and sees neither our locks nor what we share. */
	if (rc == IDEM_OK && (fstat(env->run_fd, &st) == -1 || st.st_nlink == 0))
		rc = IDEM_E_UNAVAILABLE;
	return rc;
}

/* ---- the tables ---- */

static int
new_meta(const struct lmdb_env *env, MDB_txn *txn, struct meta *meta, int *ret_status)
{
	MDB_stat stat;
	int rc = mdb_stat(txn, env->main, &stat);

	if (rc == 0 && stat.ms_entries != 0)
		return MDB_INCOMPATIBLE;
	memset(meta, 0, sizeof *meta);
	memcpy(meta->magic, IDEM_LMDB_MAGIC, sizeof meta->magic);
	meta->version = IDEM_LMDB_VERSION;
	meta->next_number = 1;
	if (rc == 0)
		*ret_status = idem_random(NULL, meta->uuid, sizeof meta->uuid);
	return *ret_status == IDEM_OK ? rc : EIO;
}

static int
open_tables(struct lmdb_env *env, MDB_txn *txn, unsigned create)
{
	int rc = mdb_dbi_open(txn, "index", create, &env->index);

	if (rc == 0)
		rc = mdb_dbi_open(txn, "cells", create, &env->cells);
	if (rc == 0)
		rc = mdb_dbi_open(txn, "payloads", create, &env->payloads);
	return rc;
}

/*
 * Whoever comes alone commits, and syncs all that was committed before.  Others only read: one of those who
 * are there may have been stopped with LMDB's lock in its hand.
 */
static int
start(struct lmdb_env *env, MDB_txn *txn, bool alone, int *ret_status)
{
	struct meta meta;
	int rc = mdb_dbi_open(txn, NULL, 0, &env->main);

	if (rc == 0)
		rc = idem_lmdb_meta_get(env, txn, &meta);
	if (rc == MDB_NOTFOUND && alone)
		rc = new_meta(env, txn, &meta, ret_status);
	if (rc == 0)
		rc = open_tables(env, txn, alone ? MDB_CREATE : 0);
	if (rc != 0)
		return rc;
	*ret_status = idem_lmdb_clock_start(env, &meta);
	if (*ret_status != IDEM_OK)
		return EIO;
	memcpy(env->uuid, meta.uuid, sizeof env->uuid);
	if (alone) {
		meta.commit++;
		rc = idem_lmdb_meta_put(env, txn, &meta);
	}
	env->last_commit = meta.commit;
	return rc;
}

static int
say_not_started(const struct lmdb_env *env, int rc, int status, char *why, size_t cap)
{
	if (status == IDEM_E_SYSTEM)
		return idem_lmdb_say(why, cap, status,
		                     "%s: cannot read /proc/sys/kernel/random/boot_id: mount /proc",
		                     env->path);
	if (status != IDEM_OK)
		return idem_lmdb_say(why, cap, status, "%s: %s", env->path, idem_strerror(status));
	if (rc == MDB_INCOMPATIBLE)
		return idem_lmdb_say(why, cap, IDEM_E_CORRUPT,
		                     "%s/data.mdb: it is not Idem's: choose another directory", env->path);
	if (rc == MDB_VERSION_MISMATCH)
		return idem_lmdb_say(why, cap, IDEM_E_VERSION,
		                     "%s/data.mdb: it is of another version of Idem, this one writes format "
		                     "%d: use the one "
		                     "that wrote it, or choose another directory",
		                     env->path, IDEM_LMDB_VERSION);
	return idem_lmdb_why(why, cap, env->path, "data.mdb", rc);
}

/* The end of a transaction keeps the tables open, also if it only read. */
static int
start_tables(struct lmdb_env *env, bool alone, char *why, size_t cap)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(env->mdb, NULL, alone ? 0 : MDB_RDONLY, &txn), status = IDEM_OK;

	if (rc != 0)
		return say_not_started(env, rc, status, why, cap);
	rc = start(env, txn, alone, &status);
	if (rc == 0)
		rc = mdb_txn_commit(txn);
	else
		mdb_txn_abort(txn);
	return rc == 0 ? IDEM_OK : say_not_started(env, rc, status, why, cap);
}

/* ---- opening ---- */

static int
open_mdb(struct lmdb_env *env, bool is_new)
{
	size_t size = env->size == 0 && is_new ? IDEM_LMDB_DEFAULT_BYTES : env->size;
	MDB_stat stat;
	int rc = mdb_env_create(&env->mdb);

	if (rc != 0)
		return rc;
	rc = mdb_env_set_maxdbs(env->mdb, 3);
	if (rc == 0)
		rc = mdb_env_set_maxreaders(env->mdb, READERS_MAX);
	if (rc == 0 && size != 0)
		rc = mdb_env_set_mapsize(env->mdb, size);
	if (rc == 0)
		rc = mdb_env_open(env->mdb, env->path, MDB_NOTLS | MDB_NORDAHEAD, 0600);
	if (rc == 0)
		rc = mdb_env_stat(env->mdb, &stat);
	if (rc == 0)
		env->page_bytes = stat.ms_psize;
	return rc;
}

/* Before the first write that no fsync follows, so that the next boot knows. */
static int
mark_unsynced(struct lmdb_env *env)
{
	if (env->sync != IDEM_LMDB_SYNC_PROCESS || env->run->unsynced)
		return 0;
	env->run->unsynced = 1;
	return idem_lmdb_run_sync(env);
}

/* All that is there survives a power cut from now on. */
static int
sync_all(struct lmdb_env *env)
{
	int rc = 0;

	if (env->run->unsynced)
		rc = mdb_env_sync(env->mdb, 1);
	if (rc != 0)
		return rc;
	atomic_store(&env->run->durable, env->last_commit);
	if (!env->run->unsynced)
		return 0;
	env->run->unsynced = 0;
	return idem_lmdb_run_sync(env);
}

/* Two lock files would be two locks on one data.mdb. */
static int
check_lock(const struct lmdb_env *env, bool alone, char *why, size_t cap)
{
	char name[PATH_MAX];
	struct stat st;

	if (!idem_lmdb_name(env, "lock.mdb", name) || stat(name, &st) == -1)
		return idem_lmdb_why(why, cap, env->path, "lock.mdb", errno);
	if (alone)
		env->run->lock_inode = st.st_ino;
	if (env->run->lock_inode == st.st_ino)
		return IDEM_OK;
	return idem_lmdb_say(
		why, cap, IDEM_E_UNAVAILABLE,
		"%s/lock.mdb: it was removed while it was in use: stop all processes that use it, and start "
		"them again",
		env->path);
}

static int
settle_files(struct lmdb_env *env, bool alone, char *why, size_t cap)
{
	struct stat st;
	int rc = stat_data(env, &st);

	if (rc == 0 && alone && env->sync != IDEM_LMDB_SYNC_PROCESS)
		rc = sync_all(env);
	if (rc == 0 && env->sync == IDEM_LMDB_SYNC_PROCESS)
		rc = mdb_env_set_flags(env->mdb, MDB_NOSYNC, 1);
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, "data.mdb", rc);
	if (alone)
		atomic_store(&env->run->floor, (uint64_t)st.st_size);
	env->run->data_inode = st.st_ino;
	rc = alone ? idem_lmdb_run_sync(env) : 0; /* and the names of new files */
	return rc == 0 ? IDEM_OK : idem_lmdb_why(why, cap, env->path, "idem.run", rc);
}

/* LMDB does not say which of its files it means. */
static const char *
culprit(const struct lmdb_env *env, int rc)
{
	char name[PATH_MAX];

	if (rc == ENOENT || rc == ENOTDIR)
		return "";
	if (rc == EACCES && idem_lmdb_name(env, "lock.mdb", name) &&
	    faccessat(AT_FDCWD, name, R_OK | W_OK, AT_EACCESS) == -1 && errno == EACCES)
		return "lock.mdb";
	return "data.mdb";
}

static int
open_all(struct lmdb_env *env, bool create, char *why, size_t cap)
{
	bool alone, is_new;
	int dead, rc = idem_lmdb_run_open(env, &alone, why, cap);

	if (rc == IDEM_OK)
		rc = check_data(env, create, alone, &is_new, why, cap);
	if (rc != IDEM_OK)
		return rc;
	rc = mark_unsynced(env);
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, "idem.run", rc);
	rc = open_mdb(env, is_new);
	if (rc == 0)
		rc = mdb_reader_check(env->mdb, &dead);
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, culprit(env, rc), rc);
	rc = check_lock(env, alone, why, cap);
	if (rc == IDEM_OK)
		rc = check_length(env, why, cap);
	if (rc == IDEM_OK)
		rc = start_tables(env, alone, why, cap);
	return rc == IDEM_OK ? settle_files(env, alone, why, cap) : rc;
}

static void
drop(struct lmdb_env *env)
{
	if (env->mdb != NULL)
		mdb_env_close(env->mdb);
	env->mdb = NULL;
	idem_lmdb_run_close(env);
}

static void
remember_directory(struct lmdb_env *env)
{
	struct stat st;

	if (stat(env->path, &st) == -1)
		return; /* it was there a moment ago; then the path alone says what it is */
	env->device = st.st_dev;
	env->inode = st.st_ino;
}

int
idem_lmdb_env_open(struct lmdb_env *env, bool create, char *why, size_t cap)
{
	int rc = create ? make_directory(env, why, cap) : IDEM_OK;

	if (rc == IDEM_OK)
		rc = open_all(env, create, why, cap);
	if (rc != IDEM_OK) {
		drop(env);
		atomic_store(&env->status, rc);
		return rc;
	}
	idem_lmdb_run_opened(env);
	remember_directory(env);
	env->generation++;
	env->strict = true; /* as LMDB opens it */
	env->room = (struct room){0};
	atomic_store(&env->status, IDEM_OK);
	return IDEM_OK;
}

/* ---- closing ---- */

static void
drop_readers(struct lmdb_env *env)
{
	(void)pthread_mutex_lock(&env->lock);
	for (struct lmdb_store *store = env->stores; store != NULL; store = store->next) {
		if (store->reader != NULL && store->generation == env->generation)
			mdb_txn_abort(store->reader);
		store->reader = NULL;
	}
	(void)pthread_mutex_unlock(&env->lock);
}

void
idem_lmdb_env_close(struct lmdb_env *env)
{
	if (env->mdb == NULL)
		return;
	drop_readers(env);
	/* What cannot be synced stays marked: it outlives the process, and its marks tell the next boot. */
	if (env->run->unsynced && atomic_load(&env->status) == IDEM_OK && idem_lmdb_run_last(env) &&
	    sync_all(env) != 0)
		env->run->unsynced = 1;
	drop(env);
}

void
idem_lmdb_env_fail(struct lmdb_env *env, int status)
{
	atomic_store(&env->status, status);
}

static int
remap(struct lmdb_env *env, size_t size)
{
	MDB_envinfo info;
	int rc;

	if (atomic_load(&env->status) != IDEM_OK)
		return MDB_PANIC; /* it is opened anew, and mapped then */
	rc = mdb_env_info(env->mdb, &info);
	if (rc == 0)
		rc = mdb_env_set_mapsize(env->mdb, size > info.me_mapsize ? size : 0);
	if (rc != 0)
		idem_lmdb_env_fail(env, IDEM_E_UNAVAILABLE); /* LMDB has unmapped it already */
	else if (size > env->size)
		env->size = size;
	env->room.checked = false;
	return rc;
}

int
idem_lmdb_env_remap(struct lmdb_env *env, size_t size)
{
	int rc;

	(void)pthread_rwlock_wrlock(&env->gate);
	rc = remap(env, size);
	(void)pthread_rwlock_unlock(&env->gate);
	return rc;
}
