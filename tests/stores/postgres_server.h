/* A real PostgreSQL server for tests: processes of our own in a directory of its own, which end with the
 * test. */
#ifndef IDEM_TEST_POSTGRES_SERVER_H
#define IDEM_TEST_POSTGRES_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct postgres_server {
	char directory[64]; /* made and removed with it; the socket is there too */
	unsigned port;      /* on 127.0.0.1, and in the socket's name */
	const char *const *more;
	pid_t pid; /* 0: it does not run */
};

/*
 * Makes a database and starts its server, with the store's schema "idem", the role "owner" to whom it
 * belongs, and the role "gateway" who may use it; nobody needs a password.  more: further settings
 * ("name=value"), up to NULL, or NULL; kept by the caller.  Fails the test.
 */
void postgres_server_start(struct postgres_server *server, const char *const *more);
/* The same once more, on the same port, with what it kept. */
void postgres_server_start_again(struct postgres_server *server);
/* The process that begins all others: by a signal, and waits for its end. */
void postgres_server_end(struct postgres_server *server, int signal);
/* Ends it, and removes its directory. */
void postgres_server_free(struct postgres_server *server);
/* To all its processes. */
void postgres_server_signal_all(const struct postgres_server *server, int signal);

/* Runs schema.sql with psql; gateway may be NULL.  False: it failed. */
bool postgres_server_make_schema(const struct postgres_server *server, const char *schema,
                                 const char *gateway);

/* One statement as the superuser, with printf's format; the first field of the first row as text ("" for
 * none), in a buffer that the next call takes.  An error is its text; NULL: no connection. */
const char *postgres_server_say(const struct postgres_server *server, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Until the answer is that; fails the test after some time. */
void postgres_server_await(const struct postgres_server *server, const char *statement, const char *answer);

/* For a program of PostgreSQL's, which takes no orders from root: becomes another user, if this is root. */
void postgres_become_user(void);
/* Owned by that user. */
void postgres_give_directory(const char *path);
/* Where the programs are that are not in PATH. */
const char *postgres_programs(void);

#endif
