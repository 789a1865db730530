/* A memory store for tests: a shared region, and a clock that moves when a test says so. */
#ifndef IDEM_TEST_MEMORY_WORLD_H
#define IDEM_TEST_MEMORY_WORLD_H

#include <idem/idem.h>

struct memory_world {
	void *region; /* mapped shared: children see it too */
	size_t len;
	uint64_t *clock_ms; /* shared as well */
};

/* Maps and formats; false if that failed. */
bool memory_world_make(struct memory_world *world, size_t len);
void memory_world_free(struct memory_world *world);
/* An empty store again, at the time where it began. */
bool memory_world_format(struct memory_world *world);

/* Another handle, or NULL. */
struct idem_store *memory_world_open(struct memory_world *world, struct idem_loop *loop);
void memory_world_advance(struct memory_world *world, uint64_t ms);

#endif
