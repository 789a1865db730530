/*
 * The protocol in a model: actors that claim, execute, settle, crash, sleep and lose
 * replies, over a store of one cell, in virtual time.
 *
 *   model                         random schedules, and all short ones
 *   model random FIRST COUNT      the schedules of the seeds FIRST, FIRST+1, ...
 *   model all ACTORS TURNS        every schedule of so many actors and turns
 *   model play ACTORS CHOICE ...  one schedule, telling what happens
 *
 * With "find" before these words it looks for a schedule that breaks a promise
 * (because a fault was planted), and finding none is its failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choice.h"
#include "explore.h"
#include "world.h"

#define RANDOM_TURNS 60

static bool find;
static unsigned seed; /* of the random schedule; 0: it is not random */

void
broke(const char *what)
{
	printf("broken: %s\n", what);
	if (tell)
		; /* it has been told */
	else if (seed != 0)
		printf("again: model random %u 1\n", seed);
	else
		explore_say_where();
	exit(find ? 0 : 1);
}

static void
run_random(unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		seed = first + i;
		choices_by_seed(seed);
		world_begin(ACTORS_MAX);
		for (int turn = 0; turn < RANDOM_TURNS; turn++)
			world_turn();
	}
	seed = 0;
	printf("%u random schedules\n", count);
}

static void
run_all(unsigned actors, unsigned turns)
{
	unsigned long worlds = explore(actors, turns);

	printf("all schedules of %u actors and %u turns: %lu different worlds\n", actors, turns, worlds);
}

static void
play(unsigned actors, int count, char **choice)
{
	static struct choices list;

	for (int i = 0; i < count && i < CHOICES_MAX; i++)
		list.taken[list.count++] = (unsigned)strtoul(choice[i], NULL, 10);
	choices_by_list(&list);
	tell = true;
	world_begin(actors);
	while (list.used < (unsigned)count)
		world_turn();
}

static unsigned
number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int
main(int argc, char **argv)
{
	drop_tags = getenv("IDEM_MODEL_DROP_TAGS") != NULL;
	find = argc > 1 && strcmp(argv[1], "find") == 0;
	argc -= find;
	argv += find;
	if (argc == 4 && strcmp(argv[1], "random") == 0) {
		tell = number(argv[3]) == 1;
		run_random(number(argv[2]), number(argv[3]));
	} else if (argc == 4 && strcmp(argv[1], "all") == 0) {
		run_all(number(argv[2]), number(argv[3]));
	} else if (argc > 3 && strcmp(argv[1], "play") == 0) {
		play(number(argv[2]), argc - 3, argv + 3);
	} else if (argc == 1) {
		run_random(1, 300000);
		run_all(2, 7);
		run_all(3, 6);
	} else {
		(void)fprintf(stderr,
		              "usage: model [find] [random FIRST COUNT | all ACTORS TURNS | play ACTORS "
		              "CHOICE ...]\n");
		return 2;
	}
	return find ? 1 : 0;
}
