/*
 * idem/response.h - the record of a response: what is kept and how it is spelled.
 *
 * A record is one run of bytes, the payload of a STORED cell: a version byte, flags,
 * the status, the reason phrase, the header fields in order (repeated ones too),
 * the trailer fields, and the body as the backend gave it.  The same in every
 * store that keeps bytes.  Numbers are little-endian and of fixed width, so that
 * a record may be read on another machine.
 *
 * A response too large to keep has a record too: status, header fields, and the
 * flag that says that there is no body.  An execution is never forgotten because
 * its answer was long.
 */
#ifndef IDEM_RESPONSE_H
#define IDEM_RESPONSE_H

#include <idem/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct idem_field {
	struct idem_bytes name, value;
};

/*
 * A response.  When it is to be encoded, everything is the caller's.  When it
 * was decoded, every pointer leads into the record that was decoded, fields is
 * NULL, and idem_response_next() walks the fields.
 */
struct idem_response {
	unsigned status;          /* 100 to 999 */
	struct idem_bytes reason; /* the whole status line after the version ("201 Created"), or empty; at
	                             most 255 bytes */
	uint8_t host_flags;       /* for the host alone; kept as it is */
	bool body_kept;
	const struct idem_field *fields;
	size_t field_count; /* at most 65535; each name at most 255 bytes, each value below 2^24 */
	const struct idem_field *trailers;
	size_t trailer_count; /* the same limits */
	struct idem_bytes body;

	/* Set by decoding: the encoded runs of fields. */
	struct idem_bytes field_run, trailer_run;
};

/*
 * The length of the record up to its body; the whole record is that plus
 * body.len.  0: the response breaks a limit above (also if the whole would pass IDEM_PAYLOAD_MAX).
 */
IDEM_API size_t idem_response_head_len(const struct idem_response *response);

/*
 * Writes the record up to its body to buf, which has room for
 * idem_response_head_len() bytes.  The body's bytes belong right behind it; body.data is not
 * looked at, body.len is.
 */
IDEM_API void idem_response_encode_head(const struct idem_response *response, void *buf);

/*
 * Takes a record apart without copying.  Every length is checked against the
 * record's end, every field too, so that idem_response_next() cannot fail on it.  IDEM_OK, IDEM_E_VERSION (a
 * newer version byte), or IDEM_E_CORRUPT.  *ret_response is untouched on failure.
 */
IDEM_API int idem_response_decode(struct idem_bytes record,
                                  struct idem_response *ret_response) IDEM_MUST_CHECK;

/*
 * The next field of a decoded run.  Begin with a copy of field_run or
 * trailer_run.  False: there is none.
 */
IDEM_API bool idem_response_next(struct idem_bytes *run, struct idem_field *ret_field) IDEM_MUST_CHECK;

/*
 * Is a field of this name left out of every record?  Hop-by-hop fields (RFC
 * 9110, section 7.6.1: Connection, Keep-Alive, Proxy-Connection, TE, Trailer,
 * Transfer-Encoding, Upgrade, and Proxy-Authenticate/-Authentication-Info), and those every answer gets anew:
 * Date, Server, Content-Length.  And Idempotent-Replayed, which only Idem sets.  Any letter case.
 */
IDEM_API bool idem_response_field_left_out(struct idem_bytes name);

#ifdef __cplusplus
}
#endif

#endif
