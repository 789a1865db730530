/* A PostgreSQL store for tests, with a server that goes with it. */
#ifndef IDEM_TEST_POSTGRES_WORLD_H
#define IDEM_TEST_POSTGRES_WORLD_H

#include <idem/idem.h>

#include "postgres_server.h"

struct postgres_world {
	struct postgres_server server;
	char uri[512];       /* of its socket, as the role "gateway"; a test may write another one */
	uint64_t timeout_ms; /* 0: the store's own */
	char why[512];       /* of the last open that failed */
	char report[8192];   /* all of them, a line each */
	unsigned reports;
};

/* more: see postgres_server_start().  Fails the test. */
void postgres_world_make(struct postgres_world *world, const char *const *more);
void postgres_world_free(struct postgres_world *world);

struct idem_postgres_options postgres_world_options(struct postgres_world *world, struct idem_loop *loop);
/* NULL if that failed; world->why tells. */
struct idem_store *postgres_world_open(struct postgres_world *world, struct idem_loop *loop);
/* Time passes for the server as for all: this sleeps. */
void postgres_world_advance(struct postgres_world *world, uint64_t ms);

#endif
