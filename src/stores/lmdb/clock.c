/*
 * The store's clock.
 *
 * It counts the time during which the machine is up, over all boots, and nothing that sets the
 * machine's date moves it.  What counts is that no cell ends too early: time that the machine was off is not
 * counted, because only its date could tell how long that was, and dates are wrong now and then.
 *
 * Within a boot all processes have CLOCK_BOOTTIME in common; what is added to it is in struct meta.
 */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

int
idem_lmdb_boot(char boot[BOOT_MAX])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return IDEM_E_SYSTEM;
	memset(boot, 0, BOOT_MAX);
	n = read(fd, boot, BOOT_MAX - 1);
	(void)close(fd);
	return n == 37 ? IDEM_OK : IDEM_E_SYSTEM; /* a uuid and a newline */
}

static uint64_t
clock_read(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now); /* cannot fail for these clocks */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t
idem_lmdb_uptime_ms(void)
{
	return clock_read(CLOCK_BOOTTIME);
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
	if (meta->clock_ms == 0) /* a new store: any beginning will do, and this one can be read */
		meta->clock_ms = clock_read(CLOCK_REALTIME);
	if (memcmp(meta->boot, boot, sizeof boot) != 0) {
		memcpy(meta->boot, boot, sizeof boot);
		meta->clock_offset = meta->clock_ms - idem_lmdb_uptime_ms();
	}
	env->clock_offset = meta->clock_offset;
	return IDEM_OK;
}
