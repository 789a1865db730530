/*
 * What every store promises, as one suite.
 *
 * A store comes with a fixture: how to open one more handle on the same cells,
 * and how to let its clock pass.  Where the clock cannot be moved, advance() sleeps, and unit_ms is
 * small; tests measure time in units alone, and never claim that something has not passed yet
 * when less than a whole unit is left of it.
 */
#ifndef IDEM_TEST_CONFORMANCE_H
#define IDEM_TEST_CONFORMANCE_H

#include <idem/idem.h>

struct conformance {
	const char *name;
	uint64_t unit_ms;
	size_t payload_max; /* no test asks for more */

	/* One more handle on the same cells, for this process and thread; NULL if that failed. */
	struct idem_store *(*open)(struct conformance *fixture, struct idem_loop *loop);
	void (*advance)(struct conformance *fixture, uint64_t ms);
	void *data; /* the fixture's own */

	uint64_t next_key; /* the suite's: no two tests share a key */
};

/* Runs the suite: the number of tests that failed. */
int conformance_run(struct conformance *fixture);

#endif
