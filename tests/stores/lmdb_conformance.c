/* The LMDB store, held to what every store promises, with each sync. */
#include "conformance.h"
#include "lmdb_world.h"

#include <stdio.h>

static struct idem_store *
open_handle(struct conformance *fixture, struct idem_loop *loop)
{
	return lmdb_world_open(fixture->data, loop);
}

static void
advance(struct conformance *fixture, uint64_t ms)
{
	lmdb_world_advance(fixture->data, ms);
}

static int
verify(struct lmdb_world *world)
{
	struct idem_loop *loop;
	struct idem_store *store;
	char fault[512] = "";
	int failed;

	if (idem_poll_loop_new(&loop) != IDEM_OK)
		return 1;
	store = lmdb_world_open(world, loop);
	failed = store == NULL || idem_lmdb_verify(store, fault, sizeof fault) != IDEM_OK;
	if (failed)
		(void)fprintf(stderr, "after all that, the store is damaged: %s%s\n", fault, world->why);
	idem_store_close(store);
	idem_poll_loop_free(loop);
	return failed;
}

static int
run(const char *name, enum idem_lmdb_sync sync)
{
	struct lmdb_world world;
	struct conformance fixture = {
		.name = name,
		.unit_ms = 1000,
		.payload_max = (size_t)5 << 20,
		.open = open_handle,
		.advance = advance,
		.data = &world,
	};
	int failed;

	if (!lmdb_world_make(&world, (size_t)64 << 20, sync)) {
		(void)fprintf(stderr, "no directory could be made\n");
		return 1;
	}
	failed = conformance_run(&fixture);
	failed += verify(&world);
	lmdb_world_free(&world);
	return failed;
}

int
main(void)
{
	int failed = run("lmdb, sync=full", IDEM_LMDB_SYNC_FULL);

	failed += run("lmdb, sync=completion", IDEM_LMDB_SYNC_COMPLETION);
	failed += run("lmdb, sync=process", IDEM_LMDB_SYNC_PROCESS);
	return failed;
}
