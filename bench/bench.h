/* What the measuring programs share. */
#ifndef IDEM_BENCH_H
#define IDEM_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

_Noreturn static inline void
die(const char *what, const char *why)
{
	(void)fprintf(stderr, "bench: %s: %s\n", what, why);
	exit(1);
}

/* Seconds. */
static inline double
now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#endif
