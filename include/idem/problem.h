/*
 * idem/problem.h - the answers Idem gives itself, as problem details (RFC 9457).
 *
 * Each has a stable code, a status, a title (the one of
 * draft-ietf-httpapi-idempotency-key-header where it has one) and a detail.
 * None of them ever holds a word of another request's data, nor the key.
 */
#ifndef IDEM_PROBLEM_H
#define IDEM_PROBLEM_H

#include <idem/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum idem_problem_code {
	IDEM_PROBLEM_KEY_MISSING,       /* 400 key-missing */
	IDEM_PROBLEM_KEY_INVALID,       /* 400 key-invalid */
	IDEM_PROBLEM_SCOPE_MISSING,     /* 400 scope-missing */
	IDEM_PROBLEM_KEY_REUSED,        /* 422 key-reused */
	IDEM_PROBLEM_IN_PROGRESS,       /* 409 in-progress; the host may choose 429 */
	IDEM_PROBLEM_OUTCOME_UNKNOWN,   /* 409 outcome-unknown */
	IDEM_PROBLEM_RESPONSE_NOT_KEPT, /* 409 response-not-kept */
	IDEM_PROBLEM_STORE_UNAVAILABLE, /* 503 store-unavailable */
};

#define IDEM_PROBLEM_COUNT 8
#define IDEM_PROBLEM_URL_MAX 4096
#define IDEM_PROBLEM_MEDIA_TYPE "application/problem+json"

struct idem_problem {
	enum idem_problem_code code;
	unsigned status;          /* 0: the code's own */
	struct idem_bytes detail; /* empty: the code's own sentence */
	struct idem_bytes
		docs_url;         /* empty: none.  type is then "urn:idem:problem:CODE", else docs_url#CODE */
	unsigned original_status; /* RESPONSE_NOT_KEPT: 0 leaves the member out */
	struct idem_bytes original_location; /* RESPONSE_NOT_KEPT: empty leaves the member out */
};

/* The code's stable name ("key-missing"), and the status it has by default.  Static. */
IDEM_API const char *idem_problem_name(enum idem_problem_code code);
IDEM_API unsigned idem_problem_status(enum idem_problem_code code);

/*
 * Writes the JSON document.  IDEM_OK and a buffer of *ret_len bytes that the
 * caller frees with free(3); IDEM_E_NOMEM; IDEM_E_INVALID if detail or docs_url is not
 * UTF-8, or docs_url is longer than IDEM_PROBLEM_URL_MAX (an original_location that is not UTF-8 is left out
 * instead: it is the backend's).
 */
IDEM_API int idem_problem_render(const struct idem_problem *problem, char **ret_json,
                                 size_t *ret_len) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
