/* The Redis store, held to what every store promises. */
#include "conformance.h"
#include "redis_world.h"

#include <stdio.h>

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	return redis_world_open(fixture->data, loop);
}

static void
advance(struct conformance *fixture, uint64_t ms)
{
	redis_world_advance(fixture->data, ms);
}

int
main(void)
{
	struct redis_world world;
	struct conformance fixture = {
		.name = "redis",
		.unit_ms = 350,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &world,
	};
	int failed;

	redis_world_make(&world, NULL);
	failed = conformance_run(&fixture);
	if (world.reports > 0) {
		(void)fprintf(stderr, "it complained:\n%s", world.report);
		failed++;
	}
	redis_world_free(&world);
	return failed;
}
