/* A real Redis server for tests: a process of our own in a directory of its own, which ends with the test. */
#ifndef IDEM_TEST_REDIS_SERVER_H
#define IDEM_TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define REDIS_SERVER_WORDS 32

struct redis_server {
	char directory[64]; /* made and removed with it */
	char socket[96];    /* "" of a Sentinel */
	unsigned port;      /* on 127.0.0.1 */
	const char *more[REDIS_SERVER_WORDS];
	char *password; /* what redis_server_say() logs in with; NULL: nothing */
	bool tls;       /* its port speaks TLS alone */
	pid_t pid;      /* 0: it does not run */
};

/*
 * Starts one, and waits until it answers.  more: further words of its command line, up to NULL; its texts are
 * kept by the caller.  Without any it keeps nothing on the disk.  Fails the test.
 */
void redis_server_start(struct redis_server *server, const char *const *more);
/* The same once more, on the same port, with what it kept. */
void redis_server_start_again(struct redis_server *server);
/* Like that, but returns as soon as it accepts connections, though it loads its data still. */
void redis_server_start_again_unready(struct redis_server *server);
/* By a signal, and waits for its end. */
void redis_server_end(struct redis_server *server, int signal);
void redis_server_signal(const struct redis_server *server, int signal);
/* Ends it, and removes its directory. */
void redis_server_free(struct redis_server *server);

/* A port that nobody listens on. */
unsigned free_port(void);

/* One command, with printf's format; the answer as text, in a buffer that the next call takes.  An error is
 * its text. */
const char *redis_server_say(const struct redis_server *server, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Until the answer contains that; fails the test after some time. */
void redis_server_await(const struct redis_server *server, const char *command, const char *text);

#endif
