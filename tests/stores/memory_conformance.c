/* The memory store, held to what every store promises. */
#include "conformance.h"
#include "memory_world.h"

#include <stdio.h>

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	return memory_world_open(fixture->data, loop);
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
		.name = "memory",
		.unit_ms = 1000,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &world,
	};
	char fault[128] = "";
	struct idem_store *store;
	int failed;

	if (!memory_world_make(&world, (size_t)32 << 20)) {
		(void)fprintf(stderr, "the region could not be made\n");
		return 1;
	}
	failed = conformance_run(&fixture);
	store = memory_world_open(&world, NULL);
	if (store == NULL || idem_memory_verify(store, fault, sizeof fault) != IDEM_OK) {
		(void)fprintf(stderr, "after all that, the region is damaged: %s\n", fault);
		failed++;
	}
	idem_store_close(store);
	memory_world_free(&world);
	return failed;
}
