/* Well-formed UTF-8: RFC 3629, section 4. */
#include "utf8.h"

/* How many bytes follow a lead byte, and the range of the first of them; 0: none may. */
static size_t
followers(uint8_t lead, uint8_t *low, uint8_t *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 1;
	if (lead >= 0xe0 && lead <= 0xef) {
		if (lead == 0xe0)
			*low = 0xa0; /* no longer than needed */
		if (lead == 0xed)
			*high = 0x9f; /* no surrogates */
		return 2;
	}
	if (lead >= 0xf0 && lead <= 0xf4) {
		if (lead == 0xf0)
			*low = 0x90;
		if (lead == 0xf4)
			*high = 0x8f; /* nothing beyond U+10FFFF */
		return 3;
	}
	return 0;
}

bool
idem_is_utf8(struct idem_bytes bytes)
{
	const uint8_t *p = bytes.data;

	for (size_t i = 0; i < bytes.len;) {
		uint8_t low, high;
		size_t n;

		if (p[i] < 0x80) {
			i++;
			continue;
		}
		n = followers(p[i], &low, &high);
		if (n == 0 || bytes.len - i <= n)
			return false;
		for (size_t k = 1; k <= n; k++) {
			if (p[i + k] < low || p[i + k] > high)
				return false;
			low = 0x80;
			high = 0xbf;
		}
		i += n + 1;
	}
	return true;
}
