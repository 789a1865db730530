/* The PostgreSQL store, held to what every store promises. */
#include "conformance.h"
#include "postgres_world.h"

#include <stdio.h>

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	return postgres_world_open(fixture->data, loop);
}

static void
advance(struct conformance *fixture, uint64_t ms)
{
	postgres_world_advance(fixture->data, ms);
}

int
main(void)
{
	struct postgres_world world;
	struct conformance fixture = {
		.name = "postgres",
		.unit_ms = 350,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &world,
	};
	int failed;

	postgres_world_make(&world, NULL);
	failed = conformance_run(&fixture);
	if (world.reports > 0) {
		(void)fprintf(stderr, "it complained:\n%s", world.report);
		failed++;
	}
	postgres_world_free(&world);
	return failed;
}
