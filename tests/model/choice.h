/* Where a schedule's choices come from: a seed, a list, or all of them in turn. */
#ifndef MODEL_CHOICE_H
#define MODEL_CHOICE_H

#include <stdbool.h>

#define CHOICES_MAX 512

struct choices {
	unsigned count, used;
	unsigned taken[CHOICES_MAX], options[CHOICES_MAX];
};

/* Choices come from this seed from now on. */
void choices_by_seed(unsigned seed);

/* Choices come from this list from now on, and are the first option after its end. */
void choices_by_list(struct choices *list);

/* Makes the list the next one in order; false after the last one.  Begins with an empty list. */
bool choices_next(struct choices *list);

/* One of n options, the first of which is weight times as likely as another. */
unsigned pick(unsigned n, unsigned weight);

/* Says no more often than yes. */
bool seldom(unsigned one_in);

#endif
