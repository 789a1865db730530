/* Keys: which are valid, which are the same, and what cells they name. */
#include "test.h"

static const struct idem_key_rules any = IDEM_KEY_RULES_DEFAULT;

static enum idem_key_fault
parse(const struct idem_key_rules *rules, const char *text, struct idem_key *key)
{
	return idem_key_parse(rules, bytes_of(text), key);
}

static void
bare_and_quoted_spellings_are_the_same_key(void **state)
{
	static const char *const same[][2] = {
		{"abc", "\"abc\""},
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\""},
		{"a\"b\\c", "\"a\\\"b\\\\c\""},
		{"\\\"", "\"\\\\\\\"\""},
		{"a=;,b", " \t\"a=;,b\" \t"},
		{"abc", "  abc\t"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
		struct idem_key bare, quoted;

		assert_int_equal(parse(&any, same[i][0], &bare), IDEM_KEY_OK);
		assert_int_equal(parse(&any, same[i][1], &quoted), IDEM_KEY_OK);
		assert_int_equal(bare.len, quoted.len);
		assert_memory_equal(bare.text, quoted.text, bare.len);
	}
}

static void
malformed_keys_are_refused_each_for_its_own_reason(void **state)
{
	static const struct {
		const char *text;
		enum idem_key_fault fault;
	} bad[] = {
		{"", IDEM_KEY_EMPTY},
		{" \t ", IDEM_KEY_EMPTY},
		{"\"\"", IDEM_KEY_EMPTY},
		{"a b", IDEM_KEY_BAD_BYTE},
		{"a\tb", IDEM_KEY_BAD_BYTE},
		{"a\x01", IDEM_KEY_BAD_BYTE},
		{"\x7f", IDEM_KEY_BAD_BYTE},
		{"\xc3\xa9", IDEM_KEY_BAD_BYTE},
		{"\"a b\"", IDEM_KEY_BAD_BYTE},
		{"\"\xc3\xa9\"", IDEM_KEY_BAD_BYTE},
		{"\"a", IDEM_KEY_UNTERMINATED},
		{"\"", IDEM_KEY_UNTERMINATED},
		{"\"a\\", IDEM_KEY_UNTERMINATED},
		{"\"a\\\"", IDEM_KEY_UNTERMINATED},
		{"\"a\\b\"", IDEM_KEY_BAD_ESCAPE},
		{"\"a\"b", IDEM_KEY_TRAILING},
		{"\"a\";v=1", IDEM_KEY_TRAILING},
		{"\"a\", \"b\"", IDEM_KEY_TRAILING},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct idem_key key = {.len = 77};
		char text[160];

		assert_int_equal(parse(&any, bad[i].text, &key), bad[i].fault);
		assert_int_equal(key.len, 77);
		assert_in_range(idem_key_fault_text(bad[i].fault, &any, text, sizeof text), 10, 159);
		assert_int_equal(text[strlen(text) - 1], '.');
	}
}

static void
a_nul_byte_is_no_key(void **state)
{
	struct idem_key key;

	(void)state;
	assert_int_equal(idem_key_parse(&any, (struct idem_bytes){"a\0b", 3}, &key), IDEM_KEY_BAD_BYTE);
	assert_int_equal(idem_key_from_text(&any, (struct idem_bytes){"a\0b", 3}, &key), IDEM_KEY_BAD_BYTE);
}

static void
strict_syntax_takes_quoted_strings_alone(void **state)
{
	static const struct idem_key_rules strict = {IDEM_KEY_STRICT, IDEM_KEY_ANY, 1, IDEM_KEY_MAX};
	struct idem_key key;

	(void)state;
	assert_int_equal(parse(&strict, "abc-123", &key), IDEM_KEY_NOT_STRING);
	assert_int_equal(parse(&strict, "\"abc-123\"", &key), IDEM_KEY_OK);
}

static void
length_counts_characters_of_the_key_and_not_of_its_spelling(void **state)
{
	static const struct idem_key_rules rules = {IDEM_KEY_LENIENT, IDEM_KEY_ANY, 2, 3};
	struct idem_key key;
	char text[160], longest[600];

	(void)state;
	assert_int_equal(parse(&rules, "\"\\\\\"", &key), IDEM_KEY_TOO_SHORT);
	assert_int_equal(parse(&rules, "\"\\\\\\\\\\\\\"", &key), IDEM_KEY_OK);
	assert_int_equal(parse(&rules, "abcd", &key), IDEM_KEY_TOO_LONG);
	(void)idem_key_fault_text(IDEM_KEY_TOO_LONG, &rules, text, sizeof text);
	assert_non_null(strstr(text, "at most 3"));
	for (size_t len = 254; len < 400; len++) {
		memset(longest, 'x', len);
		longest[len] = '\0';
		assert_int_equal(parse(&any, longest, &key),
		                 len <= IDEM_KEY_MAX ? IDEM_KEY_OK : IDEM_KEY_TOO_LONG);
		longest[0] = '"';
		longest[len - 1] = '"';
		assert_int_equal(parse(&any, longest, &key),
		                 len - 2 <= IDEM_KEY_MAX ? IDEM_KEY_OK : IDEM_KEY_TOO_LONG);
	}
}

static void
uuid_format_takes_uuids_alone(void **state)
{
	static const struct idem_key_rules uuid = {IDEM_KEY_LENIENT, IDEM_KEY_UUID, 1, IDEM_KEY_MAX};
	struct idem_key key;

	(void)state;
	assert_int_equal(parse(&uuid, "8E03978e-40d5-43dd-bc93-6894a57f9324", &key), IDEM_KEY_OK);
	assert_int_equal(parse(&uuid, "8e03978e-40d5-43dd-bc93-6894a57f932", &key), IDEM_KEY_NOT_UUID);
	assert_int_equal(parse(&uuid, "8e03978e-40d5-43dd-bc93-6894a57f932g", &key), IDEM_KEY_NOT_UUID);
	assert_int_equal(parse(&uuid, "8e03978ea40d5-43dd-bc93-6894a57f9324", &key), IDEM_KEY_NOT_UUID);
}

static void
text_from_a_body_is_the_key_as_it_stands(void **state)
{
	struct idem_key key;

	(void)state;
	assert_int_equal(idem_key_from_text(&any, bytes_of("\"a\""), &key), IDEM_KEY_OK);
	assert_int_equal(key.len, 3);
	assert_int_equal(idem_key_from_text(&any, bytes_of(" a"), &key), IDEM_KEY_BAD_BYTE);
}

static struct idem_id
id_of(const char *scope, const char *text)
{
	struct idem_key key;
	struct idem_id id;

	assert_int_equal(parse(&any, text, &key), IDEM_KEY_OK);
	assert_ok(idem_id_make(bytes_of(scope), &key, &id));
	return id;
}

static void
cells_differ_where_scope_or_key_do_also_at_their_seam(void **state)
{
	struct idem_id a = id_of("alice", "k1"), again = id_of("alice", "k1"), b = id_of("bob", "k1"),
		       seam = id_of("alic", "ek1"), other = id_of("alice", "k2");
	char text[IDEM_ID_TEXT_LEN];

	(void)state;
	assert_memory_equal(&a, &again, sizeof a);
	assert_memory_not_equal(&a, &b, sizeof a);
	assert_memory_not_equal(a.b + 16, b.b + 16, 16);
	assert_memory_not_equal(a.b + 16, seam.b + 16, 16);
	assert_memory_equal(a.b, other.b, 16); /* one scope */
	assert_memory_not_equal(a.b + 16, other.b + 16, 16);
	idem_id_text(&a, text);
	assert_int_equal(strlen(text), 64);
	assert_null(strstr(text, "alice"));
}

static void
ids_are_the_same_in_every_version(void **state)
{
	struct idem_id id = id_of("alice", "k1");
	char text[IDEM_ID_TEXT_LEN];

	(void)state;
	idem_id_text(&id, text);
	/* A change here would execute every key once more after an upgrade. */
	assert_string_equal(text, "1baa620543fa01d055e89b002903a191451ad5c5f21b7c700b01029d2e6c9425");
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(bare_and_quoted_spellings_are_the_same_key),
		cmocka_unit_test(malformed_keys_are_refused_each_for_its_own_reason),
		cmocka_unit_test(a_nul_byte_is_no_key),
		cmocka_unit_test(strict_syntax_takes_quoted_strings_alone),
		cmocka_unit_test(length_counts_characters_of_the_key_and_not_of_its_spelling),
		cmocka_unit_test(uuid_format_takes_uuids_alone),
		cmocka_unit_test(text_from_a_body_is_the_key_as_it_stands),
		cmocka_unit_test(cells_differ_where_scope_or_key_do_also_at_their_seam),
		cmocka_unit_test(ids_are_the_same_in_every_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
