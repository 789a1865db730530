/* Outcomes and problem documents: what becomes of a key, and how it is said. */
#include <jansson.h>

#include "test.h"

static enum idem_outcome
outcome(bool sent, bool earlier_lost, bool whole, bool from_backend, unsigned status)
{
	struct idem_execution execution = {sent, earlier_lost, whole, from_backend, status};

	return idem_outcome_of(&idem_outcome_rules_default, &execution);
}

static void
the_table_of_outcomes(void **state)
{
	static const unsigned kept[] = {200, 201, 204, 301, 302, 304, 400, 402,
	                                403, 404, 409, 422, 500, 501, 505};
	static const unsigned released[] = {401, 408, 425, 429, 503};
	static const unsigned unknown[] = {502, 504};

	(void)state;
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
		assert_int_equal(outcome(true, false, true, true, kept[i]), IDEM_OUTCOME_KEEP);
		assert_int_equal(outcome(true, true, true, true, kept[i]), IDEM_OUTCOME_KEEP);
		assert_int_equal(outcome(true, false, false, true, kept[i]), IDEM_OUTCOME_DOUBT);
		assert_int_equal(outcome(true, false, true, false, kept[i]), IDEM_OUTCOME_DOUBT);
		assert_int_equal(outcome(false, false, true, true, kept[i]), IDEM_OUTCOME_RELEASE);
	}
	for (size_t i = 0; i < sizeof released / sizeof released[0]; i++) {
		assert_int_equal(outcome(true, false, true, true, released[i]), IDEM_OUTCOME_RELEASE);
		assert_int_equal(outcome(true, true, true, true, released[i]), IDEM_OUTCOME_DOUBT);
		assert_int_equal(outcome(true, false, false, true, released[i]), IDEM_OUTCOME_DOUBT);
	}
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
		assert_int_equal(outcome(true, false, true, true, unknown[i]), IDEM_OUTCOME_DOUBT);
		assert_int_equal(outcome(false, false, true, false, unknown[i]), IDEM_OUTCOME_RELEASE);
	}
}

static json_t *
render(const struct idem_problem *problem)
{
	char *text;
	size_t len;
	json_t *json;

	assert_ok(idem_problem_render(problem, &text, &len));
	json = json_loadb(text, len, 0, NULL);
	free(text);
	assert_non_null(json);
	return json;
}

static const char *
string(json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

static void
every_problem_has_type_title_status_detail_and_code(void **state)
{
	static const struct {
		enum idem_problem_code code;
		unsigned status;
		const char *name;
	} table[IDEM_PROBLEM_COUNT] = {
		{IDEM_PROBLEM_KEY_MISSING, 400, "key-missing"},
		{IDEM_PROBLEM_KEY_INVALID, 400, "key-invalid"},
		{IDEM_PROBLEM_SCOPE_MISSING, 400, "scope-missing"},
		{IDEM_PROBLEM_KEY_REUSED, 422, "key-reused"},
		{IDEM_PROBLEM_IN_PROGRESS, 409, "in-progress"},
		{IDEM_PROBLEM_OUTCOME_UNKNOWN, 409, "outcome-unknown"},
		{IDEM_PROBLEM_RESPONSE_NOT_KEPT, 409, "response-not-kept"},
		{IDEM_PROBLEM_STORE_UNAVAILABLE, 503, "store-unavailable"},
	};

	(void)state;
	for (size_t i = 0; i < IDEM_PROBLEM_COUNT; i++) {
		struct idem_problem problem = {.code = table[i].code};
		json_t *json = render(&problem);
		char type[64];

		(void)snprintf(type, sizeof type, "urn:idem:problem:%s", table[i].name);
		assert_string_equal(string(json, "type"), type);
		assert_string_equal(string(json, "code"), table[i].name);
		assert_string_equal(idem_problem_name(table[i].code), table[i].name);
		assert_int_equal(json_integer_value(json_object_get(json, "status")), table[i].status);
		assert_int_equal(idem_problem_status(table[i].code), table[i].status);
		assert_non_null(string(json, "title"));
		assert_non_null(string(json, "detail"));
		assert_int_equal(json_object_size(json), 5);
		json_decref(json);
	}
}

static void
the_host_may_add_to_a_problem(void **state)
{
	struct idem_problem problem = {.code = IDEM_PROBLEM_RESPONSE_NOT_KEPT,
	                               .status = 410,
	                               .detail = {"Said \"so\".", 10},
	                               .docs_url = {"https://x.example/d", 19},
	                               .original_status = 201,
	                               .original_location = {"/o/1", 4}};
	json_t *json = render(&problem);

	(void)state;
	assert_string_equal(string(json, "type"), "https://x.example/d#response-not-kept");
	assert_string_equal(string(json, "detail"), "Said \"so\".");
	assert_string_equal(string(json, "original_location"), "/o/1");
	assert_int_equal(json_integer_value(json_object_get(json, "original_status")), 201);
	assert_int_equal(json_integer_value(json_object_get(json, "status")), 410);
	json_decref(json);
	problem.original_location = (struct idem_bytes){"/\xff", 2};
	json = render(&problem);
	assert_null(json_object_get(json, "original_location"));
	json_decref(json);
}

static void
what_is_not_utf8_is_refused(void **state)
{
	struct idem_problem problem = {.code = IDEM_PROBLEM_KEY_INVALID, .detail = {"\xff", 1}};
	char *text;
	size_t len;

	(void)state;
	assert_int_equal(idem_problem_render(&problem, &text, &len), IDEM_E_INVALID);
}

static void
every_status_has_words(void **state)
{
	(void)state;
	for (int status = IDEM_E_SYSTEM; status <= IDEM_PENDING; status++)
		assert_string_not_equal(idem_strerror(status), "unknown status");
	assert_string_equal(idem_strerror(99), "unknown status");
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_of_outcomes),
		cmocka_unit_test(every_problem_has_type_title_status_detail_and_code),
		cmocka_unit_test(the_host_may_add_to_a_problem),
		cmocka_unit_test(what_is_not_utf8_is_refused),
		cmocka_unit_test(every_status_has_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
