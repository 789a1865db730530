/*
 * The memory store, made late: every answer comes 15 ms after the question, as
 * from a store behind a socket. The linker puts it in the place of the real one
 * in a module that is built for the tests alone (--wrap=idem_memory_open).
 */
#include <stdlib.h>

#include <idem/idem.h>

#define LATE_MS 15

int __real_idem_memory_open(const struct idem_memory_options *options, struct idem_store **ret_store);
int __wrap_idem_memory_open(const struct idem_memory_options *options, struct idem_store **ret_store);

struct late_store {
	struct idem_store base;
	struct idem_store *inner;
	struct idem_loop *loop;
};

struct question {
	struct idem_timer timer;
	struct late_store *store;
	struct idem_io *io;
};

static void
answer(struct idem_timer *timer)
{
	struct question *question = (struct question *)(void *)timer;
	struct late_store *store = question->store;
	struct idem_io *io = question->io;

	free(question);
	if (store->inner->ops->cas(store->inner, io) != IDEM_OK)
		abort(); /* the memory store answers at once */
	io->done(io);
}

static int
late_cas(struct idem_store *base, struct idem_io *io)
{
	struct late_store *store = (struct late_store *)base;
	struct question *question = calloc(1, sizeof *question);

	if (question == NULL) {
		io->status = IDEM_E_NOMEM;
		io->applied = false;
		return IDEM_OK;
	}
	question->store = store;
	question->io = io;
	question->timer.fire = answer;
	io->store_data = question;
	store->loop->ops->timer_start(store->loop, &question->timer, LATE_MS);
	return IDEM_PENDING;
}

static void
late_cancel(struct idem_store *base, struct idem_io *io)
{
	struct late_store *store = (struct late_store *)base;
	struct question *question = io->store_data;

	store->loop->ops->timer_stop(store->loop, &question->timer);
	free(question);
	io->store_data = NULL;
}

static void
late_release(struct idem_store *base, struct idem_io *io)
{
	struct late_store *store = (struct late_store *)base;

	store->inner->ops->release(store->inner, io);
}

static int
late_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct late_store *store = (struct late_store *)base;

	return store->inner->ops->watch(store->inner, watch);
}

static void
late_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	struct late_store *store = (struct late_store *)base;

	store->inner->ops->unwatch(store->inner, watch);
}

static void
late_close(struct idem_store *base)
{
	struct late_store *store = (struct late_store *)base;

	idem_store_close(store->inner);
	free(store);
}

static const struct idem_store_ops late_ops = {
	.name = "late",
	.cas = late_cas,
	.cancel = late_cancel,
	.release = late_release,
	.watch = late_watch,
	.unwatch = late_unwatch,
	.close = late_close,
};

int
__wrap_idem_memory_open(const struct idem_memory_options *options, struct idem_store **ret_store)
{
	struct late_store *store = calloc(1, sizeof *store);
	int rc;

	if (store == NULL)
		return IDEM_E_NOMEM;
	rc = __real_idem_memory_open(options, &store->inner);
	if (rc != IDEM_OK) {
		free(store);
		return rc;
	}
	store->base.ops = &late_ops;
	store->loop = options->loop;
	*ret_store = &store->base;
	return IDEM_OK;
}
