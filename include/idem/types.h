/*
 * idem/types.h - the few types that every header of Idem shares.
 *
 * Results.  Functions that can fail return an int: IDEM_OK, IDEM_PENDING where
 * the header of the function says so, or a negative enum idem_status.  The
 * result says whether the machinery worked; what was decided (a replay, a
 * mismatch, ...) is never an error and is told by other means.
 *
 * Time is in milliseconds and its names end in _ms.  Sizes are in bytes.
 */
#ifndef IDEM_TYPES_H
#define IDEM_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_API __attribute__((visibility("default")))
#define IDEM_MUST_CHECK __attribute__((warn_unused_result))

/* Bytes somebody else owns.  Never assumed to end in NUL; may contain NUL. */
struct idem_bytes {
	const void *data;
	size_t len;
};

enum idem_status {
	IDEM_OK = 0,
	IDEM_PENDING = 1,        /* not an error: the answer comes later */
	IDEM_E_NOMEM = -1,       /* the process is out of memory; nothing was done */
	IDEM_E_INVALID = -2,     /* the caller's arguments make no sense together */
	IDEM_E_FULL = -3,        /* the store has no room; nothing was written */
	IDEM_E_UNAVAILABLE = -4, /* the store was not reached; nothing was written */
	IDEM_E_INDOUBT = -5,     /* the write may or may not have been applied */
	IDEM_E_CORRUPT = -6,     /* bytes that no version of Idem wrote */
	IDEM_E_VERSION = -7,     /* bytes of a version of Idem that this is not */
	IDEM_E_RANDOM = -8,      /* the system gave no random bytes */
	IDEM_E_SYSTEM = -9,      /* a system call failed; errno says why */
};

/*
 * A short English sentence for a status, without a full stop.  Never NULL, also
 * for numbers that are no status.  The text is static.  Any thread.
 */
IDEM_API const char *idem_strerror(int status);

#ifdef __cplusplus
}
#endif

#endif
