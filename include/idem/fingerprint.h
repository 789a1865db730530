/*
 * idem/fingerprint.h - is this the same request?
 *
 * A fingerprint is SHA-256 over a text that names the request (by default method and
 * target, "POST /charges") and over its body.  The body is hashed while it
 * arrives; only the JSON form needs it whole, and only up to a limit.
 *
 * Versions.  A fingerprint begins its life with a version and the mode in the
 * hash, so that a later change of the rules cannot make two different requests look the
 * same.  The same build, the same rules and the same request give the same
 * fingerprint in every process and on every machine.
 *
 * JSON form.  With IDEM_BODY_JSON a body that is JSON is hashed in a canonical
 * form in the sense of RFC 8785: no white space, members sorted by UTF-16 code
 * units, one spelling of each string and number.  Two deliberate differences:
 * integers that fit in 64 bits keep all their digits (RFC 8785 would round them
 * to a double, and two amounts could meet), and a real number equal to an
 * integer below 2^53 is that integer (1.0 is 1), while one beyond, which may have
 * been rounded, never is.  A body that is not JSON, has
 * a member twice, has a number out of range, is nested too deep, or is longer than json_max is hashed as raw
 * bytes instead, in a way that no JSON body can be hashed.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_SHA256_LEN 32

enum idem_body_mode {
	IDEM_BODY_RAW = 0, /* every byte counts */
	IDEM_BODY_JSON,    /* the canonical form, without or with only some members */
	IDEM_BODY_OFF,     /* the body does not count */
};

/*
 * A JSON Pointer (RFC 6901), parsed once and used often.
 * IDEM_OK, IDEM_E_INVALID (neither empty nor beginning with '/', a '~' without 0 or 1, a NUL,
 * or not UTF-8), or IDEM_E_NOMEM.
 */
struct idem_pointer;
IDEM_API int idem_pointer_parse(struct idem_bytes text, struct idem_pointer **ret_pointer) IDEM_MUST_CHECK;
IDEM_API void idem_pointer_free(struct idem_pointer *pointer);

struct idem_body_rules {
	enum idem_body_mode mode;
	/* IDEM_BODY_JSON: members left out, or (only_count > 0) the only ones taken.  Not both:
	 * IDEM_E_INVALID. */
	struct idem_pointer *const *ignore;
	size_t ignore_count;
	struct idem_pointer *const *only;
	size_t only_count;
	bool keep_json;  /* idem_body_member() will be asked, whatever the mode */
	size_t json_max; /* a longer body is not looked at as JSON */
};

/* The body of one request, while it arrives. */
struct idem_body;

/*
 * rules (and the pointers in it) must outlive the body.  IDEM_OK, IDEM_E_INVALID, or IDEM_E_NOMEM.
 */
IDEM_API int idem_body_new(const struct idem_body_rules *rules, struct idem_body **ret_body) IDEM_MUST_CHECK;
IDEM_API void idem_body_free(struct idem_body *body);

/* The next bytes.  After an error (IDEM_E_NOMEM) the body is of no further use. */
IDEM_API int idem_body_add(struct idem_body *body, const void *data, size_t len) IDEM_MUST_CHECK;

/* That was all of it.  IDEM_OK or IDEM_E_NOMEM.  Once, before the calls below. */
IDEM_API int idem_body_finish(struct idem_body *body) IDEM_MUST_CHECK;

/* SHA-256 of the raw bytes, whatever the mode.  Valid as long as body. */
IDEM_API const uint8_t *idem_body_sha256(const struct idem_body *body);

/* How a body can fail to have a member. */
enum idem_member {
	IDEM_MEMBER_FOUND = 0,
	IDEM_MEMBER_ABSENT,   /* no such member, or null */
	IDEM_MEMBER_NOT_TEXT, /* neither a string nor an integer */
	IDEM_MEMBER_NOT_JSON, /* the body is no JSON, or longer than json_max */
};

/*
 * The member a pointer names: the characters of a string, or an integer in
 * decimal.  Needs keep_json.  *ret_text is valid as long as body.
 */
IDEM_API enum idem_member idem_body_member(struct idem_body *body, const struct idem_pointer *pointer,
                                           struct idem_bytes *ret_text) IDEM_MUST_CHECK;

/*
 * The fingerprint of a request: request is the text that names it; body is finished, or NULL for a request
 * without one (the same as an empty body).  IDEM_OK or IDEM_E_NOMEM.
 */
IDEM_API int idem_fingerprint_make(struct idem_bytes request, const struct idem_body *body,
                                   struct idem_fingerprint *ret_fingerprint) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
