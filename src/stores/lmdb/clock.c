/*
 * The store's clock.
 *
 * It counts the time during which the machine is up, over all boots, and nothing that sets the
 * machine's date moves it.  What counts is that no cell ends too early: time that the machine was off is not
 * counted, because only its date could tell how long that was, and dates are wrong now and then.
 *
 * Within a boot all processes have CLOCK_BOOTTIME in common; what is added to it is in struct meta.
 */
#include <string.h>
#include <time.h>

#include "layout.h"

/* A new store: any beginning will do, and this one can be read. */
static uint64_t
date_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t
idem_lmdb_now(const struct lmdb_env *env)
{
	if (env->clock_ms != NULL)
		return env->clock_ms(env->clock_data);
	return idem_lmdb_uptime_ms() + env->clock_offset;
}

int
idem_lmdb_clock_start(struct lmdb_env *env, struct meta *meta)
{
	char boot[BOOT_MAX];
	int rc = idem_lmdb_boot(boot);

	if (rc != IDEM_OK)
		return rc;
	if (meta->clock_ms == 0)
		meta->clock_ms = date_ms();
	if (memcmp(meta->boot, boot, sizeof boot) != 0) {
		memcpy(meta->boot, boot, sizeof boot);
		meta->clock_offset = meta->clock_ms - idem_lmdb_uptime_ms();
	}
	env->clock_offset = meta->clock_offset;
	return IDEM_OK;
}
