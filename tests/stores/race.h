/*
 * Many users claim the same keys at once.
 *
 * Every user claims every key, completes those that it won, and notes
 * what it saw.  The notes are in shared memory: users may be threads or processes.
 */
#ifndef IDEM_TEST_RACE_H
#define IDEM_TEST_RACE_H

#include "actor.h"

struct race;

struct race *race_make(uint64_t first_key, size_t keys, uint64_t lease_ms);
void race_free(struct race *race);

/* One user's part; false if the store failed or gave a verdict that cannot be. */
bool race_run(struct race *race, struct actor *actor);

/* How many keys were not executed exactly once, or were answered with something else than was recorded. */
size_t race_wrong(const struct race *race);

#endif
