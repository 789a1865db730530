/* A handle: reads in its own thread, and hands writes to the environment's writer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layout.h"

static const struct idem_store_ops lmdb_ops;

struct lmdb_store *
idem_lmdb_downcast(struct idem_store *base)
{
	return base->ops == &lmdb_ops ? (struct lmdb_store *)base : NULL;
}

/* ---- trouble ---- */

/* Since the report with the number *heard, which becomes the last one's. */
static void
tell_reports(struct lmdb_env *env, uint64_t *heard, void (*report)(void *report_data, const char *sentence),
             void *report_data)
{
	char sentence[WHY_MAX];

	if (report == NULL || atomic_load(&env->report_count) == *heard)
		return;
	(void)pthread_mutex_lock(&env->lock);
	*heard = atomic_load(&env->report_count);
	memcpy(sentence, env->report, sizeof sentence);
	(void)pthread_mutex_unlock(&env->lock);
	report(report_data, sentence);
}

/* ---- reading ---- */

static int
begin_reader(struct lmdb_store *store)
{
	if (store->reader != NULL)
		return mdb_txn_renew(store->reader);
	store->generation = store->env->generation;
	return mdb_txn_begin(store->env->mdb, NULL, MDB_RDONLY, &store->reader);
}

int
idem_lmdb_read_begin(struct lmdb_store *store, MDB_txn **ret_txn)
{
	int dead, rc = begin_reader(store);

	if (rc == MDB_READERS_FULL && mdb_reader_check(store->env->mdb, &dead) == 0)
		rc = begin_reader(store);
	*ret_txn = store->reader;
	return rc;
}

void
idem_lmdb_read_end(struct lmdb_store *store)
{
	mdb_txn_reset(store->reader);
}

enum { ASK_WRITER = 1 };

static int
look_up(struct lmdb_store *store, MDB_txn *txn, struct idem_io *io)
{
	struct lmdb_env *env = store->env;
	uint64_t now_ms = idem_lmdb_now(env);
	struct found found;
	void *payload;
	int rc = idem_lmdb_find(env, txn, &io->id, now_ms, &found);

	if (rc != 0)
		return idem_lmdb_status(rc);
	if (!found.live || idem_lmdb_is_undurable(env, &found))
		return ASK_WRITER;
	rc = idem_lmdb_show(env, txn, &found, now_ms, &io->write.fingerprint, io->want_payload, &io->seen,
	                    &payload);
	io->store_data = payload;
	return idem_lmdb_status(rc);
}

/* What a committed transaction tells already.  IDEM_OK: io is answered; ASK_WRITER; or an error. */
static int
read_in_gate(struct lmdb_store *store, struct idem_io *io, bool *ret_resized)
{
	MDB_txn *txn;
	int rc = idem_lmdb_env_health(store->env);

	*ret_resized = false;
	if (rc != IDEM_OK) {
		idem_lmdb_env_fail(store->env, rc); /* the writer will open it again */
		return rc;
	}
	rc = idem_lmdb_read_begin(store, &txn);
	if (rc != 0) {
		*ret_resized = rc == MDB_MAP_RESIZED;
		return rc == MDB_PANIC ? ASK_WRITER : idem_lmdb_status(rc);
	}
	rc = look_up(store, txn, io);
	idem_lmdb_read_end(store);
	return rc;
}

static int
read_now(struct lmdb_store *store, struct idem_io *io)
{
	bool resized;
	int rc;

	do {
		(void)pthread_rwlock_rdlock(&store->env->gate);
		rc = read_in_gate(store, io, &resized);
		(void)pthread_rwlock_unlock(&store->env->gate);
		/* Another process made the map larger. */
	} while (resized && idem_lmdb_env_remap(store->env, 0) == 0);
	return rc;
}

/* ---- writing ---- */

static struct op *
op_new(struct lmdb_store *store, struct idem_io *io)
{
	struct op *op = calloc(1, sizeof *op + io->write.payload.len);

	if (op == NULL)
		return NULL;
	op->io = io;
	op->store = store;
	op->id = io->id;
	op->expect = io->expect;
	op->write = io->write;
	op->want_payload = io->want_payload;
	op->write.payload = (struct idem_bytes){op->payload, io->write.payload.len};
	if (io->write.payload.len > 0)
		memcpy(op->payload, io->write.payload.data, io->write.payload.len);
	return op;
}

static int
enqueue(struct lmdb_store *store, struct idem_io *io)
{
	struct lmdb_env *env = store->env;
	struct op *op = op_new(store, io);
	bool was_empty;

	if (op == NULL)
		return IDEM_E_NOMEM;
	io->store_data = op;
	(void)pthread_mutex_lock(&env->lock);
	was_empty = env->queue.first == NULL;
	idem_lmdb_list_add(&env->queue, op);
	store->pending++;
	if (was_empty)
		(void)pthread_cond_signal(&env->wanted);
	(void)pthread_mutex_unlock(&env->lock);
	return IDEM_OK;
}

static int
start(struct lmdb_store *store, struct idem_io *io)
{
	int rc = ASK_WRITER;

	if (io->write.payload.len > IDEM_PAYLOAD_MAX)
		return IDEM_E_FULL;
	if (idem_tag_is_zero(&io->expect))
		rc = read_now(store, io);
	if (rc != ASK_WRITER)
		return rc;
	rc = enqueue(store, io);
	return rc == IDEM_OK ? IDEM_PENDING : rc;
}

static int
lmdb_cas(struct idem_store *base, struct idem_io *io)
{
	struct lmdb_store *store = (struct lmdb_store *)base;
	int rc;

	tell_reports(store->env, &store->reports_heard, store->report, store->report_data);
	memset(&io->seen, 0, sizeof io->seen);
	io->applied = false;
	io->store_data = NULL;
	rc = start(store, io);
	if (rc == IDEM_PENDING)
		return IDEM_PENDING;
	io->status = rc;
	return IDEM_OK;
}

static void
lmdb_cancel(struct idem_store *base, struct idem_io *io)
{
	struct lmdb_store *store = (struct lmdb_store *)base;
	struct op *op = io->store_data;
	bool waited;

	io->store_data = NULL;
	op->io = NULL;
	/* A disk that hangs would gather one for each repetition. */
	(void)pthread_mutex_lock(&store->env->lock);
	waited = idem_lmdb_list_remove(&store->env->queue, op);
	store->pending -= waited;
	(void)pthread_mutex_unlock(&store->env->lock);
	if (waited)
		idem_lmdb_op_free(op);
}

static void
lmdb_release(struct idem_store *base, struct idem_io *io)
{
	(void)base;
	free(io->store_data);
	io->store_data = NULL;
}

/* ---- answers ---- */

static void
answer(struct op *op)
{
	struct idem_io *io = op->io;

	if (io == NULL) {
		idem_lmdb_op_free(op);
		return;
	}
	io->status = op->status;
	io->applied = op->status == IDEM_OK && op->applied;
	io->seen = op->seen;
	io->store_data = op->seen_payload;
	op->seen_payload = NULL;
	idem_lmdb_op_free(op);
	io->done(io);
}

static void
bell_rang(struct idem_fd *bell, unsigned readiness)
{
	struct lmdb_store *store =
		(struct lmdb_store *)(void *)((char *)bell - offsetof(struct lmdb_store, bell));
	uint64_t count;
	struct op *op;

	(void)readiness;
	/* Before the list is taken, so that no ring is lost; that it did not ring after all is no harm. */
	if (read(bell->fd, &count, sizeof count) != (ssize_t)sizeof count)
		count = 0;
	(void)pthread_mutex_lock(&store->env->lock);
	while ((op = idem_lmdb_list_take(&store->done)) != NULL)
		idem_lmdb_list_add(&store->delivered, op);
	(void)pthread_mutex_unlock(&store->env->lock);
	tell_reports(store->env, &store->reports_heard, store->report, store->report_data);
	while ((op = idem_lmdb_list_take(&store->delivered)) != NULL)
		answer(op);
}

/* ---- hints ---- */

/* Files that were opened again may have another board: a slot on the old one would hear nothing more. */
static void
choose_board(struct lmdb_store *store)
{
	struct wake_board *board = &store->env->run->board;

	if (store->wake.watches != NULL || memcmp(store->board_uuid, board->uuid, sizeof board->uuid) == 0)
		return;
	idem_wake_close(&store->wake);
	idem_wake_init(&store->wake, board, store->loop);
	memcpy(store->board_uuid, board->uuid, sizeof board->uuid);
}

static int
lmdb_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct lmdb_store *store = (struct lmdb_store *)base;

	choose_board(store);
	return idem_wake_watch(&store->wake, watch);
}

static void
lmdb_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	struct lmdb_store *store = (struct lmdb_store *)base;

	idem_wake_unwatch(&store->wake, watch);
}

/* ---- life ---- */

static void
drop_reader(struct lmdb_store *store)
{
	(void)pthread_rwlock_rdlock(&store->env->gate);
	if (store->reader != NULL)
		mdb_txn_abort(store->reader);
	store->reader = NULL;
	(void)pthread_rwlock_unlock(&store->env->gate);
}

static void
link_store(struct lmdb_store *store)
{
	struct lmdb_env *env = store->env;

	(void)pthread_mutex_lock(&env->lock);
	store->next = env->stores;
	store->link = &env->stores;
	if (store->next != NULL)
		store->next->link = &store->next;
	env->stores = store;
	(void)pthread_mutex_unlock(&env->lock);
}

/* True: nothing of it is under way. */
static bool
unlink_store(struct lmdb_store *store)
{
	struct lmdb_env *env = store->env;
	struct op *op;
	bool idle;

	(void)pthread_mutex_lock(&env->lock);
	*store->link = store->next;
	if (store->next != NULL)
		store->next->link = store->link;
	while ((op = idem_lmdb_list_take(&store->done)) != NULL)
		idem_lmdb_op_free(op);
	store->closed = true;
	idle = store->pending == 0;
	(void)pthread_mutex_unlock(&env->lock);
	return idle;
}

static void
lmdb_close(struct idem_store *base)
{
	struct lmdb_store *store = (struct lmdb_store *)base;
	struct lmdb_env *env = store->env;
	int fd = store->bell.fd;
	struct op *op;

	while ((op = idem_lmdb_list_take(&store->delivered)) != NULL)
		idem_lmdb_op_free(op);
	idem_wake_close(&store->wake);
	drop_reader(store);
	if (store->loop->ops->fd_watch(store->loop, &store->bell, 0) != IDEM_OK)
		fd = -1; /* stopping cannot fail */
	/* What is queued is still written; the writer frees the handle then. */
	if (unlink_store(store))
		free(store);
	if (fd >= 0)
		(void)close(fd);
	idem_lmdb_env_put(env);
}

static const struct idem_store_ops lmdb_ops = {
	.name = "lmdb",
	.cas = lmdb_cas,
	.cancel = lmdb_cancel,
	.release = lmdb_release,
	.watch = lmdb_watch,
	.unwatch = lmdb_unwatch,
	.close = lmdb_close,
};

static int
check_options(const struct idem_lmdb_options *options, char *why, size_t cap)
{
	if (options->path == NULL || options->path[0] == '\0')
		return idem_lmdb_say(why, cap, IDEM_E_INVALID, "no path was given");
	if (options->sync != IDEM_LMDB_SYNC_FULL && options->sync != IDEM_LMDB_SYNC_COMPLETION &&
	    options->sync != IDEM_LMDB_SYNC_PROCESS)
		return idem_lmdb_say(why, cap, IDEM_E_INVALID, "%s: the sync is none of the three",
		                     options->path);
	if (options->size != 0 &&
	    (options->size < IDEM_LMDB_MIN_BYTES || options->size > IDEM_LMDB_MAX_BYTES))
		return idem_lmdb_say(why, cap, IDEM_E_INVALID, "%s: the size must be from 1m to 16t",
		                     options->path);
	return IDEM_OK;
}

static int
start_bell(struct lmdb_store *store, char *why, size_t cap)
{
	int rc = IDEM_E_SYSTEM;

	store->bell.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	store->bell.ready = bell_rang;
	if (store->bell.fd >= 0)
		rc = store->loop->ops->fd_watch(store->loop, &store->bell, IDEM_READABLE);
	if (rc == IDEM_OK)
		return IDEM_OK;
	if (store->bell.fd >= 0)
		(void)close(store->bell.fd);
	return idem_lmdb_say(why, cap, rc, "%s: no descriptor for its answers: allow more open files",
	                     store->env->path);
}

static struct lmdb_store *
store_new(const struct idem_lmdb_options *options, struct lmdb_env *env)
{
	struct lmdb_store *store = calloc(1, sizeof *store);

	if (store == NULL)
		return NULL;
	store->base.ops = &lmdb_ops;
	store->env = env;
	store->loop = options->loop;
	store->report = options->report;
	store->report_data = options->report_data;
	idem_lmdb_list_init(&store->done);
	idem_lmdb_list_init(&store->delivered);
	idem_wake_init(&store->wake, &env->run->board, options->loop);
	memcpy(store->board_uuid, env->run->board.uuid, sizeof store->board_uuid);
	return store;
}

static int
open_handle(const struct idem_lmdb_options *options, struct lmdb_env *env, struct idem_store **ret_store,
            char *why, size_t cap)
{
	struct lmdb_store *store = store_new(options, env);
	int rc;

	if (store == NULL)
		return idem_lmdb_say(why, cap, IDEM_E_NOMEM, "%s: %s", options->path,
		                     idem_strerror(IDEM_E_NOMEM));
	rc = start_bell(store, why, cap);
	if (rc != IDEM_OK) {
		free(store);
		return rc;
	}
	link_store(store);
	*ret_store = &store->base;
	return IDEM_OK;
}

int
idem_lmdb_open(const struct idem_lmdb_options *options, struct idem_store **ret_store, char *why, size_t cap)
{
	struct lmdb_env *env;
	int rc = check_options(options, why, cap);

	if (rc == IDEM_OK && options->loop == NULL)
		rc = idem_lmdb_say(why, cap, IDEM_E_INVALID, "%s: no loop was given", options->path);
	if (rc == IDEM_OK)
		rc = idem_lmdb_env_get(options, &env, why, cap);
	if (rc != IDEM_OK)
		return rc;
	rc = open_handle(options, env, ret_store, why, cap);
	if (rc != IDEM_OK)
		idem_lmdb_env_put(env);
	else if (cap > 0)
		why[0] = '\0';
	return rc;
}

int
idem_lmdb_check(const struct idem_lmdb_options *options, char *why, size_t cap)
{
	struct lmdb_env *env;
	uint64_t heard = 0;
	int rc = check_options(options, why, cap);

	if (rc == IDEM_OK)
		rc = idem_lmdb_env_get(options, &env, why, cap);
	if (rc != IDEM_OK)
		return rc;
	tell_reports(env, &heard, options->report, options->report_data);
	idem_lmdb_env_put(env);
	if (cap > 0)
		why[0] = '\0';
	return IDEM_OK;
}

/* ---- usage ---- */

static int
read_usage(struct lmdb_store *store, MDB_txn *txn, struct idem_lmdb_usage *usage)
{
	MDB_env *mdb = store->env->mdb;
	uint64_t page = store->env->page_bytes, free_pages;
	struct stat st;
	MDB_envinfo info;
	MDB_stat cells;
	int fd, rc = mdb_stat(txn, store->env->cells, &cells);

	if (rc == 0)
		rc = mdb_env_info(mdb, &info);
	if (rc == 0)
		rc = mdb_env_get_fd(mdb, &fd);
	if (rc == 0 && fstat(fd, &st) == -1)
		rc = errno;
	if (rc == 0)
		rc = idem_lmdb_free_pages(txn, &free_pages);
	if (rc != 0)
		return rc;
	usage->cells = cells.ms_entries;
	usage->bytes_total = info.me_mapsize;
	usage->bytes_used = ((uint64_t)info.me_last_pgno + 1 - free_pages) * page;
	usage->bytes_file = (uint64_t)st.st_size;
	return 0;
}

int
idem_lmdb_usage(struct idem_store *base, struct idem_lmdb_usage *ret_usage)
{
	struct lmdb_store *store = idem_lmdb_downcast(base);
	struct idem_lmdb_usage usage = {0};
	MDB_txn *txn;
	int rc;

	if (store == NULL)
		return IDEM_E_INVALID;
	(void)pthread_rwlock_rdlock(&store->env->gate);
	rc = idem_lmdb_env_health(store->env);
	if (rc == IDEM_OK) {
		rc = idem_lmdb_status(idem_lmdb_read_begin(store, &txn));
		if (rc == IDEM_OK) {
			rc = idem_lmdb_status(read_usage(store, txn, &usage));
			idem_lmdb_read_end(store);
		}
	}
	(void)pthread_rwlock_unlock(&store->env->gate);
	if (rc == IDEM_OK)
		*ret_usage = usage;
	return rc;
}
