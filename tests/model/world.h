/* The world of the model: one cell, time, actors, and what must never happen to them. */
#ifndef MODEL_WORLD_H
#define MODEL_WORLD_H

#include <idem/step.h>

#define ACTORS_MAX 4
#define LEASE_MS 100

struct actor {
	enum { IDLE, CLAIMING, EXECUTING, SETTLING } at;
	struct idem_op op;
	struct idem_io io;
	uint64_t op_since_ms;
	char request; /* the fingerprint: 'a' mostly, 'b' sometimes */
	struct idem_tag owner;
	uint32_t attempt;
	unsigned life; /* of the key, when it was claimed */
	bool executed;
	unsigned response;
};

struct world {
	uint64_t now_ms;
	struct idem_cell cell;
	uint64_t stamp_ms;
	unsigned payload; /* of the cell: a response */
	struct idem_policy policy;
	unsigned actor_count;
	struct actor actors[ACTORS_MAX];
	unsigned tags, responses; /* how many there have been */

	/* What the promises are about. */
	unsigned life;             /* how often the key has become new */
	unsigned executions;       /* requests that took effect and were not proven not to have */
	uint32_t last_attempt;     /* of the claims that were won */
	unsigned acknowledged;     /* the response whose completion was acknowledged; 0: none */
	uint64_t remembered_until; /* the cell must not be forgotten before */
};

/* There is one; it is copied to come back to it. */
extern struct world world;

extern bool drop_tags; /* a planted fault: the store ignores tags */
extern bool tell;      /* print what happens */

/* A promise was broken.  Does not return. */
void broke(const char *what) __attribute__((noreturn));

/* A new world, with a policy that is picked. */
void world_begin(unsigned actors);

/* One thing happens: time passes, or an actor does something. */
void world_turn(void);

/* The same for two worlds in which the same can happen from now on. */
uint64_t world_hash(void);

#endif
