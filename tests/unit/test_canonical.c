/* The canonical form itself, which is only ever hashed: each text here has the fingerprint of its form. */
#include <openssl/evp.h>

#include "test.h"

static void
add_part(EVP_MD_CTX *sha, const void *data, size_t len)
{
	uint8_t prefix[8];

	for (unsigned i = 0; i < sizeof prefix; i++)
		prefix[i] = (uint8_t)(len >> (8 * i));
	assert_int_equal(EVP_DigestUpdate(sha, prefix, sizeof prefix), 1);
	assert_int_equal(EVP_DigestUpdate(sha, data, len), 1);
}

/* What a fingerprint is, said a second time. */
static struct idem_fingerprint
print_of_form(const char *form)
{
	struct idem_fingerprint print;
	uint8_t digest[IDEM_SHA256_LEN];
	EVP_MD_CTX *sha = EVP_MD_CTX_new();

	assert_non_null(sha);
	assert_int_equal(EVP_Digest(form, strlen(form), digest, NULL, EVP_sha256(), NULL), 1);
	assert_int_equal(EVP_DigestInit_ex(sha, EVP_sha256(), NULL), 1);
	add_part(sha, "idem fingerprint 1", 18);
	add_part(sha, "POST /", 6);
	assert_int_equal(EVP_DigestUpdate(sha, "j", 1), 1);
	assert_int_equal(EVP_DigestUpdate(sha, digest, sizeof digest), 1);
	assert_int_equal(EVP_DigestFinal_ex(sha, print.b, NULL), 1);
	EVP_MD_CTX_free(sha);
	return print;
}

static struct idem_fingerprint
print_of(const char *text)
{
	static const struct idem_body_rules rules = {.mode = IDEM_BODY_JSON, .json_max = 10000};
	struct idem_fingerprint print;
	struct idem_body *body;

	assert_ok(idem_body_new(&rules, &body));
	assert_ok(idem_body_add(body, text, strlen(text)));
	assert_ok(idem_body_finish(body));
	assert_ok(idem_fingerprint_make(bytes_of("POST /"), body, &print));
	idem_body_free(body);
	return print;
}

static void
require_form(const char *text, const char *form)
{
	struct idem_fingerprint a = print_of(text), b = print_of_form(form);

	if (memcmp(&a, &b, sizeof a) != 0)
		fail_msg("%s has not the form %s", text, form);
}

static void
numbers_are_spelled_as_ecmascript_spells_them(void **state)
{
	static const char *const table[][2] = {
		{"-0", "0"},
		{"-0.0", "0"},
		{"1.0", "1"},
		{"-2.50", "-2.5"},
		{"1.5E3", "1500"},
		{"4.350", "4.35"},
		{"1234567.8900", "1234567.89"},
		{"0.000001", "0.000001"},
		{"0.0000001", "1e-7"},
		{"-12.5e-8", "-1.25e-7"},
		{"1e15", "1000000000000000"},
		{"1e21", "1e+21"},
		{"1250e20", "1.25e+23"},
		{"5e-324", "5e-324"},
		{"179769313486231570e291", "1.7976931348623157e+308"},
		{"0.30000000000000004", "0.30000000000000004"},
		{"0.1000000000000000055511151231257827", "0.1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		require_form(table[i][0], table[i][1]);
}

static void
integers_keep_their_digits_and_large_reals_are_none(void **state)
{
	static const char *const table[][2] = {
		{"9007199254740993", "9007199254740993"},
		{"-9223372036854775808", "-9223372036854775808"},
		{"9223372036854775807", "9223372036854775807"},
		{"9007199254740991.0", "9007199254740991"},
		{"9007199254740992.0", "9007199254740992e+0"},
		{"-1e20", "-100000000000000000000e+0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		require_form(table[i][0], table[i][1]);
}

static void
strings_have_only_the_escapes_they_need(void **state)
{
	(void)state;
	require_form("\"\\u0000\\u001F\\u007f\\b\\f\\n\\r\\t\"", "\"\\u0000\\u001f\x7f\\b\\f\\n\\r\\t\"");
	require_form("\"\\u0022\\u005c\\/\\u00e9\\u20AC\"", "\"\\\"\\\\/\xc3\xa9\xe2\x82\xac\"");
	require_form("\"\\uD834\\uDD1E\"", "\"\xf0\x9d\x84\x9e\"");
}

static void
members_are_sorted_by_utf16_code_units(void **state)
{
	(void)state;
	/* U+1D11E is D834 DD1E in UTF-16, and so comes before U+FB33 and after U+20AC. */
	require_form("{\"\\ufb33\":1,\"\\ud834\\udd1e\":2,\"\\u20ac\":3,\"b\":4,\"B\":5,\"\":6,\"\\r\":7,"
	             "\"bb\":8}",
	             "{\"\":6,\"\\r\":7,\"B\":5,\"b\":4,\"bb\":8,\"\xe2\x82\xac\":3,\"\xf0\x9d\x84\x9e\":2,"
	             "\"\xef\xac\xb3\":1}");
	require_form("[ { } , [ ] , true , false , null ]", "[{},[],true,false,null]");
	require_form("{\"z\":{\"b\":[1,2],\"a\":0},\"a\":\"\"}", "{\"a\":\"\",\"z\":{\"a\":0,\"b\":[1,2]}}");
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_spelled_as_ecmascript_spells_them),
		cmocka_unit_test(integers_keep_their_digits_and_large_reals_are_none),
		cmocka_unit_test(strings_have_only_the_escapes_they_need),
		cmocka_unit_test(members_are_sorted_by_utf16_code_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
