/* What every store that keeps cells itself decides in the same way: see idem/store.h for the promises. */
#ifndef IDEM_STORES_RULES_H
#define IDEM_STORES_RULES_H

#include <string.h>

#include <idem/store.h>

/* How old a cell is.  A clock that others read later may be a little behind. */
static inline uint64_t
idem_rule_age_ms(uint64_t stamp_ms, uint64_t now_ms)
{
	return now_ms > stamp_ms ? now_ms - stamp_ms : 0;
}

/* Its time is over: it is as if it had never been. */
static inline bool
idem_rule_is_over(uint64_t stamp_ms, uint64_t retain_ms, uint64_t now_ms)
{
	return now_ms >= stamp_ms && now_ms - stamp_ms >= retain_ms;
}

/* A payload leaves the store for nobody but a caller that wants it and brings the cell's own fingerprint. */
static inline bool
idem_rule_may_see_payload(enum idem_state state, const struct idem_fingerprint *kept,
                          const struct idem_fingerprint *brought, bool wanted)
{
	return wanted && state == IDEM_STORED && memcmp(kept->b, brought->b, IDEM_FINGERPRINT_LEN) == 0;
}

/* Those who watch the cell want to hear of this write: it is no renewal by the lock's owner. */
static inline bool
idem_rule_is_news(const struct idem_cell *write, const struct idem_tag *expect)
{
	return write->state != IDEM_LOCKED || !idem_tag_same_owner(&write->tag, expect);
}

#endif
