/* A real PostgreSQL server for tests. */
#include "postgres_server.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "../support/test.h"
#include "redis_server.h"

#define ANSWERS_WITHIN_MS 30000
#define TURN_US 10000
#define STARTS_MAX 5
#define ROOM_BYTES ((uint64_t)1 << 30)
#define WORDS_MAX 64

/* ---- who, and where ---- */

static const struct passwd *
user(void)
{
	const struct passwd *entry;

	if (geteuid() != 0)
		return NULL;
	entry = getpwnam("postgres");
	if (entry == NULL)
		entry = getpwnam("nobody");
	return entry;
}

void
postgres_become_user(void)
{
	const struct passwd *entry = user();

	if (entry != NULL &&
	    (setgroups(0, NULL) != 0 || setgid(entry->pw_gid) != 0 || setuid(entry->pw_uid) != 0))
		_exit(126);
}

void
postgres_give_directory(const char *path)
{
	const struct passwd *entry = user();

	if (entry != NULL)
		assert_int_equal(chown(path, entry->pw_uid, entry->pw_gid), 0);
}

/* Debian has a directory for each version, and none of them in PATH. */
const char *
postgres_programs(void)
{
	static char directory[256];
	glob_t found;

	if (directory[0] != '\0')
		return directory;
	if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0) {
		(void)snprintf(directory, sizeof directory, "%s", found.gl_pathv[found.gl_pathc - 1]);
		globfree(&found);
		*(strrchr(directory, '/') + 1) = '\0';
	}
	return directory;
}

/* ---- processes ---- */

static pid_t
spawn(const char *directory, const char *program, const char *const *words, bool as_user)
{
	char path[384];
	int log;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child != 0)
		return child;
	if (as_user)
		postgres_become_user();
	(void)prctl(PR_SET_PDEATHSIG, SIGINT); /* it takes its children with it */
	(void)snprintf(path, sizeof path, "%s%s", postgres_programs(), program);
	if (chdir(directory) != 0)
		_exit(126);
	log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	(void)execvp(postgres_programs()[0] != '\0' ? path : program, (char *const *)words);
	_exit(127);
}

static bool
run(const char *directory, const char *program, const char *const *words, bool as_user)
{
	pid_t child = spawn(directory, program, words, as_user);
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void
begin(struct postgres_server *server)
{
	static const char *const settings[] = {
		"listen_addresses=127.0.0.1",
		/* In our directory, and with the fewest processes and bytes. */
		"unix_socket_directories=..",
		"max_connections=60",
		"shared_buffers=16MB",
		"max_wal_senders=8",
		"autovacuum_naptime=1s",
		"log_line_prefix=%m [%p] ",
	};
	char data[96], port[16];
	const char *words[WORDS_MAX] = {"postgres", "-D", data, "-p", port};
	size_t count = 5;

	(void)snprintf(data, sizeof data, "%s/data", server->directory);
	(void)snprintf(port, sizeof port, "%u", server->port);
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		words[count++] = "-c";
		words[count++] = settings[i];
	}
	for (size_t i = 0; server->more != NULL && server->more[i] != NULL; i++) {
		assert_true(count + 3 < WORDS_MAX);
		words[count++] = "-c";
		words[count++] = server->more[i];
	}
	words[count] = NULL;
	server->pid = spawn(server->directory, "postgres", words, true);
}

static bool
is_gone(struct postgres_server *server)
{
	int status;

	if (waitpid(server->pid, &status, WNOHANG) != server->pid)
		return false;
	server->pid = 0;
	return true;
}

static bool
come_up(struct postgres_server *server)
{
	begin(server);
	for (int i = 0; i < ANSWERS_WITHIN_MS * 1000 / TURN_US; i++) {
		const char *answer = postgres_server_say(server, "SELECT 1");

		if (answer != NULL && strcmp(answer, "1") == 0)
			return true;
		if (is_gone(server))
			return false;
		(void)usleep(TURN_US);
	}
	fail_msg("the PostgreSQL server in %s does not answer", server->directory);
	return false;
}

static void
make_database(const struct postgres_server *server)
{
	char data[96];
	const char *const words[] = {"initdb",    "-D",         data,   "-A",       "trust", "-U", "owner",
	                             "--no-sync", "--encoding", "UTF8", "--locale", "C",     NULL};

	(void)snprintf(data, sizeof data, "%s/data", server->directory);
	assert_true(run(server->directory, "initdb", words, true));
}

bool
postgres_server_make_schema(const struct postgres_server *server, const char *schema, const char *gateway)
{
	char name[80], role[80], host[80], port[16];
	const char *words[24] = {"psql", "-X", "-q",    "-v", "ON_ERROR_STOP=1",
	                         "-v",   name, "-h",    host, "-p",
	                         port,   "-U", "owner", "-f", IDEM_POSTGRES_SCHEMA};
	size_t count = 15;

	(void)snprintf(name, sizeof name, "schema=%s", schema);
	(void)snprintf(role, sizeof role, "gateway=%s", gateway != NULL ? gateway : "");
	(void)snprintf(host, sizeof host, "%s", server->directory);
	(void)snprintf(port, sizeof port, "%u", server->port);
	if (gateway != NULL) {
		words[count++] = "-v";
		words[count++] = role;
	}
	words[count++] = "postgres";
	words[count] = NULL;
	return run(server->directory, "psql", words, false);
}

/* In memory, if there is room: each commit waits for the disk, and nothing here is to outlive the machine. */
static const char *
place(void)
{
	struct statvfs room;

	if (statvfs("/dev/shm", &room) == 0 && (uint64_t)room.f_bavail * room.f_frsize >= ROOM_BYTES)
		return "/dev/shm";
	return "/tmp";
}

void
postgres_server_start(struct postgres_server *server, const char *const *more)
{
	bool up = false;

	*server = (struct postgres_server){.more = more};
	(void)snprintf(server->directory, sizeof server->directory, "%s/idem-test-postgres-XXXXXX", place());
	assert_non_null(mkdtemp(server->directory));
	assert_int_equal(chmod(server->directory, 0755), 0);
	postgres_give_directory(server->directory);
	make_database(server);
	/* Somebody else may take the port first. */
	for (int i = 0; i < STARTS_MAX && !up; i++) {
		server->port = free_port();
		up = come_up(server);
	}
	assert_true(up);
	assert_string_equal(postgres_server_say(server, "CREATE ROLE gateway LOGIN"), "");
	assert_true(postgres_server_make_schema(server, "idem", "gateway"));
}

void
postgres_server_start_again(struct postgres_server *server)
{
	assert_true(come_up(server));
}

void
postgres_server_end(struct postgres_server *server, int signal)
{
	int status;

	if (server->pid == 0)
		return;
	assert_int_equal(kill(server->pid, signal), 0);
	assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
	server->pid = 0;
}

void
postgres_server_signal_all(const struct postgres_server *server, int signal)
{
	char path[64], line[4096];
	FILE *children;

	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)server->pid, (int)server->pid);
	children = fopen(path, "re");
	assert_non_null(children);
	if (fgets(line, sizeof line, children) != NULL) {
		char *at = line, *end;
		long pid;

		for (; (pid = strtol(at, &end, 10)) > 0; at = end)
			(void)kill((pid_t)pid, signal);
	}
	(void)fclose(children);
	assert_int_equal(kill(server->pid, signal), 0);
}

void
postgres_server_free(struct postgres_server *server)
{
	const char *const words[] = {"rm", "-rf", server->directory, NULL};
	pid_t child;

	postgres_server_end(server, SIGQUIT);
	child = fork();
	if (child == 0) {
		(void)execvp(words[0], (char *const *)words);
		_exit(127);
	}
	if (child > 0)
		(void)waitpid(child, NULL, 0);
}

/* ---- what we say to it ---- */

const char *
postgres_server_say(const struct postgres_server *server, const char *format, ...)
{
	static char answer[1 << 16];
	char statement[4096], port[16];
	const char *const names[] = {"host", "port", "user", "dbname", "connect_timeout", NULL};
	const char *const values[] = {server->directory, port, "owner", "postgres", "5", NULL};
	PGconn *conn;
	PGresult *result;
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(statement, sizeof statement, format, arguments);
	va_end(arguments);
	(void)snprintf(port, sizeof port, "%u", server->port);
	conn = PQconnectdbParams(names, values, 0);
	if (PQstatus(conn) != CONNECTION_OK) {
		PQfinish(conn);
		return NULL;
	}
	result = PQexec(conn, statement);
	if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK)
		(void)snprintf(answer, sizeof answer, "%s",
		               PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
	else
		(void)snprintf(answer, sizeof answer, "%s", PQresultErrorMessage(result));
	PQclear(result);
	PQfinish(conn);
	return answer;
}

void
postgres_server_await(const struct postgres_server *server, const char *statement, const char *text)
{
	const char *answer = NULL;

	for (int i = 0; i < ANSWERS_WITHIN_MS * 1000 / TURN_US; i++) {
		answer = postgres_server_say(server, "%s", statement);
		if (answer != NULL && strcmp(answer, text) == 0)
			return;
		(void)usleep(TURN_US);
	}
	fail_msg("%s was never answered with %s, but with %s", statement, text,
	         answer != NULL ? answer : "nothing");
}
