/* Every schedule up to a number of turns. */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

/* Returns how many different worlds there were. */
unsigned long explore(unsigned actors, unsigned turns);

/* Prints how to come to where exploring is. */
void explore_say_where(void);

#endif
