/*
 * A world in virtual time: a loop whose clock moves only when a test says so,
 * and a store whose every call can be made to fail, to answer late, to lose its
 * reply before or after its write took effect, or never to answer at all.
 */
#ifndef IDEM_SIM_H
#define IDEM_SIM_H

#include "test.h"

/* ---- the loop ---- */

struct sim_loop {
	struct idem_loop base;
	uint64_t now_ms;
	struct idem_timer *timers[64];
	size_t count;
};

static inline uint64_t
sim_now(struct idem_loop *loop)
{
	return ((struct sim_loop *)loop)->now_ms;
}

static inline uint64_t
sim_due(const struct idem_timer *timer)
{
	uint64_t at;

	memcpy(&at, timer->host, sizeof at);
	return at;
}

static inline void
sim_timer_stop(struct idem_loop *base, struct idem_timer *timer)
{
	struct sim_loop *loop = (struct sim_loop *)base;

	for (size_t i = 0; i < loop->count; i++)
		if (loop->timers[i] == timer)
			loop->timers[i] = loop->timers[--loop->count];
	timer->armed = false;
}

static inline void
sim_timer_start(struct idem_loop *base, struct idem_timer *timer, uint64_t after_ms)
{
	struct sim_loop *loop = (struct sim_loop *)base;
	uint64_t at = loop->now_ms + after_ms;

	sim_timer_stop(base, timer);
	assert_true(loop->count < 64);
	memcpy(timer->host, &at, sizeof at);
	loop->timers[loop->count++] = timer;
	timer->armed = true;
}

static inline int
sim_fd_watch(struct idem_loop *loop, struct idem_fd *watch, unsigned readiness)
{
	(void)loop;
	(void)watch;
	(void)readiness;
	return IDEM_E_SYSTEM;
}

static inline struct sim_loop
sim_loop_make(void)
{
	static const struct idem_loop_ops ops = {sim_now, sim_timer_start, sim_timer_stop, sim_fd_watch};

	return (struct sim_loop){.base = {&ops}, .now_ms = 1000};
}

/* Fires the timer that is due first, if it is due by until_ms.  False: none is. */
static inline bool
sim_fire_next(struct sim_loop *loop, uint64_t until_ms)
{
	struct idem_timer *first = NULL;

	for (size_t i = 0; i < loop->count; i++)
		if (first == NULL || sim_due(loop->timers[i]) < sim_due(first))
			first = loop->timers[i];
	if (first == NULL || sim_due(first) > until_ms)
		return false;
	if (sim_due(first) > loop->now_ms)
		loop->now_ms = sim_due(first);
	sim_timer_stop(&loop->base, first);
	first->fire(first);
	return true;
}

/* Lets ms pass, with all that is due meanwhile. */
static inline void
sim_pass(struct sim_loop *loop, uint64_t ms)
{
	uint64_t until = loop->now_ms + ms;

	while (sim_fire_next(loop, until))
		;
	loop->now_ms = until;
}

/* ---- the store ---- */

enum sim_fault {
	SIM_WORKS,
	SIM_LATE,        /* answers after 10 ms */
	SIM_LOSE_BEFORE, /* in doubt, and nothing was written */
	SIM_LOSE_AFTER,  /* in doubt, and it was written */
	SIM_UNAVAILABLE,
	SIM_FULL,
	SIM_NEVER_BEFORE, /* never answers, and nothing was written */
	SIM_NEVER_AFTER,  /* never answers, and it was written */
	SIM_FAULTS,
};

#define SIM_CELLS 4

struct sim_cell {
	struct idem_id id;
	struct idem_cell cell;
	uint64_t stamp_ms;
	uint8_t payload[64];
};

struct sim_store {
	struct idem_store base;
	struct sim_loop *loop;
	struct sim_cell cells[SIM_CELLS];
	enum sim_fault faults[64]; /* of the calls to come, in order; then it works */
	size_t calls, releases, finished;
	bool ignore_tags; /* a planted fault */
	bool can_watch;
	struct idem_watch *watches;
	struct sim_pending {
		struct idem_timer timer;
		struct sim_store *store;
		struct idem_io *io; /* NULL: free, or cancelled */
	} pending[16];
};

static inline struct sim_cell *
sim_find(struct sim_store *store, const struct idem_id *id)
{
	struct sim_cell *unused = NULL;

	for (size_t i = 0; i < SIM_CELLS; i++) {
		struct sim_cell *cell = &store->cells[i];

		if (cell->cell.state != IDEM_ABSENT &&
		    store->loop->now_ms - cell->stamp_ms >= cell->cell.retain_ms)
			memset(cell, 0, sizeof *cell);
		if (cell->cell.state != IDEM_ABSENT && memcmp(&cell->id, id, sizeof *id) == 0)
			return cell;
		if (cell->cell.state == IDEM_ABSENT)
			unused = cell;
	}
	assert_non_null(unused);
	return unused;
}

static inline void
sim_hint(struct sim_store *store, const struct idem_id *id)
{
	struct idem_watch *watch = store->watches;

	while (watch != NULL) {
		struct idem_watch *next = watch->next;

		if (memcmp(&watch->id, id, sizeof *id) == 0)
			watch->changed(watch);
		watch = next;
	}
}

static inline void
sim_swap(struct sim_store *store, struct idem_io *io)
{
	struct sim_cell *cell = sim_find(store, &io->id);

	io->status = IDEM_OK;
	io->applied = store->ignore_tags || memcmp(&cell->cell.tag, &io->expect, IDEM_TAG_LEN) == 0;
	if (!io->applied) {
		io->seen = cell->cell;
		io->seen.age_ms = store->loop->now_ms - cell->stamp_ms;
		if (!io->want_payload || cell->cell.state != IDEM_STORED ||
		    memcmp(&cell->cell.fingerprint, &io->write.fingerprint, IDEM_FINGERPRINT_LEN) != 0)
			io->seen.payload = (struct idem_bytes){NULL, 0};
		return;
	}
	memset(cell, 0, sizeof *cell);
	if (io->write.state == IDEM_ABSENT)
		return;
	assert_true(io->write.payload.len <= sizeof cell->payload);
	assert_false(idem_tag_is_zero(&io->write.tag));
	cell->id = io->id;
	cell->cell = io->write;
	cell->stamp_ms = store->loop->now_ms;
	if (io->write.payload.len > 0)
		memcpy(cell->payload, io->write.payload.data, io->write.payload.len);
	cell->cell.payload.data = cell->payload;
}

static inline void
sim_finish(struct sim_store *store, struct idem_io *io, int status)
{
	if (status == IDEM_OK) {
		sim_swap(store, io);
	} else {
		io->status = status;
		io->applied = false;
	}
	store->finished++;
}

static inline void
sim_answer(struct idem_timer *timer)
{
	struct sim_pending *pending = (struct sim_pending *)(void *)timer;
	struct idem_io *io = pending->io;

	pending->io = NULL;
	sim_finish(pending->store, io, IDEM_OK);
	io->done(io);
}

static inline int
sim_pend(struct sim_store *store, struct idem_io *io, bool answer)
{
	size_t i = 0;

	while (store->pending[i].io != NULL)
		assert_true(++i < 16);
	store->pending[i].io = io;
	store->pending[i].store = store;
	store->pending[i].timer.fire = sim_answer;
	if (answer)
		sim_timer_start(&store->loop->base, &store->pending[i].timer, 10);
	return IDEM_PENDING;
}

static inline int
sim_cas(struct idem_store *base, struct idem_io *io)
{
	struct sim_store *store = (struct sim_store *)base;
	enum sim_fault fault = store->calls < 64 ? store->faults[store->calls] : SIM_WORKS;

	store->calls++;
	switch (fault) {
	case SIM_LATE:
		return sim_pend(store, io, true);
	case SIM_NEVER_AFTER:
		sim_swap(store, io);
		return sim_pend(store, io, false);
	case SIM_NEVER_BEFORE:
		return sim_pend(store, io, false);
	case SIM_LOSE_AFTER:
		sim_swap(store, io);
		sim_finish(store, io, IDEM_E_INDOUBT);
		return IDEM_OK;
	case SIM_LOSE_BEFORE:
		sim_finish(store, io, IDEM_E_INDOUBT);
		return IDEM_OK;
	case SIM_UNAVAILABLE:
		sim_finish(store, io, IDEM_E_UNAVAILABLE);
		return IDEM_OK;
	case SIM_FULL:
		sim_finish(store, io, IDEM_E_FULL);
		return IDEM_OK;
	default:
		sim_finish(store, io, IDEM_OK);
		return IDEM_OK;
	}
}

static inline void
sim_cancel(struct idem_store *base, struct idem_io *io)
{
	struct sim_store *store = (struct sim_store *)base;

	for (size_t i = 0; i < 16; i++) {
		if (store->pending[i].io == io) {
			store->pending[i].io = NULL;
			sim_timer_stop(&store->loop->base, &store->pending[i].timer);
			return;
		}
	}
	fail_msg("cancelled what was not pending");
}

static inline void
sim_release(struct idem_store *base, struct idem_io *io)
{
	(void)io;
	((struct sim_store *)base)->releases++;
}

static inline int
sim_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct sim_store *store = (struct sim_store *)base;

	if (!store->can_watch)
		return IDEM_E_UNAVAILABLE;
	watch->next = store->watches;
	store->watches = watch;
	return IDEM_OK;
}

static inline void
sim_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	struct idem_watch **link = &((struct sim_store *)base)->watches;

	while (*link != watch)
		link = &(*link)->next;
	*link = watch->next;
}

static inline void
sim_close(struct idem_store *base)
{
	(void)base;
}

static inline struct sim_store
sim_store_make(struct sim_loop *loop)
{
	static const struct idem_store_ops ops = {"sim",     sim_cas,     sim_cancel, sim_release,
	                                          sim_watch, sim_unwatch, sim_close};

	return (struct sim_store){.base = {&ops}, .loop = loop};
}

/* ---- randomness that a seed repeats ---- */

static inline int
sim_random(void *data, void *buf, size_t len)
{
	unsigned *seed = data;

	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)(1 + rand_r(seed) % 255);
	return IDEM_OK;
}

#endif
