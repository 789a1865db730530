/* A Redis store for tests, with a server that goes with it. */
#ifndef IDEM_TEST_REDIS_WORLD_H
#define IDEM_TEST_REDIS_WORLD_H

#include <idem/idem.h>

#include "redis_server.h"

struct redis_world {
	struct redis_server server;
	char uri[512];       /* of its socket; a test may write another one */
	uint64_t timeout_ms; /* 0: the store's own */
	char why[512];       /* of the last open that failed */
	char report[8192];   /* all of them, a line each */
	unsigned reports;
};

/* more: see redis_server_start(). Fails the test. */
void redis_world_make(struct redis_world *world, const char *const *more);
void redis_world_free(struct redis_world *world);

struct idem_redis_options redis_world_options(struct redis_world *world, struct idem_loop *loop);
/* NULL if that failed; world->why tells. */
struct idem_store *redis_world_open(struct redis_world *world, struct idem_loop *loop);
/* Time passes for the server as for all: this sleeps. */
void redis_world_advance(struct redis_world *world, uint64_t ms);

#endif
