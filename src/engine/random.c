/* The default source of tags nobody can guess. */
#include <limits.h>

#include <openssl/rand.h>

#include <idem/guard.h>

int
idem_random(void *unused, void *buf, size_t len)
{
	(void)unused;
	if (len > INT_MAX)
		return IDEM_E_INVALID;
	return RAND_bytes(buf, (int)len) == 1 ? IDEM_OK : IDEM_E_RANDOM;
}
