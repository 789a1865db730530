/* Where a schedule's choices come from: a seed, a list, or all of them in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "choice.h"

static unsigned seed_now;
static struct choices *list_now;

void
choices_by_seed(unsigned seed)
{
	list_now = NULL;
	seed_now = seed * 2654435761u;
}

void
choices_by_list(struct choices *list)
{
	list_now = list;
	list->used = 0;
}

bool
choices_next(struct choices *list)
{
	for (list->count = list->used; list->count > 0; list->count--) {
		unsigned last = list->count - 1;

		if (++list->taken[last] < list->options[last])
			return true;
	}
	return false;
}

static unsigned
pick_from_list(unsigned n)
{
	unsigned i = list_now->used++;

	if (i == CHOICES_MAX) {
		(void)fprintf(stderr, "more than %d choices\n", CHOICES_MAX);
		exit(2);
	}
	if (i >= list_now->count) {
		list_now->taken[i] = 0;
		list_now->count = i + 1;
	}
	list_now->options[i] = n;
	return list_now->taken[i] < n ? list_now->taken[i] : n - 1;
}

unsigned
pick(unsigned n, unsigned weight)
{
	unsigned drawn;

	if (list_now != NULL)
		return pick_from_list(n);
	drawn = (unsigned)rand_r(&seed_now) / 7 % (n - 1 + weight);
	return drawn < weight ? 0 : drawn - weight + 1;
}

bool
seldom(unsigned one_in)
{
	return pick(2, one_in - 1) == 1;
}
