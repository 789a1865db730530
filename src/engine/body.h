/* What a finished body has for the fingerprint. */
#ifndef IDEM_BODY_H
#define IDEM_BODY_H

#include <idem/fingerprint.h>

/* How the digest came about; part of the hash, so that no two ways meet. */
enum idem_body_form {
	IDEM_BODY_FORM_RAW = 'r',
	IDEM_BODY_FORM_JSON = 'j',
	IDEM_BODY_FORM_NOT_JSON = 'n', /* JSON was wanted, and raw bytes came */
	IDEM_BODY_FORM_OFF = 'o',
};

enum idem_body_form idem_body_form(const struct idem_body *body);
const uint8_t *idem_body_digest(const struct idem_body *body);

#endif
