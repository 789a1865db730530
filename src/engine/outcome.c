/* What becomes of a key after an execution: a table, read from top to bottom. */
#include <idem/outcome.h>

static const uint16_t default_retryable[] = {401, 408, 425, 429, 503};
static const uint16_t default_unknown[] = {502, 504};

const struct idem_outcome_rules idem_outcome_rules_default = {
	default_retryable,
	sizeof default_retryable / sizeof default_retryable[0],
	default_unknown,
	sizeof default_unknown / sizeof default_unknown[0],
};

static bool
among(unsigned status, const uint16_t *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == status)
			return true;
	return false;
}

enum idem_outcome
idem_outcome_of(const struct idem_outcome_rules *rules, const struct idem_execution *execution)
{
	bool retryable = among(execution->status, rules->retryable, rules->retryable_count);

	if (!execution->sent)
		return IDEM_OUTCOME_RELEASE;
	if (!execution->whole || !execution->from_backend)
		return IDEM_OUTCOME_DOUBT;
	if (execution->earlier_lost && retryable)
		return IDEM_OUTCOME_DOUBT;
	if (among(execution->status, rules->unknown, rules->unknown_count))
		return IDEM_OUTCOME_DOUBT;
	return retryable ? IDEM_OUTCOME_RELEASE : IDEM_OUTCOME_KEEP;
}
