/*
 * Many users claim the same keys at once.
 *
 * Users meet before each key, so that they claim it at the same moment; whoever won completes it.
 * All note what they saw, in shared memory: users may be threads or processes.
 */
#ifndef IDEM_TEST_RACE_H
#define IDEM_TEST_RACE_H

#include "actor.h"

struct race;

struct race *race_make(uint64_t first_key, size_t keys, uint32_t users, uint64_t lease_ms);
void race_free(struct race *race);

/* One user's part, which all must play; false if the store failed or gave a verdict that cannot be. */
bool race_run(struct race *race, struct actor *actor);

/*
 * All users' parts, each in a thread with a handle of its own; open is called there, and gives NULL if it
 * failed. False: as race_run().
 */
bool race_in_threads(struct race *race, struct idem_store *(*open)(void *data, struct idem_loop *loop),
                     void *data);

/* How many keys were not executed exactly once, or were answered with something else than was recorded. */
size_t race_wrong(const struct race *race);

#endif
