/* The body of a request: hashed as it arrives, and kept only if it must be read as JSON. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "canonical.h"
#include "pointer.h"

struct idem_body {
	const struct idem_body_rules *rules;
	struct idem_sha256 sha;
	uint8_t raw[IDEM_SHA256_LEN];
	uint8_t canonical[IDEM_SHA256_LEN];
	enum idem_body_form form;

	/* The bytes, while they may still be JSON. */
	char *text;
	size_t len, cap;
	bool too_long;
	json_t *json;
	char number[32];
};

static bool
wants_text(const struct idem_body_rules *rules)
{
	return rules->mode == IDEM_BODY_JSON || rules->keep_json;
}

int
idem_body_new(const struct idem_body_rules *rules, struct idem_body **ret_body)
{
	struct idem_body *body;
	int rc;

	if (rules->ignore_count > 0 && rules->only_count > 0)
		return IDEM_E_INVALID;
	body = calloc(1, sizeof *body);
	if (body == NULL)
		return IDEM_E_NOMEM;
	body->rules = rules;
	rc = idem_sha256_init(&body->sha);
	if (rc != IDEM_OK) {
		idem_body_free(body);
		return rc;
	}
	*ret_body = body;
	return IDEM_OK;
}

void
idem_body_free(struct idem_body *body)
{
	if (body == NULL)
		return;
	json_decref(body->json);
	free(body->text);
	free(body);
}

static void
drop_text(struct idem_body *body)
{
	free(body->text);
	body->text = NULL;
	body->len = 0;
	body->cap = 0;
}

static int
keep_text(struct idem_body *body, const void *data, size_t len)
{
	if (body->too_long)
		return IDEM_OK;
	if (len > body->rules->json_max - body->len) {
		body->too_long = true;
		drop_text(body);
		return IDEM_OK;
	}
	if (len > body->cap - body->len) {
		size_t cap = body->len + len;
		char *text;

		cap += body->len > 0 ? cap / 2 : 0; /* the second piece is rarely the last */
		text = realloc(body->text, cap);
		if (text == NULL)
			return IDEM_E_NOMEM;
		body->text = text;
		body->cap = cap;
	}
	memcpy(body->text + body->len, data, len);
	body->len += len;
	return IDEM_OK;
}

int
idem_body_add(struct idem_body *body, const void *data, size_t len)
{
	int rc;

	if (len == 0)
		return IDEM_OK;
	rc = idem_sha256_add(&body->sha, data, len);
	if (rc == IDEM_OK && wants_text(body->rules))
		rc = keep_text(body, data, len);
	return rc;
}

static json_t *
load(const struct idem_body *body, enum json_error_code *ret_code)
{
	json_error_t error = {0}; /* jansson may fail before it touches this */
	json_t *json = json_loadb(body->text, body->len,
	                          JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);

	*ret_code = json != NULL ? json_error_unknown : json_error_code(&error);
	return json;
}

/* IDEM_OK with body->json NULL: it is not JSON. */
static int
parse(struct idem_body *body)
{
	enum json_error_code code;

	if (body->too_long || body->len == 0)
		return IDEM_OK;
	/* No JSON has one; jansson (2.14) overlooks it after a number. */
	if (memchr(body->text, '\0', body->len) != NULL)
		return IDEM_OK;
	body->json = load(body, &code);
	/* jansson (2.14) takes a string it has no memory for as bad syntax: what is bad once is asked twice.
	 */
	if (body->json == NULL && code == json_error_invalid_syntax)
		body->json = load(body, &code);
	if (body->json != NULL)
		return IDEM_OK;
	return code == json_error_unknown || code == json_error_out_of_memory ? IDEM_E_NOMEM : IDEM_OK;
}

/* Each member that counts, with its place in the list of those; absent is not null. */
static int
hash_only(struct idem_body *body, struct idem_sha256 *sha)
{
	const struct idem_body_rules *rules = body->rules;
	int rc = IDEM_OK;

	for (size_t i = 0; i < rules->only_count && rc == IDEM_OK; i++) {
		json_t *value = idem_pointer_get(rules->only[i], body->json);

		rc = idem_sha256_add(sha, value != NULL ? "+" : "-", 1);
		if (rc == IDEM_OK && value != NULL)
			rc = idem_canonical_hash(value, NULL, 0, sha);
	}
	return rc;
}

static int
hash_json(struct idem_body *body)
{
	const struct idem_body_rules *rules = body->rules;
	struct idem_sha256 sha;
	int rc;

	rc = idem_sha256_init(&sha);
	if (rc == IDEM_OK)
		rc = rules->only_count > 0
		             ? hash_only(body, &sha)
		             : idem_canonical_hash(body->json, rules->ignore, rules->ignore_count, &sha);
	if (rc == IDEM_OK)
		rc = idem_sha256_end(&sha, body->canonical);
	return rc;
}

static int
choose_form(struct idem_body *body)
{
	int rc;

	if (body->rules->mode != IDEM_BODY_JSON) {
		body->form = body->rules->mode == IDEM_BODY_OFF ? IDEM_BODY_FORM_OFF : IDEM_BODY_FORM_RAW;
		return IDEM_OK;
	}
	body->form = IDEM_BODY_FORM_NOT_JSON;
	if (body->json == NULL)
		return IDEM_OK;
	rc = hash_json(body);
	if (rc == IDEM_OK)
		body->form = IDEM_BODY_FORM_JSON;
	return rc == IDEM_E_INVALID ? IDEM_OK : rc;
}

/*
 * jansson, strtod() and printf() spell numbers as the thread's locale does; where the decimal point has two
 * bytes, jansson (2.14) even aborts.
 */
static int
read_text(struct idem_body *body)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), hosts;
	int rc;

	if (c == (locale_t)0)
		return IDEM_E_NOMEM;
	hosts = uselocale(c);
	rc = parse(body);
	if (rc == IDEM_OK)
		rc = choose_form(body);
	(void)uselocale(hosts);
	freelocale(c);
	return rc;
}

int
idem_body_finish(struct idem_body *body)
{
	int rc = idem_sha256_end(&body->sha, body->raw);

	if (rc == IDEM_OK)
		rc = wants_text(body->rules) ? read_text(body) : choose_form(body);
	drop_text(body);
	if (!body->rules->keep_json) {
		json_decref(body->json);
		body->json = NULL;
	}
	return rc;
}

const uint8_t *
idem_body_sha256(const struct idem_body *body)
{
	return body->raw;
}

enum idem_body_form
idem_body_form(const struct idem_body *body)
{
	return body->form;
}

const uint8_t *
idem_body_digest(const struct idem_body *body)
{
	return body->form == IDEM_BODY_FORM_JSON ? body->canonical : body->raw;
}

enum idem_member
idem_body_member(struct idem_body *body, const struct idem_pointer *pointer, struct idem_bytes *ret_text)
{
	json_t *value;
	int n;

	if (body->json == NULL)
		return IDEM_MEMBER_NOT_JSON;
	value = idem_pointer_get(pointer, body->json);
	if (value == NULL || json_is_null(value))
		return IDEM_MEMBER_ABSENT;
	if (json_is_string(value)) {
		*ret_text = (struct idem_bytes){json_string_value(value), json_string_length(value)};
		return IDEM_MEMBER_FOUND;
	}
	if (!json_is_integer(value))
		return IDEM_MEMBER_NOT_TEXT;
	n = snprintf(body->number, sizeof body->number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	*ret_text = (struct idem_bytes){body->number, (size_t)n};
	return IDEM_MEMBER_FOUND;
}
