/* A loop whose time runs faster. */
#include "hasty_loop.h"

static struct hasty_loop *
of(struct idem_loop *base)
{
	return (struct hasty_loop *)base;
}

static uint64_t
now_ms(struct idem_loop *base)
{
	struct hasty_loop *loop = of(base);

	return loop->inner->ops->now_ms(loop->inner) * loop->times;
}

static void
timer_start(struct idem_loop *base, struct idem_timer *timer, uint64_t after_ms)
{
	struct hasty_loop *loop = of(base);

	loop->inner->ops->timer_start(loop->inner, timer, (after_ms + loop->times - 1) / loop->times);
}

static void
timer_stop(struct idem_loop *base, struct idem_timer *timer)
{
	struct hasty_loop *loop = of(base);

	loop->inner->ops->timer_stop(loop->inner, timer);
}

static int
fd_watch(struct idem_loop *base, struct idem_fd *watch, unsigned readiness)
{
	struct hasty_loop *loop = of(base);

	return loop->inner->ops->fd_watch(loop->inner, watch, readiness);
}

static const struct idem_loop_ops hasty_ops = {now_ms, timer_start, timer_stop, fd_watch};

void
hasty_loop_init(struct hasty_loop *loop, struct idem_loop *inner, uint64_t times)
{
	*loop = (struct hasty_loop){.base.ops = &hasty_ops, .inner = inner, .times = times};
}
