/* A real PgBouncer in transaction mode, in front of a PostgreSQL server; it ends with the test. */
#ifndef IDEM_TEST_POOLER_H
#define IDEM_TEST_POOLER_H

#include "postgres_server.h"

struct pooler {
	char directory[64]; /* made and removed with it */
	unsigned port;      /* on 127.0.0.1 */
	pid_t pid;
};

/* With so many connections to the server.  Fails the test. */
void pooler_start(struct pooler *pooler, const struct postgres_server *server, unsigned connections);
void pooler_free(struct pooler *pooler);

#endif
