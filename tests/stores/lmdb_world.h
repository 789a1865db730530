/* An LMDB store for tests: a directory that goes with it, and a clock that all its processes share. */
#ifndef IDEM_TEST_LMDB_WORLD_H
#define IDEM_TEST_LMDB_WORLD_H

#include <idem/idem.h>

struct lmdb_world {
	char parent[64]; /* of our own, made and removed with the world */
	char path[96];   /* the store's */
	size_t size;
	enum idem_lmdb_sync sync;
	uint64_t *clock_ms; /* shared with all children */
	char why[512];      /* of the last open that failed */
	char report[8192];  /* all of them, a line each */
	unsigned reports;
};

bool lmdb_world_make(struct lmdb_world *world, size_t size, enum idem_lmdb_sync sync);
void lmdb_world_free(struct lmdb_world *world);

struct idem_lmdb_options lmdb_world_options(struct lmdb_world *world, struct idem_loop *loop);
/* NULL if that failed; world->why tells. */
struct idem_store *lmdb_world_open(struct lmdb_world *world, struct idem_loop *loop);
void lmdb_world_advance(struct lmdb_world *world, uint64_t ms);

#endif
