/* The PostgreSQL store behind a pooler that hands out a connection for each transaction, held to what every
 * store promises. */
#include "conformance.h"
#include "pooler.h"
#include "postgres_world.h"

#include <stdio.h>
#include <string.h>

struct pooled_world {
	struct postgres_world world;
	struct pooler pooler;
};

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	struct pooled_world *pooled = fixture->data;

	return postgres_world_open(&pooled->world, loop);
}

static void
advance(struct conformance *fixture, uint64_t ms)
{
	struct pooled_world *pooled = fixture->data;

	postgres_world_advance(&pooled->world, ms);
}

/* Of what was never locked for a session, and of what it said. */
static int
complain(struct pooled_world *pooled)
{
	static const char expected[] = "a pooler stands between";
	const char *locks = postgres_server_say(&pooled->world.server,
	                                        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
	int failed = 0;

	if (locks == NULL || strcmp(locks, "0") != 0) {
		(void)fprintf(stderr, "advisory locks: %s\n", locks != NULL ? locks : "no answer");
		failed++;
	}
	for (char *line = strtok(pooled->world.report, "\n"); line != NULL; line = strtok(NULL, "\n"))
		if (strstr(line, expected) == NULL) {
			(void)fprintf(stderr, "it complained: %s\n", line);
			failed++;
		}
	return failed;
}

int
main(void)
{
	struct pooled_world pooled;
	struct conformance fixture = {
		.name = "pooled postgres",
		.unit_ms = 200,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &pooled,
	};
	int failed;

	postgres_world_make(&pooled.world, NULL);
	pooler_start(&pooled.pooler, &pooled.world.server, 3);
	(void)snprintf(pooled.world.uri, sizeof pooled.world.uri, "postgres://gateway@127.0.0.1:%u/postgres",
	               pooled.pooler.port);
	failed = conformance_run(&fixture);
	if (pooled.world.reports == 0) {
		(void)fprintf(stderr, "it did not notice the pooler\n");
		failed++;
	}
	failed += complain(&pooled);
	pooler_free(&pooled.pooler);
	postgres_world_free(&pooled.world);
	return failed;
}
