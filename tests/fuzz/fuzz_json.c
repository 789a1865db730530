/*
 * Bodies and pointers.  Input: a byte of rules, a pointer up to a NUL, then one or two bodies, separated by a
 * byte FF (which no JSON has).  jansson, asked directly, is the judge: what it reads as the same value has
 * the same fingerprint, however it is spelled and in what pieces it arrives; what differs, differs.
 */
#include <math.h>

#include <jansson.h>

#include "fuzz.h"

#define JSON_MAX 4096
#define DEPTH_MAX 40 /* what is much deeper is hashed raw, in each of its spellings */

struct input {
	enum { ALL, IGNORE, ONLY } members;
	size_t step; /* bytes in a piece */
	struct idem_bytes pointer, first, second;
};

static bool
split_input(const uint8_t *data, size_t size, struct input *ret)
{
	const uint8_t *nul, *separator, *end = data + size;

	nul = size > 1 ? memchr(data + 1, '\0', size - 1) : NULL;
	if (nul == NULL)
		return false;
	ret->members = data[0] % 3;
	ret->step = data[0] / 3 + 1u;
	ret->pointer = (struct idem_bytes){data + 1, (size_t)(nul - data - 1)};
	data = nul + 1;
	separator = data < end ? memchr(data, 0xff, (size_t)(end - data)) : NULL;
	if (separator == NULL)
		separator = end;
	ret->first = (struct idem_bytes){data, (size_t)(separator - data)};
	ret->second = (struct idem_bytes){separator, (size_t)(end - separator)};
	if (ret->second.len > 0)
		ret->second = (struct idem_bytes){separator + 1, ret->second.len - 1};
	return true;
}

static struct idem_body *
body_of(const struct idem_body_rules *rules, struct idem_bytes text, size_t step)
{
	struct idem_body *body;

	require(idem_body_new(rules, &body) == IDEM_OK);
	for (size_t i = 0; i < text.len; i += step) {
		size_t n = text.len - i < step ? text.len - i : step;
		char *piece = exact_copy((const char *)text.data + i, n);

		require(idem_body_add(body, piece, n) == IDEM_OK);
		free(piece);
	}
	require(idem_body_finish(body) == IDEM_OK);
	return body;
}

static struct idem_fingerprint
print_of(const struct idem_body_rules *rules, struct idem_bytes text, size_t step)
{
	struct idem_body *body = body_of(rules, text, step);
	struct idem_fingerprint print;

	require(idem_fingerprint_make((struct idem_bytes){"POST /", 6}, body, &print) == IDEM_OK);
	idem_body_free(body);
	return print;
}

static bool
same_print(const struct idem_body_rules *rules, struct idem_bytes a, struct idem_bytes b, size_t step)
{
	struct idem_fingerprint x = print_of(rules, a, step), y = print_of(rules, b, SIZE_MAX / 2);

	return memcmp(&x, &y, sizeof x) == 0;
}

/* ---- the judge ---- */

static size_t
depth_of(json_t *value)
{
	size_t deepest = 0, depth, i;
	const char *name;
	json_t *child;

	json_object_foreach(value, name, child)
	{
		depth = depth_of(child);
		deepest = depth > deepest ? depth : deepest;
	}
	json_array_foreach(value, i, child)
	{
		depth = depth_of(child);
		deepest = depth > deepest ? depth : deepest;
	}
	return deepest + 1;
}

/* What jansson makes of a text; it overlooks a NUL that follows a number (2.14), which no JSON has. */
static json_t *
judge_reads(struct idem_bytes text, json_error_t *error)
{
	memset(error, 0, sizeof *error);
	if (text.len == 0 || text.len > JSON_MAX || memchr(text.data, '\0', text.len) != NULL)
		return NULL;
	return json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
	                  error);
}

/* The value of a text that is not so deep that one of its spellings might be refused. */
static json_t *
value_of(struct idem_bytes text)
{
	json_error_t error;
	json_t *value = judge_reads(text, &error);

	if (value != NULL && depth_of(value) > DEPTH_MAX) {
		json_decref(value);
		value = NULL;
	}
	return value;
}

static bool
same_number(json_t *a, json_t *b)
{
	double real;
	json_int_t integer;

	if (json_is_integer(a) && json_is_integer(b))
		return json_integer_value(a) == json_integer_value(b);
	if (json_is_real(a) && json_is_real(b))
		return !(json_real_value(a) < json_real_value(b)) &&
		       !(json_real_value(a) > json_real_value(b));
	real = json_is_real(a) ? json_real_value(a) : json_real_value(b);
	integer = json_is_real(a) ? json_integer_value(b) : json_integer_value(a);
	/* Beyond 2^53 a double may have been another integer before it was rounded. */
	return fabs(real) < 9007199254740992.0 && modf(real, &(double){0}) == 0.0 &&
	       (json_int_t)real == integer;
}

static bool
same_value(json_t *a, json_t *b)
{
	const char *name;
	json_t *child;
	size_t i;

	if (json_is_number(a) && json_is_number(b))
		return same_number(a, b);
	if (json_typeof(a) != json_typeof(b))
		return false;
	if (json_is_object(a)) {
		if (json_object_size(a) != json_object_size(b))
			return false;
		json_object_foreach(a, name, child)
		{
			json_t *other = json_object_get(b, name);

			if (other == NULL || !same_value(child, other))
				return false;
		}
		return true;
	}
	if (json_is_array(a)) {
		if (json_array_size(a) != json_array_size(b))
			return false;
		json_array_foreach(a, i, child)
		{
			if (!same_value(child, json_array_get(b, i)))
				return false;
		}
		return true;
	}
	return json_equal(a, b);
}

/* ---- the promises ---- */

static void
require_same_in_another_spelling(const struct idem_body_rules *rules, struct idem_bytes text, json_t *value)
{
	char *other = json_dumps(value, JSON_ENCODE_ANY | JSON_INDENT(1) | JSON_SORT_KEYS |
	                                        JSON_ENSURE_ASCII | JSON_ESCAPE_SLASH);

	require(other != NULL);
	if (strlen(other) <= JSON_MAX)
		require(same_print(rules, text, (struct idem_bytes){other, strlen(other)}, 7));
	free(other);
}

static void
check_pair(const struct input *input)
{
	struct idem_body_rules rules = {.mode = IDEM_BODY_JSON, .json_max = JSON_MAX};
	json_t *a = value_of(input->first), *b = value_of(input->second);

	if (a != NULL && b != NULL)
		require(same_print(&rules, input->first, input->second, 1) == same_value(a, b));
	else if ((a != NULL) != (b != NULL))
		require(!same_print(&rules, input->first, input->second, 1));
	json_decref(a);
	json_decref(b);
}

/* Is it JSON for both?  A NUL in a name is too much for the judge alone. */
static void
check_verdict(struct idem_bytes text, enum idem_member member)
{
	json_error_t error;
	json_t *value = judge_reads(text, &error);

	if (value == NULL && json_error_code(&error) != json_error_null_byte_in_key)
		require(member == IDEM_MEMBER_NOT_JSON);
	if (value != NULL && depth_of(value) <= DEPTH_MAX)
		require(member != IDEM_MEMBER_NOT_JSON);
	json_decref(value);
}

static void
check_member(const struct input *input, const struct idem_pointer *pointer)
{
	struct idem_body_rules rules = {.mode = IDEM_BODY_OFF, .keep_json = true, .json_max = JSON_MAX};
	struct idem_body *body = body_of(&rules, input->first, input->step);
	struct idem_bytes text = {NULL, 0};
	enum idem_member member = idem_body_member(body, pointer, &text);
	unsigned sum = 0;

	require((member == IDEM_MEMBER_FOUND) == (text.data != NULL));
	for (size_t i = 0; i < text.len; i++)
		sum += ((const unsigned char *)text.data)[i];
	require(sum <= 255 * text.len);
	check_verdict(input->first, member);
	idem_body_free(body);
}

static void
check_pointer(const struct input *input, struct idem_pointer *pointer, json_t *value)
{
	struct idem_pointer *const pointers[] = {pointer};
	struct idem_body_rules rules = {.mode = IDEM_BODY_JSON, .json_max = JSON_MAX};

	if (input->members == IGNORE) {
		rules.ignore = pointers;
		rules.ignore_count = 1;
	} else if (input->members == ONLY) {
		rules.only = pointers;
		rules.only_count = 1;
	}
	require(same_print(&rules, input->first, input->first, input->step));
	if (value != NULL)
		require_same_in_another_spelling(&rules, input->first, value);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct idem_pointer *pointer = NULL;
	struct input input;
	char *copy;
	json_t *value;
	int rc;

	if (size > 2 * JSON_MAX || !split_input(data, size, &input))
		return 0;
	copy = exact_copy(input.pointer.data, input.pointer.len);
	rc = idem_pointer_parse((struct idem_bytes){copy, input.pointer.len}, &pointer);
	free(copy);
	require(rc == IDEM_OK || (rc == IDEM_E_INVALID && pointer == NULL));
	value = value_of(input.first);
	if (rc == IDEM_OK) {
		check_pointer(&input, pointer, value);
		check_member(&input, pointer);
	}
	check_pair(&input);
	json_decref(value);
	idem_pointer_free(pointer);
	return 0;
}
