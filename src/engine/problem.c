/* Problem details (RFC 9457) for the answers Idem gives itself. */
#include <stdlib.h>

#include <jansson.h>

#include <idem/problem.h>

#include "utf8.h"

/* Titles are those of draft-ietf-httpapi-idempotency-key-header, section 2.7, where it has one. */
static const struct {
	unsigned status;
	const char *name, *title, *detail;
} problems[IDEM_PROBLEM_COUNT] = {
	[IDEM_PROBLEM_KEY_MISSING] = {400, "key-missing", "Idempotency-Key is missing",
                                      "This operation is idempotent and requires a key. Send one unique key "
                                      "per operation, and the same one on each retry."},
	[IDEM_PROBLEM_KEY_INVALID] = {400, "key-invalid", "Idempotency-Key is invalid",
                                      "The key breaks the rules of this service."},
	[IDEM_PROBLEM_SCOPE_MISSING] = {400, "scope-missing", "The caller is not known",
                                        "A key belongs to a caller, and this request does not say who calls. "
                                        "Send your credentials with it."},
	[IDEM_PROBLEM_KEY_REUSED] = {422, "key-reused", "Idempotency-Key is already used",
                                     "This key was used before for a different request. Use a new key for a "
                                     "new operation."},
	[IDEM_PROBLEM_IN_PROGRESS] = {409, "in-progress", "A request is outstanding for this Idempotency-Key",
                                      "The first request with this key is still being processed. Retry later "
                                      "with the same key."},
	[IDEM_PROBLEM_OUTCOME_UNKNOWN] =
		{409, "outcome-unknown", "The outcome of the first request is not known",
                 "A request with this key may have been executed, and its response was lost. Find out by "
                 "other means whether it was before you send it with a new key."},
	[IDEM_PROBLEM_RESPONSE_NOT_KEPT] =
		{409, "response-not-kept", "The response to the first request was not kept",
                 "The request with this key was executed, and its response could not be kept to be sent "
                 "again. Do not send the request with a new key."},
	[IDEM_PROBLEM_STORE_UNAVAILABLE] =
		{503, "store-unavailable", "Idempotency cannot be guaranteed at the moment",
                 "The request was not executed, because its key cannot be recorded. Retry later with the "
                 "same key."},
};

const char *
idem_problem_name(enum idem_problem_code code)
{
	return problems[code].name;
}

unsigned
idem_problem_status(enum idem_problem_code code)
{
	return problems[code].status;
}

static json_t *
type_of(const struct idem_problem *problem)
{
	const char *name = problems[problem->code].name;

	if (problem->docs_url.len == 0)
		return json_sprintf("urn:idem:problem:%s", name);
	return json_sprintf("%.*s#%s", (int)problem->docs_url.len, (const char *)problem->docs_url.data,
	                    name);
}

static json_t *
detail_of(const struct idem_problem *problem)
{
	if (problem->detail.len == 0)
		return json_string(problems[problem->code].detail);
	return json_stringn(problem->detail.data, problem->detail.len);
}

/* The backend's own words: what is not UTF-8 is left out. */
static int
add_original(json_t *object, const struct idem_problem *problem)
{
	struct idem_bytes location = problem->original_location;
	int rc = 0;

	if (problem->original_status != 0)
		rc = json_object_set_new(object, "original_status", json_integer(problem->original_status));
	if (rc == 0 && location.len > 0 && idem_is_utf8(location))
		rc = json_object_set_new(object, "original_location",
		                         json_stringn(location.data, location.len));
	return rc;
}

static json_t *
build(const struct idem_problem *problem)
{
	unsigned status = problem->status != 0 ? problem->status : problems[problem->code].status;
	json_t *object = json_object();

	/* json_object_set_new() refuses a NULL, of an object or of a value, and frees the value. */
	if (json_object_set_new(object, "type", type_of(problem)) != 0 ||
	    json_object_set_new(object, "title", json_string(problems[problem->code].title)) != 0 ||
	    json_object_set_new(object, "status", json_integer(status)) != 0 ||
	    json_object_set_new(object, "detail", detail_of(problem)) != 0 ||
	    json_object_set_new(object, "code", json_string(problems[problem->code].name)) != 0 ||
	    add_original(object, problem) != 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}

/* Into memory of malloc(3), which json_dumps() is not where a host has given jansson an allocator of its own.
 */
static int
dump(const json_t *object, char **ret_json, size_t *ret_len)
{
	size_t len = json_dumpb(object, NULL, 0, JSON_COMPACT);
	char *text = len > 0 ? malloc(len) : NULL;

	if (text == NULL)
		return IDEM_E_NOMEM;
	if (json_dumpb(object, text, len, JSON_COMPACT) != len) {
		free(text);
		return IDEM_E_NOMEM;
	}
	*ret_json = text;
	*ret_len = len;
	return IDEM_OK;
}

int
idem_problem_render(const struct idem_problem *problem, char **ret_json, size_t *ret_len)
{
	json_t *object;
	int rc;

	if (problem->docs_url.len > IDEM_PROBLEM_URL_MAX || !idem_is_utf8(problem->detail) ||
	    !idem_is_utf8(problem->docs_url))
		return IDEM_E_INVALID;
	object = build(problem);
	if (object == NULL)
		return IDEM_E_NOMEM;
	rc = dump(object, ret_json, ret_len);
	json_decref(object);
	return rc;
}
