/*
 * Keys.  Input: a byte of rules, two of lengths, then the field's value.  Whatever comes in, a key is visible
 * ASCII within its limits, and each of its spellings is the same key.
 */
#include "fuzz.h"

static struct idem_key_rules
rules_of(const uint8_t *data)
{
	struct idem_key_rules rules;

	rules.syntax = (data[0] & 1) != 0 ? IDEM_KEY_STRICT : IDEM_KEY_LENIENT;
	rules.format = (data[0] & 2) != 0 ? IDEM_KEY_UUID : IDEM_KEY_ANY;
	rules.min_len = data[1] > 0 ? data[1] : 1;
	rules.max_len = data[2] > rules.min_len ? data[2] : rules.min_len;
	return rules;
}

static void
require_key(const struct idem_key_rules *rules, const struct idem_key *key)
{
	require(key->len >= rules->min_len && key->len <= rules->max_len);
	for (size_t i = 0; i < key->len; i++)
		require(key->text[i] >= 0x21 && key->text[i] <= 0x7e);
}

static void
require_same(enum idem_key_fault fault, const struct idem_key *a, const struct idem_key *b)
{
	require(fault == IDEM_KEY_OK);
	require(a->len == b->len && memcmp(a->text, b->text, a->len) == 0);
}

static void
require_one_key_for_all_spellings(struct idem_key_rules rules, const struct idem_key *key)
{
	char quoted[2 * IDEM_KEY_MAX + 4] = " \"";
	struct idem_bytes bare = {key->text, key->len};
	struct idem_key again;
	size_t n = 2;

	for (size_t i = 0; i < key->len; i++) {
		if (key->text[i] == '"' || key->text[i] == '\\')
			quoted[n++] = '\\';
		quoted[n++] = key->text[i];
	}
	quoted[n++] = '"';
	rules.syntax = IDEM_KEY_STRICT;
	require_same(idem_key_parse(&rules, (struct idem_bytes){quoted, n}, &again), key, &again);
	require_same(idem_key_from_text(&rules, bare, &again), key, &again);
	rules.syntax = IDEM_KEY_LENIENT;
	if (key->text[0] != '"')
		require_same(idem_key_parse(&rules, bare, &again), key, &again);
}

static void
require_a_sentence(enum idem_key_fault fault, const struct idem_key_rules *rules)
{
	char text[160], cut[8];
	size_t len = idem_key_fault_text(fault, rules, text, sizeof text);

	require(len > 0 && len == strlen(text) && len < sizeof text - 1 && text[len - 1] == '.');
	require(idem_key_fault_text(fault, rules, cut, sizeof cut) == strlen(cut));
	require(idem_key_fault_text(fault, rules, cut, 0) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct idem_key_rules rules;
	struct idem_key key, untouched;
	enum idem_key_fault fault;
	char *field;

	if (size < 3)
		return 0;
	rules = rules_of(data);
	memset(&key, 0x55, sizeof key);
	untouched = key;
	field = exact_copy(data + 3, size - 3);
	fault = idem_key_parse(&rules, (struct idem_bytes){field, size - 3}, &key);
	if (fault == IDEM_KEY_OK) {
		require_key(&rules, &key);
		require_one_key_for_all_spellings(rules, &key);
	} else {
		require(memcmp(&key, &untouched, sizeof key) == 0);
		require_a_sentence(fault, &rules);
	}
	if (idem_key_from_text(&rules, (struct idem_bytes){field, size - 3}, &key) == IDEM_KEY_OK)
		require_key(&rules, &key);
	free(field);
	return 0;
}
