/* The boot, its name and its age: all that the clock knows of the machine. */
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

uint64_t
idem_lmdb_uptime_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
