/* A real PgBouncer in transaction mode. */
#include "pooler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "../support/test.h"
#include "redis_server.h"

#define ANSWERS_WITHIN_MS 20000
#define TURN_US 10000

static void
write_settings(const struct pooler *pooler, const struct postgres_server *server, unsigned connections)
{
	char path[96];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/settings.ini", pooler->directory);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fprintf(
		file,
		"[databases]\n"
		"postgres = host=%s port=%u dbname=postgres user=gateway\n" /* auth_type any has no other */
		"[pgbouncer]\n"
		"listen_addr = 127.0.0.1\n"
		"listen_port = %u\n"
		"unix_socket_dir =\n"
		"auth_type = any\n"
		"pool_mode = transaction\n"
		"default_pool_size = %u\n",
		server->directory, server->port, pooler->port, connections);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static void
become_pooler(const struct pooler *pooler)
{
	int log;

	postgres_become_user();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chdir(pooler->directory) != 0)
		_exit(126);
	log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	(void)execlp("pgbouncer", "pgbouncer", "settings.ini", (char *)NULL);
	(void)execl("/usr/sbin/pgbouncer", "pgbouncer", "settings.ini", (char *)NULL);
	_exit(127);
}

static bool
answers(const struct pooler *pooler)
{
	char conninfo[128];
	PGconn *conn;
	bool fine;

	(void)snprintf(conninfo, sizeof conninfo,
	               "host=127.0.0.1 port=%u user=gateway dbname=postgres connect_timeout=5", pooler->port);
	conn = PQconnectdb(conninfo);
	fine = PQstatus(conn) == CONNECTION_OK;
	PQfinish(conn);
	return fine;
}

void
pooler_start(struct pooler *pooler, const struct postgres_server *server, unsigned connections)
{
	(void)snprintf(pooler->directory, sizeof pooler->directory, "/tmp/idem-test-pooler-XXXXXX");
	assert_non_null(mkdtemp(pooler->directory));
	assert_int_equal(chmod(pooler->directory, 0755), 0);
	postgres_give_directory(pooler->directory);
	pooler->port = free_port();
	write_settings(pooler, server, connections);
	pooler->pid = fork();
	assert_true(pooler->pid >= 0);
	if (pooler->pid == 0)
		become_pooler(pooler);
	for (int i = 0; i < ANSWERS_WITHIN_MS * 1000 / TURN_US; i++) {
		if (answers(pooler))
			return;
		(void)usleep(TURN_US);
	}
	fail_msg("the pooler in %s does not answer", pooler->directory);
}

void
pooler_free(struct pooler *pooler)
{
	char path[96];
	int status;

	assert_int_equal(kill(pooler->pid, SIGKILL), 0);
	assert_int_equal(waitpid(pooler->pid, &status, 0), pooler->pid);
	(void)snprintf(path, sizeof path, "%s/log", pooler->directory);
	(void)unlink(path);
	(void)snprintf(path, sizeof path, "%s/settings.ini", pooler->directory);
	(void)unlink(path);
	(void)rmdir(pooler->directory);
}
