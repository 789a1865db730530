/*
 * The writer: one thread for each environment, which takes what is queued, writes it in one transaction, and
 * sends the answers back.  While it waits for the disk, the next batch gathers.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../rules.h"
#include "layout.h"

#define BATCH_OPS 512
#define BATCH_BYTES ((size_t)4 << 20)

#define TICK_MS 1000
/* Between two steps of a sweep; others, in other processes too, have a turn. */
#define SWEEP_PAUSE_MS 1
#define REPAIR_EVERY_MS 500
#define REPORT_EVERY_MS 60000

/* ---- lists ---- */

void
idem_lmdb_list_init(struct op_list *list)
{
	*list = (struct op_list){0};
	list->last = &list->first;
}

void
idem_lmdb_list_add(struct op_list *list, struct op *op)
{
	op->next = NULL;
	*list->last = op;
	list->last = &op->next;
}

struct op *
idem_lmdb_list_take(struct op_list *list)
{
	struct op *op = list->first;

	if (op == NULL)
		return NULL;
	list->first = op->next;
	if (list->first == NULL)
		list->last = &list->first;
	return op;
}

bool
idem_lmdb_list_remove(struct op_list *list, struct op *op)
{
	struct op **link = &list->first;

	while (*link != NULL && *link != op)
		link = &(*link)->next;
	if (*link == NULL)
		return false;
	*link = op->next;
	if (list->last == &op->next)
		list->last = link;
	return true;
}

void
idem_lmdb_op_free(struct op *op)
{
	free(op->seen_payload);
	free(op);
}

/* ---- reports ---- */

static void
say(struct lmdb_env *env, const char *sentence)
{
	(void)snprintf(env->report, sizeof env->report, "%s", sentence);
	atomic_fetch_add(&env->report_count, 1);
}

void
idem_lmdb_report(struct lmdb_env *env, enum trouble kind, const char *sentence)
{
	uint64_t now_ms = idem_lmdb_uptime_ms();

	(void)pthread_mutex_lock(&env->lock);
	if (env->reported_ms[kind] == 0 || now_ms - env->reported_ms[kind] >= REPORT_EVERY_MS) {
		env->reported_ms[kind] = now_ms;
		env->trouble = kind;
		say(env, sentence);
	}
	(void)pthread_mutex_unlock(&env->lock);
}

void
idem_lmdb_recovered(struct lmdb_env *env, enum trouble kind)
{
	char sentence[WHY_MAX];

	(void)pthread_mutex_lock(&env->lock);
	if (env->trouble == kind) {
		env->trouble = TROUBLE_NONE;
		(void)snprintf(sentence, sizeof sentence, "%s: the store works again", env->path);
		say(env, sentence);
	}
	(void)pthread_mutex_unlock(&env->lock);
}

/* ---- answers ---- */

/* Gives an answer to the handle's thread.  The lock is held. */
static void
deliver(struct op *op)
{
	struct lmdb_store *store = op->store;
	uint64_t one = 1;

	store->pending--;
	if (store->closed) {
		idem_lmdb_op_free(op);
		if (store->pending == 0)
			free(store);
		return;
	}
	if (store->done.first == NULL) {
		ssize_t rang = write(store->bell.fd, &one, sizeof one);

		(void)rang; /* a counter that cannot take more rings too: eventfd(2) */
	}
	idem_lmdb_list_add(&store->done, op);
}

/* Everything that is as durable as it must be. */
static void
answer_held(struct lmdb_env *env)
{
	uint64_t durable = env->sync == IDEM_LMDB_SYNC_PROCESS ? UINT64_MAX : atomic_load(&env->run->durable);
	struct op_list later, now;
	struct op *op;

	idem_lmdb_list_init(&later);
	idem_lmdb_list_init(&now);
	while ((op = idem_lmdb_list_take(&env->held)) != NULL)
		idem_lmdb_list_add(op->commit <= durable ? &now : &later, op);
	while ((op = idem_lmdb_list_take(&later)) != NULL)
		idem_lmdb_list_add(&env->held, op);
	for (op = now.first; op != NULL; op = op->next)
		if (op->applied && idem_rule_is_news(&op->write, &op->expect))
			idem_wake_ring(&env->run->board, env->ring_fd, &op->id);
	(void)pthread_mutex_lock(&env->lock);
	while ((op = idem_lmdb_list_take(&now)) != NULL)
		deliver(op);
	(void)pthread_mutex_unlock(&env->lock);
}

/* ---- the loop ---- */

static struct timespec
after_ms(uint64_t ms)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += (time_t)(ms / 1000);
	time.tv_nsec += (long)(ms % 1000) * 1000000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

/* Waits for work.  False: the end, and nothing is left. */
static bool
wait_for_work(struct lmdb_env *env)
{
	struct timespec until = after_ms(env->due ? SWEEP_PAUSE_MS : TICK_MS);
	bool more;

	(void)pthread_mutex_lock(&env->lock);
	while (env->queue.first == NULL && !env->stopping)
		if (pthread_cond_timedwait(&env->wanted, &env->lock, &until) == ETIMEDOUT)
			break;
	more = env->queue.first != NULL || !env->stopping;
	(void)pthread_mutex_unlock(&env->lock);
	return more;
}

static size_t
take_batch(struct lmdb_env *env, struct op **ops)
{
	size_t bytes = 0, count = 0;

	(void)pthread_mutex_lock(&env->lock);
	while (env->queue.first != NULL && count < BATCH_OPS && bytes < BATCH_BYTES) {
		bytes += env->queue.first->write.payload.len;
		ops[count++] = idem_lmdb_list_take(&env->queue);
	}
	(void)pthread_mutex_unlock(&env->lock);
	return count;
}

static bool
queue_is_empty(struct lmdb_env *env)
{
	bool empty;

	(void)pthread_mutex_lock(&env->lock);
	empty = env->queue.first == NULL;
	(void)pthread_mutex_unlock(&env->lock);
	return empty;
}

/* Closes what is broken and opens it again; it is not made anew. */
static void
repair(struct lmdb_env *env)
{
	uint64_t now_ms = idem_lmdb_uptime_ms();
	char why[WHY_MAX] = "";
	int rc;

	if (env->repair_tried_ms != 0 && now_ms - env->repair_tried_ms < REPAIR_EVERY_MS)
		return;
	env->repair_tried_ms = now_ms;
	idem_lmdb_fail_held(env);
	(void)pthread_rwlock_wrlock(&env->gate);
	idem_lmdb_env_close(env);
	rc = idem_lmdb_env_open(env, false, why, sizeof why);
	(void)pthread_rwlock_unlock(&env->gate);
	if (rc == IDEM_OK)
		idem_lmdb_recovered(env, TROUBLE_OPEN);
	else
		idem_lmdb_report(env, TROUBLE_OPEN, why);
}

static void
fail_batch(struct op **ops, size_t count, int status)
{
	for (size_t i = 0; i < count; i++)
		ops[i]->status = status;
}

/* Also while there is always something to write. */
static void
look_for_dead_readers(struct lmdb_env *env)
{
	uint64_t now_ms = idem_lmdb_uptime_ms();

	if (now_ms - env->readers_checked_ms < TICK_MS)
		return;
	env->readers_checked_ms = now_ms;
	(void)idem_lmdb_forget_dead_readers(env);
}

/* What is queued, or if that is nothing, what there is to tidy up. */
static size_t
write_batch(struct lmdb_env *env, struct op **ops)
{
	size_t count;

	look_for_dead_readers(env);
	if (queue_is_empty(env)) {
		idem_lmdb_tick(env);
		return 0;
	}
	/* Other processes may have the lock for some time: whatever comes meanwhile belongs to the batch. */
	idem_lmdb_batch_begin(env);
	count = take_batch(env, ops);
	idem_lmdb_batch(env, ops, count);
	return count;
}

/* With the gate held for reading. */
static void
work(struct lmdb_env *env, struct op **ops)
{
	int status = idem_lmdb_env_health_of_all(env);
	uint64_t before = env->last_commit;
	size_t count;

	if (status == IDEM_OK) {
		count = write_batch(env, ops);
	} else {
		idem_lmdb_env_fail(env, status);
		idem_lmdb_fail_held(env);
		count = take_batch(env, ops);
		fail_batch(ops, count, status);
	}
	for (size_t i = 0; i < count; i++)
		idem_lmdb_list_add(&env->held, ops[i]);
	answer_held(env);
	/* The next commit would sync what the held answers tell of, but none is to come, or who knows when.
	 */
	if (env->held.first != NULL && atomic_load(&env->status) == IDEM_OK &&
	    (queue_is_empty(env) || env->last_commit == before)) {
		idem_lmdb_sync(env);
		answer_held(env);
	}
}

static void *
write_all(void *data)
{
	struct lmdb_env *env = data;
	struct op *ops[BATCH_OPS];

	(void)prctl(PR_SET_NAME, "idem-lmdb"); /* as top(1) shows it */
	while (wait_for_work(env)) {
		if (atomic_load(&env->status) != IDEM_OK)
			repair(env);
		(void)pthread_rwlock_rdlock(&env->gate);
		work(env, ops);
		(void)pthread_rwlock_unlock(&env->gate);
	}
	return NULL;
}

/* Signals are for the host's own threads. */
int
idem_lmdb_writer_start(struct lmdb_env *env)
{
	sigset_t all, before;
	int rc;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&env->writer, NULL, write_all, env);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc == 0 ? IDEM_OK : IDEM_E_NOMEM;
}

void
idem_lmdb_writer_stop(struct lmdb_env *env)
{
	(void)pthread_mutex_lock(&env->lock);
	env->stopping = true;
	(void)pthread_cond_signal(&env->wanted);
	(void)pthread_mutex_unlock(&env->lock);
	(void)pthread_join(env->writer, NULL);
}
