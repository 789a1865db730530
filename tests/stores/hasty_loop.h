/*
 * A loop whose time runs faster, for what waits between two attempts: its descriptors and callbacks are those
 * of another loop, which is the one that runs.
 */
#ifndef IDEM_TEST_HASTY_LOOP_H
#define IDEM_TEST_HASTY_LOOP_H

#include <idem/loop.h>

struct hasty_loop {
	struct idem_loop base;
	struct idem_loop *inner;
	uint64_t times; /* as fast */
};

void hasty_loop_init(struct hasty_loop *loop, struct idem_loop *inner, uint64_t times);

#endif
