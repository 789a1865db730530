/* SHA-256 by OpenSSL, with our results. */
#include <pthread.h>

#include "sha256.h"

/*
 * OpenSSL 3 looks an algorithm up by its name each time it is begun, which costs
 * more than to hash what we hash.  One lookup serves the process; it never changes
 * and is never given back.
 */
static EVP_MD *fetched;
static pthread_once_t fetch_once = PTHREAD_ONCE_INIT;

static void
fetch(void)
{
	fetched = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *
algorithm(void)
{
	(void)pthread_once(&fetch_once, fetch); /* fails for no argument that is valid */
	return fetched != NULL ? fetched : EVP_sha256();
}

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
	return result(EVP_DigestInit_ex(sha->context, algorithm(), NULL));
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
