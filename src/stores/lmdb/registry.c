/* One environment for each directory in a process: LMDB allows no second one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layout.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lmdb_env *registry;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_status;

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&registry_lock);
}

static void
after_fork(void)
{
	(void)pthread_mutex_unlock(&registry_lock);
}

static void
watch_forks(void)
{
	fork_status = pthread_atfork(before_fork, after_fork, after_fork);
}

/* What a parent opened is not for its child, who has none of its threads. */
static struct lmdb_env *
find(const char *path)
{
	struct stat st;
	bool there = stat(path, &st) == 0;

	for (struct lmdb_env *env = registry; env != NULL; env = env->next) {
		if (env->pid != getpid())
			continue;
		if (strcmp(env->path, path) == 0)
			return env;
		if (there && env->device == st.st_dev && env->inode == st.st_ino)
			return env;
	}
	return NULL;
}

static void
env_free(struct lmdb_env *env)
{
	idem_lmdb_run_unmap(env);
	if (env->ring_fd >= 0)
		(void)close(env->ring_fd);
	(void)pthread_cond_destroy(&env->wanted);
	(void)pthread_mutex_destroy(&env->lock);
	(void)pthread_rwlock_destroy(&env->gate);
	free(env->path);
	free(env);
}

static int
init_locks(struct lmdb_env *env)
{
	pthread_condattr_t monotonic;
	int rc = pthread_condattr_init(&monotonic);

	if (rc != 0)
		return IDEM_E_NOMEM;
	/* Without attributes of their own these cannot fail here: see pthread_mutex_init(3). */
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&env->wanted, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	(void)pthread_mutex_init(&env->lock, NULL);
	(void)pthread_rwlock_init(&env->gate, NULL);
	return IDEM_OK;
}

static struct lmdb_env *
env_new(const struct idem_lmdb_options *options)
{
	struct lmdb_env *env = calloc(1, sizeof *env);

	if (env == NULL)
		return NULL;
	env->path = strdup(options->path);
	if (env->path == NULL || init_locks(env) != IDEM_OK) {
		free(env->path);
		free(env);
		return NULL;
	}
	env->pid = getpid();
	env->sync = options->sync;
	env->size = options->size;
	env->clock_ms = options->clock_ms;
	env->clock_data = options->clock_data;
	env->run_fd = -1;
	env->ring_fd = idem_wake_socket();
	idem_lmdb_list_init(&env->held);
	idem_lmdb_list_init(&env->queue);
	return env;
}

static int
open_new(const struct idem_lmdb_options *options, struct lmdb_env **ret_env, char *why, size_t cap)
{
	struct lmdb_env *env = env_new(options);
	int rc;

	if (env == NULL) {
		(void)idem_lmdb_say(why, cap, IDEM_E_NOMEM, "%s: %s", options->path,
		                    idem_strerror(IDEM_E_NOMEM));
		return IDEM_E_NOMEM;
	}
	rc = idem_lmdb_env_open(env, true, why, cap);
	if (rc == IDEM_OK) {
		rc = idem_lmdb_writer_start(env);
		if (rc != IDEM_OK) {
			(void)idem_lmdb_say(why, cap, rc, "%s: its thread cannot be started: %s", env->path,
			                    idem_strerror(rc));
			idem_lmdb_env_close(env);
		}
	}
	if (rc != IDEM_OK) {
		env_free(env);
		return rc;
	}
	env->next = registry;
	registry = env;
	*ret_env = env;
	return IDEM_OK;
}

/* Raised, never lowered: others in this process count on what they asked for. */
static int
raise_size(struct lmdb_env *env, size_t size, char *why, size_t cap)
{
	int rc = size > env->size ? idem_lmdb_env_remap(env, size) : 0;

	return rc == 0 ? IDEM_OK : idem_lmdb_why(why, cap, env->path, "data.mdb", rc);
}

static int
share(struct lmdb_env *env, const struct idem_lmdb_options *options, char *why, size_t cap)
{
	if (env->sync != options->sync)
		return idem_lmdb_say(
			why, cap, IDEM_E_INVALID,
			"%s: this process uses it with another sync already: give all its stores the same",
			options->path);
	return raise_size(env, options->size, why, cap);
}

static int
get(const struct idem_lmdb_options *options, struct lmdb_env **ret_env, char *why, size_t cap)
{
	struct lmdb_env *env = find(options->path);
	int rc;

	if (env == NULL)
		rc = open_new(options, &env, why, cap);
	else
		rc = share(env, options, why, cap);
	if (rc != IDEM_OK)
		return rc;
	env->users++;
	*ret_env = env;
	return IDEM_OK;
}

int
idem_lmdb_env_get(const struct idem_lmdb_options *options, struct lmdb_env **ret_env, char *why, size_t cap)
{
	int rc;

	(void)pthread_once(&fork_once, watch_forks);
	if (fork_status != 0)
		return idem_lmdb_say(why, cap, IDEM_E_NOMEM, "%s: %s", options->path,
		                     idem_strerror(IDEM_E_NOMEM));
	(void)pthread_mutex_lock(&registry_lock);
	rc = get(options, ret_env, why, cap);
	(void)pthread_mutex_unlock(&registry_lock);
	return rc;
}

static void
take_out(struct lmdb_env *env)
{
	struct lmdb_env **link = &registry;

	while (*link != env)
		link = &(*link)->next;
	*link = env->next;
}

void
idem_lmdb_env_put(struct lmdb_env *env)
{
	(void)pthread_mutex_lock(&registry_lock);
	if (--env->users == 0) {
		take_out(env);
		idem_lmdb_writer_stop(env);
		idem_lmdb_env_close(env);
		env_free(env);
	}
	(void)pthread_mutex_unlock(&registry_lock);
}
