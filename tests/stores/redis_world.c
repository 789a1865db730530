/* A Redis store for tests. */
#include "redis_world.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void
redis_world_make(struct redis_world *world, const char *const *more)
{
	memset(world, 0, sizeof *world);
	redis_server_start(&world->server, more);
	(void)snprintf(world->uri, sizeof world->uri, "unix:%s", world->server.socket);
}

void
redis_world_free(struct redis_world *world)
{
	redis_server_free(&world->server);
}

static void
hear(void *data, const char *sentence)
{
	struct redis_world *world = data;
	size_t len = strlen(world->report);

	(void)snprintf(world->report + len, sizeof world->report - len, "%s\n", sentence);
	world->reports++;
}

struct idem_redis_options
redis_world_options(struct redis_world *world, struct idem_loop *loop)
{
	return (struct idem_redis_options){
		.uri = world->uri,
		.loop = loop,
		.timeout_ms = world->timeout_ms,
		.report = hear,
		.report_data = world,
	};
}

struct idem_store *
redis_world_open(struct redis_world *world, struct idem_loop *loop)
{
	struct idem_redis_options options = redis_world_options(world, loop);
	struct idem_store *store = NULL;

	world->why[0] = '\0';
	return idem_redis_open(&options, &store, world->why, sizeof world->why) == IDEM_OK ? store : NULL;
}

void
redis_world_advance(struct redis_world *world, uint64_t ms)
{
	/* The server counts whole milliseconds, by a clock of its own: what has just ended here may not have
	 * there. */
	uint64_t there = ms + 5;
	struct timespec rest = {(time_t)(there / 1000), (long)(there % 1000) * 1000000};

	(void)world;
	while (nanosleep(&rest, &rest) != 0)
		;
}
