/* An LMDB store for tests. */
#include "lmdb_world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BEGIN_MS 1000000

bool
lmdb_world_make(struct lmdb_world *world, size_t size, enum idem_lmdb_sync sync)
{
	void *clock = mmap(NULL, sizeof *world->clock_ms, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	                   -1, 0);

	memset(world, 0, sizeof *world);
	if (clock == MAP_FAILED)
		return false;
	world->clock_ms = clock;
	__atomic_store_n(world->clock_ms, BEGIN_MS, __ATOMIC_SEQ_CST);
	world->size = size;
	world->sync = sync;
	(void)snprintf(world->parent, sizeof world->parent, "/tmp/idem-test-XXXXXX");
	if (mkdtemp(world->parent) == NULL)
		return false;
	(void)snprintf(world->path, sizeof world->path, "%s/store", world->parent);
	return true;
}

static void
remove_files(const char *path)
{
	struct dirent *entry;
	DIR *directory = opendir(path);

	while (directory != NULL && (entry = readdir(directory)) != NULL)
		(void)unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory != NULL)
		(void)closedir(directory);
	(void)rmdir(path);
}

void
lmdb_world_free(struct lmdb_world *world)
{
	remove_files(world->path);
	remove_files(world->parent);
	(void)munmap(world->clock_ms, sizeof *world->clock_ms);
}

static uint64_t
now_ms(void *clock_data)
{
	return __atomic_load_n((uint64_t *)clock_data, __ATOMIC_SEQ_CST);
}

static void
hear(void *data, const char *sentence)
{
	struct lmdb_world *world = data;

	size_t len = strlen(world->report);

	(void)snprintf(world->report + len, sizeof world->report - len, "%s\n", sentence);
	world->reports++;
}

struct idem_lmdb_options
lmdb_world_options(struct lmdb_world *world, struct idem_loop *loop)
{
	return (struct idem_lmdb_options){
		.path = world->path,
		.size = world->size,
		.sync = world->sync,
		.loop = loop,
		.report = hear,
		.report_data = world,
		.clock_ms = now_ms,
		.clock_data = world->clock_ms,
	};
}

struct idem_store *
lmdb_world_open(struct lmdb_world *world, struct idem_loop *loop)
{
	struct idem_lmdb_options options = lmdb_world_options(world, loop);
	struct idem_store *store;

	world->why[0] = '\0';
	return idem_lmdb_open(&options, &store, world->why, sizeof world->why) == IDEM_OK ? store : NULL;
}

void
lmdb_world_advance(struct lmdb_world *world, uint64_t ms)
{
	(void)__atomic_add_fetch(world->clock_ms, ms, __ATOMIC_SEQ_CST);
}
