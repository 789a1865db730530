/* The fingerprint of a request: its name and its body, under a version. */
#include "body.h"
#include "sha256.h"

/* SHA-256 of no bytes at all, for a request without a body. */
static int
digest_of_nothing(uint8_t digest[IDEM_SHA256_LEN])
{
	struct idem_sha256 sha;
	int rc = idem_sha256_init(&sha);

	if (rc == IDEM_OK)
		rc = idem_sha256_end(&sha, digest);
	return rc;
}

static int
hash(struct idem_sha256 *sha, struct idem_bytes request, char form, const uint8_t *digest, uint8_t *out)
{
	static const char version[] = "idem fingerprint 1";
	int rc;

	rc = idem_sha256_add_part(sha, version, sizeof version - 1);
	if (rc == IDEM_OK)
		rc = idem_sha256_add_part(sha, request.data, request.len);
	if (rc == IDEM_OK)
		rc = idem_sha256_add(sha, &form, 1);
	if (rc == IDEM_OK && form != IDEM_BODY_FORM_OFF)
		rc = idem_sha256_add(sha, digest, IDEM_SHA256_LEN);
	return rc == IDEM_OK ? idem_sha256_end(sha, out) : rc;
}

int
idem_fingerprint_make(struct idem_bytes request, const struct idem_body *body,
                      struct idem_fingerprint *ret_fingerprint)
{
	struct idem_sha256 sha;
	struct idem_fingerprint fingerprint = {{0}};
	uint8_t nothing[IDEM_SHA256_LEN];
	int rc = IDEM_OK;

	if (body == NULL)
		rc = digest_of_nothing(nothing);
	if (rc == IDEM_OK)
		rc = idem_sha256_init(&sha);
	if (rc == IDEM_OK)
		rc = hash(&sha, request, body != NULL ? (char)idem_body_form(body) : (char)IDEM_BODY_FORM_RAW,
		          body != NULL ? idem_body_digest(body) : nothing, fingerprint.b);
	if (rc == IDEM_OK)
		*ret_fingerprint = fingerprint;
	return rc;
}
