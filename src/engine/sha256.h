/* SHA-256, as OpenSSL has it. */
#ifndef IDEM_SHA256_H
#define IDEM_SHA256_H

#include <openssl/evp.h>

#include <idem/fingerprint.h>

struct idem_sha256 {
	EVP_MD_CTX *context;
};

/* Each returns IDEM_OK or IDEM_E_NOMEM, the only reason for which OpenSSL fails here. */
int idem_sha256_init(struct idem_sha256 *sha) IDEM_MUST_CHECK;
int idem_sha256_add(struct idem_sha256 *sha, const void *data, size_t len) IDEM_MUST_CHECK;
int idem_sha256_end(struct idem_sha256 *sha, uint8_t digest[IDEM_SHA256_LEN]) IDEM_MUST_CHECK;

/* Harmless on one that was never initialised but zeroed. */
void idem_sha256_deinit(struct idem_sha256 *sha);

/* Adds bytes with their length before them, so that no two sequences of parts meet. */
int idem_sha256_add_part(struct idem_sha256 *sha, const void *data, size_t len) IDEM_MUST_CHECK;

#endif
