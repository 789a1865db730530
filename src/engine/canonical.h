/* One spelling for each JSON value, in the sense of RFC 8785. */
#ifndef IDEM_CANONICAL_H
#define IDEM_CANONICAL_H

#include <jansson.h>

#include <idem/fingerprint.h>

#include "sha256.h"

/* Deeper values than this have no canonical form here. */
#define IDEM_CANONICAL_DEPTH 64

/*
 * Adds the canonical form of value to a hash, without the members that ignore
 * names.  IDEM_OK; IDEM_E_INVALID if it has none (too deep); IDEM_E_NOMEM.
 */
int idem_canonical_hash(json_t *value, struct idem_pointer *const *ignore, size_t ignore_count,
                        struct idem_sha256 *sha) IDEM_MUST_CHECK;

#endif
