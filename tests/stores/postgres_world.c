/* A PostgreSQL store for tests. */
#include "postgres_world.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void
postgres_world_make(struct postgres_world *world, const char *const *more)
{
	memset(world, 0, sizeof *world);
	postgres_server_start(&world->server, more);
	(void)snprintf(world->uri, sizeof world->uri, "postgres://gateway@/postgres?host=%s&port=%u",
	               world->server.directory, world->server.port);
}

void
postgres_world_free(struct postgres_world *world)
{
	postgres_server_free(&world->server);
}

static void
hear(void *data, const char *sentence)
{
	struct postgres_world *world = data;
	size_t len = strlen(world->report);

	(void)snprintf(world->report + len, sizeof world->report - len, "%s\n", sentence);
	world->reports++;
}

struct idem_postgres_options
postgres_world_options(struct postgres_world *world, struct idem_loop *loop)
{
	return (struct idem_postgres_options){
		.uri = world->uri,
		.loop = loop,
		.timeout_ms = world->timeout_ms,
		.report = hear,
		.report_data = world,
	};
}

struct idem_store *
postgres_world_open(struct postgres_world *world, struct idem_loop *loop)
{
	struct idem_postgres_options options = postgres_world_options(world, loop);
	struct idem_store *store = NULL;

	world->why[0] = '\0';
	return idem_postgres_open(&options, &store, world->why, sizeof world->why) == IDEM_OK ? store : NULL;
}

void
postgres_world_advance(struct postgres_world *world, uint64_t ms)
{
	/* By a clock of its own: what has just ended here may not have there. */
	uint64_t there = ms + 5;
	struct timespec rest = {(time_t)(there / 1000), (long)(there % 1000) * 1000000};

	(void)world;
	while (nanosleep(&rest, &rest) != 0)
		;
}
