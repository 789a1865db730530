/* A real Redis server for tests. */
#include "redis_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <hiredis/hiredis.h>

#include "../support/test.h"

#define ANSWERS_WITHIN_MS 20000
#define TURN_US 5000
#define STARTS_MAX 5

unsigned
free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	(void)close(fd);
	return ntohs(address.sin_port);
}

/* ---- the process ---- */

static bool
is_sentinel(const struct redis_server *server)
{
	return server->more[0] != NULL && strcmp(server->more[0], "--sentinel") == 0;
}

static void
become_server(const struct redis_server *server)
{
	char port[8];
	const char *words[16 + REDIS_SERVER_WORDS];
	size_t count = 0;
	int log;

	(void)snprintf(port, sizeof port, "%u", server->port);
	words[count++] = "redis-server";
	if (is_sentinel(server)) {
		words[count++] = "sentinel.conf";
	} else {
		words[count++] = "--unixsocket";
		words[count++] = server->socket;
		words[count++] = "--save";
		words[count++] = "";
	}
	words[count++] = "--port";
	words[count++] = server->tls ? "0" : port;
	if (server->tls) {
		words[count++] = "--tls-port";
		words[count++] = port;
	}
	words[count++] = "--bind";
	words[count++] = "127.0.0.1";
	for (size_t i = 0; server->more[i] != NULL; i++)
		words[count++] = server->more[i];
	words[count] = NULL;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	(void)execvp(words[0], (char *const *)words);
	_exit(127);
}

static void
spawn(struct redis_server *server)
{
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid != 0)
		return;
	if (chdir(server->directory) != 0)
		_exit(126);
	become_server(server);
}

static bool
is_gone(struct redis_server *server)
{
	int status;

	if (waitpid(server->pid, &status, WNOHANG) != server->pid)
		return false;
	server->pid = 0;
	return true;
}

/* "PONG", or also an error: of a server that loads, or wants a password.  NULL: it is not there. */
static bool
answers(const struct redis_server *server, bool ready)
{
	const char *answer = redis_server_say(server, "PING");

	return answer != NULL && (!ready || strncmp(answer, "LOADING", 7) != 0);
}

static bool
come_up(struct redis_server *server, bool ready)
{
	spawn(server);
	for (int i = 0; i < ANSWERS_WITHIN_MS * 1000 / TURN_US; i++) {
		if (answers(server, ready))
			return true;
		if (is_gone(server))
			return false;
		(void)usleep(TURN_US);
	}
	fail_msg("the Redis server in %s does not answer", server->directory);
	return false;
}

/* A Sentinel writes what it learns into its file. */
static void
make_sentinel_file(const struct redis_server *server)
{
	char path[96];
	int fd;

	(void)snprintf(path, sizeof path, "%s/sentinel.conf", server->directory);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
}

void
redis_server_start(struct redis_server *server, const char *const *more)
{
	bool up = false;
	size_t count = 0;

	for (; more != NULL && more[count] != NULL; count++) {
		assert_true(count + 1 < REDIS_SERVER_WORDS);
		server->more[count] = more[count];
	}
	server->more[count] = NULL;
	(void)snprintf(server->directory, sizeof server->directory, "/tmp/idem-test-redis-XXXXXX");
	assert_non_null(mkdtemp(server->directory));
	if (is_sentinel(server))
		make_sentinel_file(server);
	else
		(void)snprintf(server->socket, sizeof server->socket, "%s/socket", server->directory);
	/* Somebody else may take the port first. */
	for (int i = 0; i < STARTS_MAX && !up; i++) {
		server->port = free_port();
		up = come_up(server, true);
	}
	assert_true(up);
}

void
redis_server_start_again(struct redis_server *server)
{
	assert_true(come_up(server, true));
}

void
redis_server_start_again_unready(struct redis_server *server)
{
	assert_true(come_up(server, false));
}

void
redis_server_signal(const struct redis_server *server, int signal)
{
	assert_int_equal(kill(server->pid, signal), 0);
}

void
redis_server_end(struct redis_server *server, int signal)
{
	int status;

	if (server->pid == 0)
		return;
	redis_server_signal(server, signal);
	assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
	server->pid = 0;
}

static void
remove_directory(const char *path)
{
	struct dirent *entry;
	DIR *directory = opendir(path);
	char inner[352];

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		(void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
		if (unlinkat(dirfd(directory), entry->d_name, 0) != 0 && errno == EISDIR)
			remove_directory(inner);
	}
	if (directory != NULL)
		(void)closedir(directory);
	(void)rmdir(path);
}

void
redis_server_free(struct redis_server *server)
{
	redis_server_end(server, SIGKILL);
	remove_directory(server->directory);
}

/* ---- what we say to it ---- */

static char answer_text[1 << 16];

static void
append(const char *text)
{
	size_t len = strlen(answer_text);

	(void)snprintf(answer_text + len, sizeof answer_text - len, "%s%s", len > 0 ? " " : "", text);
}

static void
append_reply(const redisReply *reply)
{
	char number[24];

	switch (reply->type) {
	case REDIS_REPLY_INTEGER:
		(void)snprintf(number, sizeof number, "%lld", reply->integer);
		append(number);
		break;
	case REDIS_REPLY_ARRAY:
		for (size_t i = 0; i < reply->elements; i++)
			append_reply(reply->element[i]);
		break;
	case REDIS_REPLY_NIL:
		append("(nil)");
		break;
	default:
		append(reply->str);
		break;
	}
}

static const char *
say(redisContext *context, const struct redis_server *server, const char *command)
{
	redisReply *reply;

	if (server->password != NULL) {
		reply = redisCommand(context, "AUTH %s", server->password);
		if (reply == NULL)
			return NULL;
		freeReplyObject(reply);
	}
	reply = redisCommand(context, command);
	if (reply == NULL)
		return NULL;
	answer_text[0] = '\0';
	append_reply(reply);
	freeReplyObject(reply);
	return answer_text;
}

const char *
redis_server_say(const struct redis_server *server, const char *format, ...)
{
	static const struct timeval patience = {5, 0};
	redisContext *context;
	const char *answer = NULL;
	char command[1024];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(command, sizeof command, format, arguments);
	va_end(arguments);
	context = server->socket[0] != '\0'
	                  ? redisConnectUnixWithTimeout(server->socket, patience)
	                  : redisConnectWithTimeout("127.0.0.1", (int)server->port, patience);
	if (context != NULL && context->err == 0) {
		(void)redisSetTimeout(context, patience);
		answer = say(context, server, command);
	}
	if (context != NULL)
		redisFree(context);
	return answer;
}

void
redis_server_await(const struct redis_server *server, const char *command, const char *text)
{
	const char *answer = NULL;

	for (int i = 0; i < ANSWERS_WITHIN_MS * 1000 / TURN_US; i++) {
		answer = redis_server_say(server, "%s", command);
		if (answer != NULL && strstr(answer, text) != NULL)
			return;
		(void)usleep(TURN_US);
	}
	fail_msg("%s was never answered with %s, but with %s", command, text,
	         answer != NULL ? answer : "nothing");
}
