/*
 * Every schedule up to a number of turns, depth first.  A world that was met before
 * with as many turns to go is not entered again; that makes the difference between
 * four turns and a dozen.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choice.h"
#include "explore.h"
#include "world.h"

#define TURNS_MAX 32

/* ---- worlds that were met: a hash table ---- */

struct met {
	uint64_t hash; /* 0: unused */
	unsigned turns_left;
};

static struct met *table;
static size_t slots, used;

static struct met *
slot_of(uint64_t hash)
{
	size_t i = (size_t)hash & (slots - 1);

	while (table[i].hash != 0 && table[i].hash != hash)
		i = (i + 1) & (slots - 1);
	return &table[i];
}

static void
make_table(size_t count)
{
	struct met *old = table;
	size_t old_slots = slots;

	table = calloc(count, sizeof *table);
	if (table == NULL) {
		(void)fprintf(stderr, "out of memory\n");
		exit(2);
	}
	slots = count;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].hash != 0)
			*slot_of(old[i].hash) = old[i];
	free(old);
}

/* False: it was, with no fewer turns to go. */
static bool
is_new(uint64_t hash, unsigned turns_left)
{
	struct met *met;

	if (2 * used >= slots)
		make_table(2 * slots);
	met = slot_of(hash);
	if (met->hash != 0 && met->turns_left >= turns_left)
		return false;
	used += met->hash == 0;
	*met = (struct met){hash, turns_left};
	return true;
}

/* ---- exploring ---- */

static unsigned actor_count, depth;
static struct choices path[TURNS_MAX + 1]; /* the beginning of the world, and each turn */

void
explore_say_where(void)
{
	printf("again: model play %u", actor_count);
	for (unsigned turn = 0; turn <= depth; turn++)
		for (unsigned i = 0; i < path[turn].used; i++)
			printf(" %u", path[turn].taken[i]);
	printf("\n");
}

static void
explore_from_here(unsigned turns_left)
{
	struct world here = world;
	struct choices *choices = &path[++depth];

	choices->count = 0;
	do {
		world = here;
		choices_by_list(choices);
		world_turn();
		if (turns_left > 1 && is_new(world_hash(), turns_left - 1))
			explore_from_here(turns_left - 1);
	} while (choices_next(choices));
	depth--;
}

unsigned long
explore(unsigned actors, unsigned turns)
{
	unsigned long worlds;

	actor_count = actors < ACTORS_MAX ? actors : ACTORS_MAX;
	make_table(1 << 16);
	depth = 0;
	path[0].count = 0;
	do {
		choices_by_list(&path[0]);
		world_begin(actor_count);
		explore_from_here(turns < TURNS_MAX ? turns : TURNS_MAX);
	} while (choices_next(&path[0]));
	worlds = used;
	free(table);
	table = NULL;
	slots = used = 0;
	return worlds;
}
