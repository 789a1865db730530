/* A store around another that misbehaves at chosen calls. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* An io whose answer comes later, or never; or the copy of one, which lands alone. */
struct late {
	struct idem_timer timer;
	struct shim *shim;
	struct idem_io *io; /* NULL: a ghost */
	struct idem_io ghost;
	void *payload; /* the ghost's */
	int status;    /* of the answer; IDEM_OK: ask the store inside then */
	struct late *next;
};

static int
pass_on(struct shim *shim, struct idem_io *io)
{
	if (shim->inner->ops->cas(shim->inner, io) != IDEM_OK)
		abort();
	return IDEM_OK;
}

/* Written, but nobody hears what came of it. */
static void
write_unheard(struct shim *shim, const struct idem_io *io)
{
	struct idem_io copy = *io;

	(void)pass_on(shim, &copy);
	shim->inner->ops->release(shim->inner, &copy);
}

static int
finish(struct shim *shim, struct idem_io *io, int status)
{
	io->store_data = NULL;
	io->applied = false;
	io->status = status;
	if (status == IDEM_OK)
		(void)pass_on(shim, io);
	shim->finished++;
	return IDEM_OK;
}

/* ---- later ---- */

static void
late_free(struct late *late)
{
	struct late **link = &late->shim->lates;

	while (*link != late)
		link = &(*link)->next;
	*link = late->next;
	late->shim->pending--;
	if (late->timer.armed)
		late->shim->loop->ops->timer_stop(late->shim->loop, &late->timer);
	free(late->payload);
	free(late);
}

static struct late *
late_new(struct shim *shim, struct idem_io *io, void (*fire)(struct idem_timer *timer))
{
	struct late *late = calloc(1, sizeof *late);

	if (late == NULL)
		abort();
	late->shim = shim;
	late->io = io;
	late->timer.fire = fire;
	late->next = shim->lates;
	shim->lates = late;
	shim->pending++;
	return late;
}

static void
answer(struct idem_timer *timer)
{
	struct late *late = (struct late *)timer;
	struct shim *shim = late->shim;
	struct idem_io *io = late->io;
	int status = late->status;

	late_free(late);
	(void)finish(shim, io, status);
	io->done(io);
}

static int
answer_later(struct shim *shim, struct idem_io *io, int status)
{
	struct late *late = late_new(shim, io, answer);

	late->status = status;
	shim->loop->ops->timer_start(shim->loop, &late->timer, shim->late_ms);
	return IDEM_PENDING;
}

static int
answer_never(struct shim *shim, struct idem_io *io)
{
	(void)late_new(shim, io, answer); /* never armed */
	return IDEM_PENDING;
}

static void
land(struct idem_timer *timer)
{
	struct late *late = (struct late *)timer;

	write_unheard(late->shim, &late->ghost);
	late_free(late);
}

static int
land_later(struct shim *shim, struct idem_io *io)
{
	struct late *late = late_new(shim, NULL, land);
	size_t len = io->write.payload.len;

	late->ghost = *io;
	late->ghost.want_payload = false;
	late->payload = malloc(len + 1);
	if (late->payload == NULL)
		abort();
	if (len > 0)
		memcpy(late->payload, io->write.payload.data, len);
	late->ghost.write.payload.data = late->payload;
	shim->loop->ops->timer_start(shim->loop, &late->timer, SHIM_GHOST_MS);
	return answer_never(shim, io);
}

/* ---- the store ---- */

static int
shim_cas(struct idem_store *base, struct idem_io *io)
{
	struct shim *shim = (struct shim *)base;
	size_t call = shim->calls++;

	switch (call >= shim->fault_from && call < shim->fault_to ? shim->fault : SHIM_WORKS) {
	case SHIM_UNAVAILABLE:
		return finish(shim, io, IDEM_E_UNAVAILABLE);
	case SHIM_FULL:
		return finish(shim, io, IDEM_E_FULL);
	case SHIM_NOMEM:
		return finish(shim, io, IDEM_E_NOMEM);
	case SHIM_LOSE_AFTER:
		write_unheard(shim, io);
		return finish(shim, io, IDEM_E_INDOUBT);
	case SHIM_LOSE_BEFORE:
		return finish(shim, io, IDEM_E_INDOUBT);
	case SHIM_LATE:
		return answer_later(shim, io, IDEM_OK);
	case SHIM_LATE_LOSE_AFTER:
		write_unheard(shim, io);
		return answer_later(shim, io, IDEM_E_INDOUBT);
	case SHIM_LATE_LOSE_BEFORE:
		return answer_later(shim, io, IDEM_E_INDOUBT);
	case SHIM_NEVER_AFTER:
		write_unheard(shim, io);
		return answer_never(shim, io);
	case SHIM_NEVER_BEFORE:
		return answer_never(shim, io);
	case SHIM_LANDS_LATE:
		return land_later(shim, io);
	default:
		return finish(shim, io, IDEM_OK);
	}
}

static void
shim_cancel(struct idem_store *base, struct idem_io *io)
{
	struct late *late = ((struct shim *)base)->lates;

	while (late != NULL && late->io != io)
		late = late->next;
	if (late == NULL)
		abort(); /* it was not pending */
	late_free(late);
}

static void
shim_release(struct idem_store *base, struct idem_io *io)
{
	struct shim *shim = (struct shim *)base;

	shim->released++;
	if (io->status != IDEM_E_INDOUBT)
		shim->inner->ops->release(shim->inner, io);
}

static int
shim_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct shim *shim = (struct shim *)base;

	return shim->inner->ops->watch(shim->inner, watch);
}

static void
shim_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	struct shim *shim = (struct shim *)base;

	shim->inner->ops->unwatch(shim->inner, watch);
}

static void
shim_close(struct idem_store *base)
{
	struct shim *shim = (struct shim *)base;

	while (shim->lates != NULL)
		late_free(shim->lates);
	idem_store_close(shim->inner);
	free(shim);
}

struct shim *
shim_open(struct idem_store *inner, struct idem_loop *loop)
{
	static const struct idem_store_ops ops = {
		.name = "shim",
		.cas = shim_cas,
		.cancel = shim_cancel,
		.release = shim_release,
		.watch = shim_watch,
		.unwatch = shim_unwatch,
		.close = shim_close,
	};
	struct shim *shim = malloc(sizeof *shim);

	if (shim != NULL)
		*shim = (struct shim){.base = {&ops}, .inner = inner, .loop = loop, .late_ms = SHIM_LATE_MS};
	return shim;
}
