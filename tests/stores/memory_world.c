/* A memory store for tests. */
#include "memory_world.h"

#include <string.h>
#include <sys/mman.h>

#define BEGIN_MS 1000000

bool
memory_world_format(struct memory_world *world)
{
	__atomic_store_n(world->clock_ms, BEGIN_MS, __ATOMIC_SEQ_CST);
	return idem_memory_format(world->region, world->len, (struct idem_bytes){"test", 4}) == IDEM_OK;
}

static void *
map_shared(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

bool
memory_world_make(struct memory_world *world, size_t len)
{
	world->len = len;
	world->region = map_shared(len);
	world->clock_ms = map_shared(sizeof *world->clock_ms);
	return world->region != MAP_FAILED && (void *)world->clock_ms != MAP_FAILED &&
	       memory_world_format(world);
}

void
memory_world_free(struct memory_world *world)
{
	(void)munmap(world->region, world->len);
	(void)munmap(world->clock_ms, sizeof *world->clock_ms);
}

static uint64_t
now_ms(void *clock_data)
{
	return __atomic_load_n((uint64_t *)clock_data, __ATOMIC_SEQ_CST);
}

struct idem_store *
memory_world_open(struct memory_world *world, struct idem_loop *loop)
{
	struct idem_memory_options options = {
		.region = world->region,
		.len = world->len,
		.loop = loop,
		.clock_ms = now_ms,
		.clock_data = world->clock_ms,
	};
	struct idem_store *store = NULL;

	return idem_memory_open(&options, &store) == IDEM_OK ? store : NULL;
}

void
memory_world_advance(struct memory_world *world, uint64_t ms)
{
	(void)__atomic_add_fetch(world->clock_ms, ms, __ATOMIC_SEQ_CST);
}
