/*
 * idem/outcome.h - what becomes of a key once its request was executed, or not.
 *
 * Pure: what the host saw goes in, one of three outcomes comes out.
 */
#ifndef IDEM_OUTCOME_H
#define IDEM_OUTCOME_H

#include <idem/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum idem_outcome {
	IDEM_OUTCOME_KEEP,    /* a whole answer: complete */
	IDEM_OUTCOME_RELEASE, /* known not to have executed: release */
	IDEM_OUTCOME_DOUBT,   /* nobody knows: give up */
};

struct idem_outcome_rules {
	const uint16_t *retryable; /* statuses by which a backend says that it did not do it */
	size_t retryable_count;
	const uint16_t *unknown; /* statuses by which it says that it does not know either */
	size_t unknown_count;
};

/* RFC 9110 statuses, as DESIGN has them: 401 408 425 429 503, and 502 504. */
IDEM_API extern const struct idem_outcome_rules idem_outcome_rules_default;

/* What the host saw of one execution. */
struct idem_execution {
	/* At least one byte of the request may have reached a backend. */
	bool sent;
	/* An earlier attempt of the host itself was sent and brought no answer, whatever a later one brought.
	 */
	bool earlier_lost;
	/* A whole answer came, from its status line to its last byte. */
	bool whole;
	/* The answer was made by the backend (and not by the host in its stead). */
	bool from_backend;
	unsigned status;
};

/*
 * The outcome of an execution:
 *
 *   nothing was sent                                release
 *   no whole answer                                 doubt
 *   a whole answer made by the host in the backend's stead    doubt
 *   an earlier attempt was lost                     doubt for a retryable status, else as below
 *   status among unknown                            doubt
 *   status among retryable                          release
 *   any other whole answer                          keep
 *
 * A status that stands in both lists is unknown.
 */
IDEM_API enum idem_outcome idem_outcome_of(const struct idem_outcome_rules *rules,
                                           const struct idem_execution *execution) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
