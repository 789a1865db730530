/* Many operations in one transaction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* Removed in each transaction besides: twice what it can add, so that the store shrinks under any load. */
#define SWEEP_PER_OP 2
#define SWEEP_ALONE 128
/* When there is no room, transactions that do nothing else; others would be refused meanwhile. */
#define MAKE_ROOM_MS 250

/* So often a store in which nothing is written keeps the time. */
#define CLOCK_EVERY_MS 60000

/* ---- beginning and ending a transaction ---- */

/* Another process made the map larger.  The writer alone closes it: it is still there afterwards. */
static int
remap(struct lmdb_env *env)
{
	int rc;

	(void)pthread_rwlock_unlock(&env->gate);
	rc = idem_lmdb_env_remap(env, 0);
	(void)pthread_rwlock_rdlock(&env->gate);
	return rc;
}

/*
 * With completion, meta pages are not synced: LMDB's MDB_NOMETASYNC.  But after a failed fsync nobody knows
 * which pages are on disk, and a commit that syncs its meta page too stands on its own: its own pages, and
 * those of all before, which were synced when they were written.  Decided under LMDB's lock: whoever failed
 * before us has said so by now.
 */
static int
choose_strictness(struct lmdb_env *env)
{
	bool strict = env->sync != IDEM_LMDB_SYNC_COMPLETION || atomic_load(&env->run->suspect) != 0;

	if (strict == env->strict)
		return 0;
	env->strict = strict;
	return mdb_env_set_flags(env->mdb, MDB_NOMETASYNC, !strict);
}

static int
begin(struct lmdb_env *env, MDB_txn **ret_txn)
{
	int rc = MDB_PANIC;

	/* It may have failed since the batch began: what LMDB has of it then must not be touched. */
	if (atomic_load(&env->status) == IDEM_OK)
		rc = mdb_txn_begin(env->mdb, NULL, 0, ret_txn);
	if (rc == MDB_MAP_RESIZED) {
		rc = remap(env);
		if (rc == 0)
			rc = mdb_txn_begin(env->mdb, NULL, 0, ret_txn);
	}
	if (rc != 0)
		return rc;
	rc = choose_strictness(env);
	if (rc != 0)
		mdb_txn_abort(*ret_txn);
	return rc;
}

/* Is what a failed commit leaves unknown?  If it failed at its last step, LMDB begins nothing any more. */
static bool
is_unknown(const struct lmdb_env *env)
{
	MDB_txn *probe;
	int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &probe);

	if (rc == 0)
		mdb_txn_abort(probe);
	return rc != 0;
}

/* ---- trouble ---- */

static void
report_full(struct lmdb_env *env)
{
	char why[WHY_MAX];
	MDB_envinfo info = {0};

	(void)mdb_env_info(env->mdb, &info); /* cannot fail here */
	if (env->room.disk)
		(void)idem_lmdb_say(why, sizeof why, 0,
		                    "%s: new keys are refused: its file system has no space left: free some",
		                    env->path);
	else
		(void)idem_lmdb_say(why, sizeof why, 0,
		                    "%s: new keys are refused: the store is full: raise its size from %zum, "
		                    "or keep keys for "
		                    "a shorter time",
		                    env->path, info.me_mapsize >> 20);
	idem_lmdb_report(env, TROUBLE_FULL, why);
}

/* To LMDB a write that was cut short is an error of the disk; mostly the disk is full. */
static int
true_cause(const struct lmdb_env *env, int rc)
{
	return rc == EIO && !idem_lmdb_room_has_disk(env) ? ENOSPC : rc;
}

static void
report_rc(struct lmdb_env *env, int rc)
{
	char why[WHY_MAX];

	rc = true_cause(env, rc);
	if (rc == MDB_MAP_FULL || rc == MDB_TXN_FULL) {
		report_full(env);
		return;
	}
	(void)idem_lmdb_why(why, sizeof why, env->path, "data.mdb", rc);
	idem_lmdb_report(env, idem_lmdb_no_space(rc) ? TROUBLE_FULL : TROUBLE_WRITE, why);
}

/* Nothing more can be done with this MDB_env. */
static bool
is_fatal(int rc)
{
	return rc == MDB_PANIC || rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH || rc == MDB_INCOMPATIBLE;
}

static void
reset(struct op *op)
{
	free(op->seen_payload);
	op->seen_payload = NULL;
	memset(&op->seen, 0, sizeof op->seen);
	op->status = IDEM_OK;
	op->applied = false;
	op->commit = 0;
}

static void
fail_op(struct op *op, int status)
{
	if (op->status != IDEM_OK)
		return; /* it has failed already */
	/* What only looked has changed nothing. */
	if (status == IDEM_E_INDOUBT && !op->applied)
		status = IDEM_E_UNAVAILABLE;
	reset(op);
	op->status = status;
}

/* Whatever waits for an fsync will never have a good one.  Returns what became of the commit itself. */
static int
commit_failed(struct lmdb_env *env, int rc)
{
	bool unknown = is_unknown(env);

	report_rc(env, rc);
	atomic_store(&env->run->suspect, 1);
	idem_lmdb_fail_held(env);
	if (unknown)
		idem_lmdb_env_fail(env, IDEM_E_UNAVAILABLE);
	return unknown ? IDEM_E_INDOUBT : idem_lmdb_status(true_cause(env, rc));
}

void
idem_lmdb_fail_held(struct lmdb_env *env)
{
	for (struct op *op = env->held.first; op != NULL; op = op->next)
		fail_op(op, IDEM_E_INDOUBT);
}

/* ---- one transaction ---- */

/* A removal too needs pages: in the worst case one of the index for itself. */
static unsigned
sweep_max(const struct lmdb_env *env, size_t wanted)
{
	uint64_t pages = env->room.bytes / env->page_bytes / 4;

	if (pages == 0)
		pages = 1;
	return (unsigned)(wanted < pages ? wanted : pages);
}

static void
raise_durable(struct lmdb_env *env, uint64_t commit)
{
	uint64_t durable = atomic_load(&env->run->durable);

	while (durable < commit && !atomic_compare_exchange_weak(&env->run->durable, &durable, commit))
		;
}

static void
committed(struct lmdb_env *env, uint64_t commit)
{
	env->last_commit = commit;
	if (env->sync == IDEM_LMDB_SYNC_PROCESS)
		return; /* nobody asks what is durable */
	/* The fsync of this one's pages came after the last one's meta page was written. */
	raise_durable(env, env->strict ? commit : commit - 1);
	if (env->strict)
		atomic_store(&env->run->suspect, 0);
}

/* *ret_lost: what became of the changes, if the commit failed. */
static int
end(struct lmdb_env *env, MDB_txn *txn, struct meta *meta, uint64_t now_ms, int *ret_lost)
{
	int rc;

	if (now_ms > meta->clock_ms)
		meta->clock_ms = now_ms;
	rc = idem_lmdb_meta_put(env, txn, meta);
	if (rc != 0) {
		mdb_txn_abort(txn);
		return rc;
	}
	rc = mdb_txn_commit(txn);
	if (rc == 0)
		committed(env, meta->commit);
	else if (rc != MDB_MAP_FULL) /* that was found before anything was written */
		*ret_lost = commit_failed(env, rc);
	return rc;
}

/* ---- one operation ---- */

bool
idem_lmdb_is_undurable(const struct lmdb_env *env, const struct found *found)
{
	return env->sync != IDEM_LMDB_SYNC_PROCESS && found->live && found->kept.state != IDEM_LOCKED &&
	       found->kept.commit > atomic_load(&env->run->durable);
}

static bool
expected(const struct found *found, const struct idem_tag *expect)
{
	static const struct idem_tag nothing;

	return memcmp(found->live ? found->kept.tag.b : nothing.b, expect->b, IDEM_TAG_LEN) == 0;
}

static int
show(struct lmdb_env *env, MDB_txn *txn, struct op *op, const struct found *found, uint64_t now_ms)
{
	if (idem_lmdb_is_undurable(env, found))
		op->commit = found->kept.commit;
	return idem_lmdb_show(env, txn, found, now_ms, &op->write.fingerprint, op->want_payload, &op->seen,
	                      &op->seen_payload);
}

static int
write_cell(struct lmdb_env *env, MDB_txn *txn, struct meta *meta, struct op *op, const struct found *found,
           uint64_t now_ms)
{
	int rc;

	if (op->write.state == IDEM_ABSENT) {
		rc = found->there ? idem_lmdb_remove(env, txn, found) : 0;
	} else {
		if (!idem_lmdb_room_take(env, op, !found->live)) {
			op->status = IDEM_E_FULL;
			return 0;
		}
		rc = idem_lmdb_put(env, txn, meta, found, op, now_ms);
	}
	if (rc != 0)
		return rc;
	op->applied = true;
	if (op->write.state == IDEM_STORED || op->write.state == IDEM_DOUBT)
		op->commit = meta->commit;
	return 0;
}

/* A damaged cell is its own key's misfortune. */
static int
run_op(struct lmdb_env *env, MDB_txn *txn, struct meta *meta, struct op *op, uint64_t now_ms)
{
	struct found found;
	int rc = idem_lmdb_find(env, txn, &op->id, now_ms, &found);

	if (rc == 0 && expected(&found, &op->expect))
		return write_cell(env, txn, meta, op, &found, now_ms);
	if (rc == 0)
		rc = show(env, txn, op, &found, now_ms);
	if (rc == MDB_CORRUPTED || rc == ENOMEM) {
		op->status = idem_lmdb_status(rc);
		return 0;
	}
	return rc;
}

/* ---- many ---- */

static void
fail_all(struct op **ops, size_t count, int status)
{
	for (size_t i = 0; i < count; i++)
		fail_op(ops[i], status);
}

static int
run_ops(struct lmdb_env *env, MDB_txn *txn, struct meta *meta, struct op **ops, size_t count, uint64_t now_ms,
        bool *ret_applied)
{
	int rc = 0;

	*ret_applied = false;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		reset(ops[i]);
		rc = run_op(env, txn, meta, ops[i], now_ms);
		*ret_applied |= ops[i]->applied;
	}
	return rc;
}

static int
begin_meta(struct lmdb_env *env, MDB_txn **ret_txn, struct meta *meta)
{
	int rc;

	if (env->begun != NULL) {
		*ret_txn = env->begun;
		*meta = env->begun_meta;
		env->begun = NULL;
		return 0;
	}
	rc = begin(env, ret_txn);
	if (rc != 0)
		return rc;
	rc = idem_lmdb_meta_get(env, *ret_txn, meta);
	if (rc == 0) {
		meta->commit++;
		rc = idem_lmdb_room_check(env);
	} else if (rc == MDB_NOTFOUND) {
		rc = MDB_CORRUPTED;
	}
	if (rc != 0)
		mdb_txn_abort(*ret_txn);
	return rc;
}

/* One transaction.  *ret_lost: as in end(). */
static int
attempt(struct lmdb_env *env, struct op **ops, size_t count, int *ret_lost)
{
	struct meta meta;
	MDB_txn *txn;
	uint64_t now_ms;
	bool applied;
	int rc = begin_meta(env, &txn, &meta);

	*ret_lost = IDEM_OK;
	if (rc != 0)
		return rc;
	now_ms = idem_lmdb_now(env); /* others may have had the lock for long: no cell is stamped too early */
	rc = run_ops(env, txn, &meta, ops, count, now_ms, &applied);
	if (rc == 0 && applied)
		rc = idem_lmdb_sweep(env, txn, now_ms, sweep_max(env, count * SWEEP_PER_OP), &env->due);
	if (rc != 0 || !applied) {
		mdb_txn_abort(txn);
		return rc;
	}
	return end(env, txn, &meta, now_ms, ret_lost);
}

/* Removes cells that are over and does nothing else.  *ret_removed: it did. */
static int
sweep(struct lmdb_env *env, bool *ret_removed)
{
	struct meta meta;
	MDB_stat before, after;
	MDB_txn *txn;
	uint64_t now_ms = idem_lmdb_now(env);
	int lost, rc = begin_meta(env, &txn, &meta);

	*ret_removed = false;
	if (rc != 0)
		return rc;
	rc = mdb_stat(txn, env->cells, &before);
	if (rc == 0)
		rc = idem_lmdb_sweep(env, txn, now_ms, sweep_max(env, SWEEP_ALONE), &env->due);
	if (rc == 0)
		rc = mdb_stat(txn, env->cells, &after);
	if (rc == 0)
		*ret_removed = after.ms_entries < before.ms_entries;
	if (rc == 0 && (*ret_removed || now_ms >= meta.clock_ms + CLOCK_EVERY_MS))
		return end(env, txn, &meta, now_ms, &lost);
	mdb_txn_abort(txn);
	return rc;
}

/* A commit of nothing but the meta page, synced. */
static void
commit_strictly(struct lmdb_env *env)
{
	uint64_t now_ms = idem_lmdb_now(env);
	struct meta meta;
	MDB_txn *txn;
	int lost, rc = begin_meta(env, &txn, &meta);

	if (rc == 0)
		rc = end(env, txn, &meta, now_ms, &lost);
	if (rc == 0)
		return;
	report_rc(env, rc);
	idem_lmdb_fail_held(env);
}

void
idem_lmdb_sync(struct lmdb_env *env)
{
	uint64_t newest = env->last_commit;
	int rc;

	for (const struct op *op = env->held.first; op != NULL; op = op->next)
		newest = op->commit > newest ? op->commit : newest;
	/* An fsync that succeeds after one that failed says nothing of what the failed one should have
	 * written. */
	if (atomic_load(&env->run->suspect) != 0) {
		commit_strictly(env);
		return;
	}
	rc = mdb_env_sync(env->mdb, 1);
	if (rc == 0 && atomic_load(&env->run->suspect) == 0) {
		raise_durable(env, newest);
		return;
	}
	atomic_store(&env->run->suspect, 1);
	if (rc != 0)
		report_rc(env, rc);
	idem_lmdb_fail_held(env);
}

static void
make_room(struct lmdb_env *env)
{
	uint64_t until_ms = idem_lmdb_uptime_ms() + MAKE_ROOM_MS;
	bool removed = true;

	while (removed && idem_lmdb_room_is_short(env) && idem_lmdb_uptime_ms() < until_ms) {
		if (sweep(env, &removed) != 0)
			return; /* the operations themselves will fail, and tell why */
		env->room.checked = false;
	}
}

static void
report_ops(struct lmdb_env *env, struct op **ops, size_t count)
{
	bool full = false, applied = false;

	for (size_t i = 0; i < count; i++) {
		full |= ops[i]->status == IDEM_E_FULL;
		applied |= ops[i]->applied && ops[i]->write.state == IDEM_LOCKED;
	}
	if (full)
		report_full(env);
	else if (applied)
		idem_lmdb_recovered(env, TROUBLE_FULL);
	if (applied)
		idem_lmdb_recovered(env, TROUBLE_WRITE);
}

/* A reader that was killed keeps pages from being used again. */
bool
idem_lmdb_forget_dead_readers(struct lmdb_env *env)
{
	int dead = 0;

	return mdb_reader_check(env->mdb, &dead) == 0 && dead > 0;
}

/* Before anything is refused, what others need no more is taken. */
static int
attempt_twice(struct lmdb_env *env, struct op **ops, size_t count, int *ret_lost)
{
	bool removed = false;
	int rc = attempt(env, ops, count, ret_lost);

	if (rc != MDB_MAP_FULL)
		return rc;
	if (idem_lmdb_forget_dead_readers(env) || (count == 1 && sweep(env, &removed) == 0 && removed))
		rc = attempt(env, ops, count, ret_lost);
	return rc;
}

/* If one of them cannot be done, the others can: halves, until it stands alone. */
static void
run(struct lmdb_env *env, struct op **ops, size_t count)
{
	int lost;
	int rc = attempt_twice(env, ops, count, &lost);

	if (rc == 0) {
		report_ops(env, ops, count);
	} else if (lost != IDEM_OK) {
		fail_all(ops, count, lost);
	} else if (is_fatal(rc)) {
		fail_all(ops, count, idem_lmdb_status(rc));
		idem_lmdb_env_fail(env, idem_lmdb_status(rc));
	} else if (count > 1) {
		run(env, ops, count / 2);
		run(env, ops + count / 2, count - count / 2);
	} else {
		fail_all(ops, count, idem_lmdb_status(rc));
		report_rc(env, rc);
	}
}

/* If it cannot begin, the batch will try once more, and tell why. */
void
idem_lmdb_batch_begin(struct lmdb_env *env)
{
	if (begin_meta(env, &env->begun, &env->begun_meta) != 0)
		env->begun = NULL;
}

void
idem_lmdb_batch(struct lmdb_env *env, struct op **ops, size_t count)
{
	if (env->room.checked && idem_lmdb_room_is_short(env))
		make_room(env);
	run(env, ops, count);
}

/* Trouble here is told by the next operation too. */
void
idem_lmdb_tick(struct lmdb_env *env)
{
	bool removed;
	int rc = sweep(env, &removed);

	if (rc == 0)
		return;
	env->due = false;
	if (is_fatal(rc))
		idem_lmdb_env_fail(env, idem_lmdb_status(rc));
	else
		report_rc(env, rc);
}
