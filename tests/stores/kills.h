/* Processes are killed at random instants while others work on: for any store that several may open. */
#ifndef IDEM_TEST_KILLS_H
#define IDEM_TEST_KILLS_H

#include <idem/idem.h>

struct kills {
	/*
	 * One more handle, in any process.  Its clock is the machine's: what is over is really over for some
	 * and not yet for others.  NULL if that failed.
	 */
	struct idem_store *(*open)(void *data, struct idem_loop *loop);
	int (*verify)(struct idem_store *store, char *buf, size_t cap);
	void *data;
	unsigned instants_us; /* a process lives for less than this */
};

void kills_run(const struct kills *kills);

#endif
