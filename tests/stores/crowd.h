/*
 * Many requests at once through one handle: each claims a key of its own, and completes it.  What was
 * acknowledged is noted, key by key, so that others can be held to it.
 */
#ifndef IDEM_TEST_CROWD_H
#define IDEM_TEST_CROWD_H

#include "actor.h"

#define CROWD_KEYS 4096
#define CROWD_SIZE 24

/* What a key's owner was told last. */
enum note {
	NOTE_NOTHING = 0, /* nothing was acknowledged */
	NOTE_UNKNOWN,     /* the claim is in doubt */
	NOTE_REFUSED,     /* the claim was refused: nothing was written */
	NOTE_CLAIMED,
	NOTE_CLAIMED_UNKNOWN, /* claimed, and the completion is in doubt */
	NOTE_COMPLETED,
};

struct crowd {
	struct actor actor;
	uint64_t keys;    /* so many of CROWD_KEYS were begun */
	uint64_t stop_at; /* begin no more than these */
	unsigned refused; /* answers with an error that says: nothing was written */
	unsigned unknown; /* answers IDEM_E_INDOUBT */
	uint8_t notes[CROWD_KEYS];
};

/* Until every key up to stop_at (at most CROWD_KEYS) has had its answers.  False: somebody got none. */
bool crowd_run(struct crowd *crowd, uint64_t keys);

/*
 * What the store knows of a key, as a note; NOTE_UNKNOWN: a wrong response, or an error.  A key of which it
 * knows nothing is in doubt afterwards.
 */
enum note crowd_ask(struct actor *actor, uint64_t key);

#endif
