/* Fingerprints: which bodies are the same request, and which never are. */
#include "test.h"

static const struct idem_body_rules raw = {.mode = IDEM_BODY_RAW};
static const struct idem_body_rules json = {.mode = IDEM_BODY_JSON, .json_max = 1 << 20};
static const struct idem_body_rules off = {.mode = IDEM_BODY_OFF};

static struct idem_fingerprint
print_of_bytes(const struct idem_body_rules *rules, const char *request, struct idem_bytes text, size_t step)
{
	struct idem_fingerprint fingerprint;
	struct idem_body *body;

	assert_ok(idem_body_new(rules, &body));
	for (size_t i = 0; i < text.len; i += step) {
		size_t n = text.len - i < step ? text.len - i : step;

		assert_ok(idem_body_add(body, (const char *)text.data + i, n));
	}
	assert_ok(idem_body_finish(body));
	assert_ok(idem_fingerprint_make(bytes_of(request), body, &fingerprint));
	idem_body_free(body);
	return fingerprint;
}

static struct idem_fingerprint
print_of(const struct idem_body_rules *rules, const char *text)
{
	return print_of_bytes(rules, "POST /a", bytes_of(text), 1000000);
}

static bool
same(const struct idem_body_rules *rules, const char *a, const char *b)
{
	struct idem_fingerprint x = print_of(rules, a), y = print_of(rules, b);

	return memcmp(&x, &y, sizeof x) == 0;
}

static void
raw_bodies_are_the_same_byte_for_byte_however_they_arrive(void **state)
{
	struct idem_fingerprint whole = print_of_bytes(&raw, "POST /a", bytes_of("0123456789"), 10);
	struct idem_fingerprint pieces = print_of_bytes(&raw, "POST /a", bytes_of("0123456789"), 1);

	(void)state;
	assert_memory_equal(&whole, &pieces, sizeof whole);
	assert_false(same(&raw, "{\"a\":1}", "{\"a\": 1}"));
	assert_false(same(&raw, "a", ""));
	assert_true(same(&off, "a", "b"));
}

static void
the_name_of_the_request_counts_and_its_seam_to_the_body_too(void **state)
{
	struct idem_fingerprint a = print_of_bytes(&raw, "POST /a", bytes_of("b"), 10);
	struct idem_fingerprint b = print_of_bytes(&raw, "POST /ab", bytes_of(""), 10);
	struct idem_fingerprint c = print_of_bytes(&raw, "PUT /a", bytes_of("b"), 10);

	(void)state;
	assert_memory_not_equal(&a, &b, sizeof a);
	assert_memory_not_equal(&a, &c, sizeof a);
}

static void
no_body_is_an_empty_body(void **state)
{
	struct idem_fingerprint none, empty = print_of(&raw, "");

	(void)state;
	assert_ok(idem_fingerprint_make(bytes_of("POST /a"), NULL, &none));
	assert_memory_equal(&none, &empty, sizeof none);
}

static void
fingerprints_are_the_same_in_every_version(void **state)
{
	struct idem_fingerprint fingerprint = print_of(&raw, "{}");
	char text[65];

	(void)state;
	for (size_t i = 0; i < 32; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", fingerprint.b[i]);
	/* A change here would refuse every retry after an upgrade. */
	assert_string_equal(text, "dc77149982e7ddc442c4a4e2e550b01cceb764a67506af997da7f05ac587aa23");
	fingerprint = print_of(&json, "{\"b\":[1.5,null],\"a\":\"\\u00e9\"}");
	for (size_t i = 0; i < 32; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", fingerprint.b[i]);
	assert_string_equal(text, "e5543bdac0351c418efb461b8efbdbb9cff909f56d7bc811de818c499583dcd5");
}

static void
json_that_means_the_same_is_the_same(void **state)
{
	static const char *const pairs[][2] = {
		{"{\"a\":1,\"b\":2}", " { \"b\" : 2 , \"a\" : 1 } "},
		{"1", "1.0"},
		{"1", "1e0"},
		{"100", "1E2"},
		{"0", "-0"},
		{"0.0", "-0.0"},
		{"[1.5,1e21,1e-7]", "[15e-1,1000000000000000000000.0,0.0000001]"},
		{"\"\\u00e9\"", "\"\xc3\xa9\""},
		{"\"\\/\"", "\"/\""},
		{"\"\\u000a\"", "\"\\n\""},
		{"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
		{"{\"\\ud83d\\ude00\":1,\"\\uffee\":2}", "{\"\\uffee\":2,\"\\ud83d\\ude00\":1}"},
		{"{\"a\":{\"y\":[],\"x\":{}}}", "{\"a\":{\"x\":{},\"y\":[]}}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		assert_true(same(&json, pairs[i][0], pairs[i][1]));
}

static void
json_that_differs_in_meaning_differs(void **state)
{
	static const char *const pairs[][2] = {
		{"9007199254740993", "9007199254740992"},
		{"9223372036854775807", "9223372036854775806"},
		{"9007199254740993.0", "9007199254740992"}, /* rounded, it may have been either */
		{"1234567890123456789.0", "1234567890123456800"},
		{"[1,2]", "[2,1]"},
		{"1", "\"1\""},
		{"null", "\"null\""},
		{"{\"a\":1}", "{\"A\":1}"},
		{"{\"a\":null}", "{}"},
		{"[[]]", "[]"},
		{"{\"a\":{\"b\":1},\"c\":2}", "{\"a\":{\"b\":1,\"c\":2}}"},
		{"0.1", "0.10000000000000002"},
		{"[1]", "1"},
		{"{\"a\":1,\"a\":1}", "{\"a\":1}"}, /* twice: no JSON, raw */
		{"{\"a\":1", "{\"a\":1 "},          /* no JSON: raw */
		{"", "null"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		assert_false(same(&json, pairs[i][0], pairs[i][1]));
}

static void
what_is_no_json_is_hashed_raw_and_never_meets_json(void **state)
{
	char deep[400], deeper[402];

	(void)state;
	assert_true(same(&json, "not json", "not json"));
	assert_false(same(&json, "not json", "not  json"));
	assert_true(same(&json, "1e999", "1e999"));
	memset(deep, '[', 200);
	memset(deep + 200, ']', 200);
	deep[399] = '\0';
	(void)snprintf(deeper, sizeof deeper, "%s ", deep);
	assert_false(same(&json, deep, deeper));
}

static void
json_longer_than_its_limit_is_hashed_raw(void **state)
{
	static const struct idem_body_rules small = {.mode = IDEM_BODY_JSON, .json_max = 8};

	(void)state;
	assert_true(same(&small, "[1, 2]", "[1,2]"));
	assert_false(same(&small, "[1, 2, 3]", "[1,2,3,4]"));
	assert_false(same(&small, "[1,2,3, 4]", "[1,2,3,4]"));
}

static struct idem_pointer *
pointer_of(const char *text)
{
	struct idem_pointer *pointer = NULL;

	assert_ok(idem_pointer_parse(bytes_of(text), &pointer));
	return pointer;
}

static void
ignored_members_do_not_count(void **state)
{
	struct idem_pointer *ignore[] = {pointer_of("/meta/sent"), pointer_of("/list/1"),
	                                 pointer_of("/a~1b~0c")};
	struct idem_body_rules rules = {
		.mode = IDEM_BODY_JSON, .ignore = ignore, .ignore_count = 3, .json_max = 1000};

	(void)state;
	assert_true(same(&rules, "{\"x\":1,\"meta\":{\"sent\":1}}", "{\"x\":1,\"meta\":{\"sent\":[2]}}"));
	assert_true(same(&rules, "{\"x\":1,\"meta\":{\"sent\":1}}", "{\"x\":1,\"meta\":{}}"));
	assert_true(same(&rules, "{\"a/b~c\":1}", "{}"));
	assert_true(same(&rules, "{\"list\":[1,2,3]}", "{\"list\":[1,9,3]}"));
	assert_false(same(&rules, "{\"x\":1,\"meta\":{\"sent\":1}}", "{\"x\":2,\"meta\":{\"sent\":1}}"));
	assert_false(same(&rules, "{\"sent\":1}", "{\"sent\":2}"));
	for (size_t i = 0; i < 3; i++)
		idem_pointer_free(ignore[i]);
}

static void
only_some_members_may_count_and_an_absent_one_is_not_null(void **state)
{
	struct idem_pointer *only[] = {pointer_of("/amount"), pointer_of("/to/iban")};
	struct idem_body_rules rules = {
		.mode = IDEM_BODY_JSON, .only = only, .only_count = 2, .json_max = 1000};
	struct idem_body *body;

	(void)state;
	assert_true(same(&rules, "{\"amount\":1,\"s\":1}", "{\"s\":2,\"amount\":1.0}"));
	assert_false(same(&rules, "{\"amount\":1}", "{\"amount\":2}"));
	assert_false(same(&rules, "{\"amount\":null}", "{}"));
	assert_false(same(&rules, "{\"amount\":1,\"to\":{\"iban\":\"x\"}}", "{\"amount\":1}"));
	assert_false(same(&rules, "{\"amount\":\"x\"}", "{\"to\":{\"iban\":\"x\"}}"));
	rules.ignore = only;
	rules.ignore_count = 1;
	assert_int_equal(idem_body_new(&rules, &body), IDEM_E_INVALID);
	idem_pointer_free(only[0]);
	idem_pointer_free(only[1]);
}

static void
pointers_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = {"a", "/~", "/a~2", "/~a", "/\xff", " /a"};
	struct idem_pointer *pointer;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(idem_pointer_parse(bytes_of(bad[i]), &pointer), IDEM_E_INVALID);
	idem_pointer_free(pointer_of(""));
	idem_pointer_free(pointer_of("/"));
	idem_pointer_free(NULL);
}

static enum idem_member
member(const char *text, const char *path, char *out)
{
	struct idem_body_rules rules = {.keep_json = true, .json_max = 100};
	struct idem_pointer *pointer = pointer_of(path);
	struct idem_bytes found = {"", 0};
	struct idem_body *body;
	enum idem_member result;

	assert_ok(idem_body_new(&rules, &body));
	assert_ok(idem_body_add(body, text, strlen(text)));
	assert_ok(idem_body_finish(body));
	result = idem_body_member(body, pointer, &found);
	memcpy(out, found.data, found.len);
	out[found.len] = '\0';
	idem_body_free(body);
	idem_pointer_free(pointer);
	return result;
}

static void
members_of_a_body_are_found_as_text(void **state)
{
	char text[200];

	(void)state;
	assert_int_equal(member("{\"a\":{\"b\":\"x\\u00e9\"}}", "/a/b", text), IDEM_MEMBER_FOUND);
	assert_string_equal(text, "x\xc3\xa9");
	assert_int_equal(member("{\"a\":[0,-12]}", "/a/1", text), IDEM_MEMBER_FOUND);
	assert_string_equal(text, "-12");
	assert_int_equal(member("\"top\"", "", text), IDEM_MEMBER_FOUND);
	assert_int_equal(member("{\"a\":[1]}", "/a/01", text), IDEM_MEMBER_ABSENT);
	assert_int_equal(member("{\"a\":[1]}", "/a/-", text), IDEM_MEMBER_ABSENT);
	assert_int_equal(member("{\"a\":null}", "/a", text), IDEM_MEMBER_ABSENT);
	assert_int_equal(member("{\"a\":1}", "/a/b", text), IDEM_MEMBER_ABSENT);
	assert_int_equal(member("{\"a\":1.5}", "/a", text), IDEM_MEMBER_NOT_TEXT);
	assert_int_equal(member("{\"a\":{}}", "/a", text), IDEM_MEMBER_NOT_TEXT);
	assert_int_equal(member("nonsense", "/a", text), IDEM_MEMBER_NOT_JSON);
	assert_int_equal(member("", "/a", text), IDEM_MEMBER_NOT_JSON);
}

/* A random value, written once plainly and once with other spellings of the same. */
static void
write_value(unsigned *seed, int depth, char **p, char **q)
{
	static const char *const numbers[][2] = {
		{"1", "1.0"}, {"250", "2.5e2"}, {"0", "-0.0"}, {"-7", "-7e0"}};
	static const char *const strings[][2] = {{"\"k\"", "\"\\u006b\""},
	                                         {"\"\xc3\xa9\"", "\"\\u00E9\""},
	                                         {"\"a/b\"", "\"a\\/b\""},
	                                         {"\"\"", " \"\" "}};
	int kind = rand_r(seed) % (depth > 0 ? 4 : 2), i = rand_r(seed) % 4, n = rand_r(seed) % 4;
	char *members[4][2], buffer[4][2][3000];

	if (kind == 0 || kind == 1) {
		*p += sprintf(*p, "%s", kind == 0 ? numbers[i][0] : strings[i][0]);
		*q += sprintf(*q, "%s", kind == 0 ? numbers[i][1] : strings[i][1]);
		return;
	}
	for (int m = 0; m < n; m++) {
		char *a = buffer[m][0], *b = buffer[m][1];

		members[m][0] = a;
		members[m][1] = b;
		if (kind == 2) {
			a += sprintf(a, "\"m%d\":", m);
			b += sprintf(b, " \"\\u006d%d\" : ", m);
		}
		write_value(seed, depth - 1, &a, &b);
	}
	*p += sprintf(*p, "%s", kind == 2 ? "{" : "[");
	*q += sprintf(*q, "%s", kind == 2 ? " {" : "[\n");
	for (int m = 0; m < n; m++) {
		*p += sprintf(*p, "%s%s", m > 0 ? "," : "", members[m][0]);
		*q += sprintf(*q, "%s%s", m > 0 ? " , " : "", members[kind == 2 ? n - 1 - m : m][1]);
	}
	*p += sprintf(*p, "%s", kind == 2 ? "}" : "]");
	*q += sprintf(*q, "%s", kind == 2 ? "}\t" : " ]");
}

static void
random_values_have_one_fingerprint_in_every_spelling(void **state)
{
	unsigned seed = 20261201;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		static char a[20000], b[20000];
		char *p = a, *q = b;
		unsigned begin = seed;

		write_value(&seed, 3, &p, &q);
		if (!same(&json, a, b))
			fail_msg("seed %u: %s and %s", begin, a, b);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(raw_bodies_are_the_same_byte_for_byte_however_they_arrive),
		cmocka_unit_test(the_name_of_the_request_counts_and_its_seam_to_the_body_too),
		cmocka_unit_test(no_body_is_an_empty_body),
		cmocka_unit_test(fingerprints_are_the_same_in_every_version),
		cmocka_unit_test(json_that_means_the_same_is_the_same),
		cmocka_unit_test(json_that_differs_in_meaning_differs),
		cmocka_unit_test(what_is_no_json_is_hashed_raw_and_never_meets_json),
		cmocka_unit_test(json_longer_than_its_limit_is_hashed_raw),
		cmocka_unit_test(ignored_members_do_not_count),
		cmocka_unit_test(only_some_members_may_count_and_an_absent_one_is_not_null),
		cmocka_unit_test(pointers_that_are_none_are_refused),
		cmocka_unit_test(members_of_a_body_are_found_as_text),
		cmocka_unit_test(random_values_have_one_fingerprint_in_every_spelling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
