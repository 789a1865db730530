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
	sha->context = EVP_MD_CTX_new();
	if (sha->context == NULL)
		return IDEM_E_NOMEM;
	return result(EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL));
}

int
idem_sha256_add(struct idem_sha256 *sha, const void *data, size_t len)
{
	return len == 0 ? IDEM_OK : result(EVP_DigestUpdate(sha->context, data, len));
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
	return result(EVP_DigestFinal_ex(sha->context, digest, NULL));
}

void
idem_sha256_deinit(struct idem_sha256 *sha)
{
	EVP_MD_CTX_free(sha->context);
	sha->context = NULL;
}
