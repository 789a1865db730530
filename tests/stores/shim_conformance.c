/* The suite over a store that always answers later: what it asks of stores with a socket. */
#include <stdio.h>

#include "conformance.h"
#include "memory_world.h"
#include "shim.h"

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	struct idem_store *inner = memory_world_open(fixture->data, loop);
	struct shim *shim = inner != NULL ? shim_open(inner, loop) : NULL;

	if (shim == NULL)
		return NULL;
	shim->fault = SHIM_LATE;
	shim->fault_to = SIZE_MAX;
	shim->late_ms = 0; /* the next turn of the loop */
	return &shim->base;
}

static void
advance(struct conformance *fixture, uint64_t ms)
{
	memory_world_advance(fixture->data, ms);
}

int
main(void)
{
	struct memory_world world;
	struct conformance fixture = {
		.name = "late memory",
		.unit_ms = 1000,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &world,
	};
	int failed;

	if (!memory_world_make(&world, (size_t)32 << 20)) {
		(void)fprintf(stderr, "the region could not be made\n");
		return 1;
	}
	failed = conformance_run(&fixture);
	memory_world_free(&world);
	return failed;
}
