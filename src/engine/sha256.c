/* SHA-256 by OpenSSL, with our results. */
#include "sha256.h"

static int
result(int openssl)
{
	return openssl == 1 ? IDEM_OK : IDEM_E_NOMEM;
}

int
idem_sha256_init(struct idem_sha256 *sha)
{
	return result(SHA256_Init(&sha->context));
}

int
idem_sha256_add(struct idem_sha256 *sha, const void *data, size_t len)
{
	return len == 0 ? IDEM_OK : result(SHA256_Update(&sha->context, data, len));
}

int
idem_sha256_add_part(struct idem_sha256 *sha, const void *data, size_t len)
{
	uint8_t prefix[8];
	int rc;

	for (unsigned i = 0; i < sizeof prefix; i++)
		prefix[i] = (uint8_t)((uint64_t)len >> (8 * i));
	rc = idem_sha256_add(sha, prefix, sizeof prefix);
	return rc != IDEM_OK ? rc : idem_sha256_add(sha, data, len);
}

int
idem_sha256_end(struct idem_sha256 *sha, uint8_t digest[IDEM_SHA256_LEN])
{
	return result(SHA256_Final(digest, &sha->context));
}
