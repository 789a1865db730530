/* SHA-256, as OpenSSL has it. */
#ifndef IDEM_SHA256_H
#define IDEM_SHA256_H

/*
 * OpenSSL 3 calls these functions deprecated and prefers EVP, which allocates
 * two contexts for each digest and looks its provider up. Four digests of a few
 * bytes stand before every request, and through EVP they cost three times as
 * much. The macro asks for the interface of OpenSSL 1.1.1, for the users of this
 * header alone, and so must come before OpenSSL's first header.
 */
#define OPENSSL_API_COMPAT 0x10101000L
#include <openssl/sha.h>

#include <idem/fingerprint.h>

struct idem_sha256 {
	SHA256_CTX context;
};

/* Each returns IDEM_OK, or IDEM_E_NOMEM, should OpenSSL ever fail. */
int idem_sha256_init(struct idem_sha256 *sha) IDEM_MUST_CHECK;
int idem_sha256_add(struct idem_sha256 *sha, const void *data, size_t len) IDEM_MUST_CHECK;
int idem_sha256_end(struct idem_sha256 *sha, uint8_t digest[IDEM_SHA256_LEN]) IDEM_MUST_CHECK;

/* Adds bytes with their length before them, so that no two sequences of parts meet. */
int idem_sha256_add_part(struct idem_sha256 *sha, const void *data, size_t len) IDEM_MUST_CHECK;

#endif
