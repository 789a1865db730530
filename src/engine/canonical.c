/*
 * One spelling for each JSON value, in the sense of RFC 8785: members sorted by
 * UTF-16 code units, no white space, the shortest number.  Integers keep all
 * their digits; idem/fingerprint.h says why.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canonical.h"
#include "pointer.h"

struct walk {
	struct idem_sha256 *sha;
	struct idem_pointer *const *ignore;
	size_t ignore_count;
	size_t depth;
	struct idem_bytes path[IDEM_CANONICAL_DEPTH];
};

static int add_value(struct walk *walk, json_t *value);

static int
add(struct walk *walk, const char *text)
{
	return idem_sha256_add(walk->sha, text, strlen(text));
}

/* ---- strings: RFC 8785, section 3.2.2.2 ---- */

static const char *
short_escape(unsigned char c)
{
	switch (c) {
	case '\b':
		return "\\b";
	case '\t':
		return "\\t";
	case '\n':
		return "\\n";
	case '\f':
		return "\\f";
	case '\r':
		return "\\r";
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	default:
		return NULL;
	}
}

static int
add_string(struct walk *walk, const char *p, size_t len)
{
	size_t plain = 0; /* where the bytes that stand for themselves begin */
	int rc = add(walk, "\"");

	for (size_t i = 0; i < len && rc == IDEM_OK; i++) {
		unsigned char c = (unsigned char)p[i];
		const char *escape = short_escape(c);
		char unicode[8];

		if (escape == NULL && c >= 0x20)
			continue;
		if (escape == NULL) {
			(void)snprintf(unicode, sizeof unicode, "\\u%04x", c);
			escape = unicode;
		}
		rc = idem_sha256_add(walk->sha, p + plain, i - plain);
		if (rc == IDEM_OK)
			rc = add(walk, escape);
		plain = i + 1;
	}
	if (rc == IDEM_OK)
		rc = idem_sha256_add(walk->sha, p + plain, len - plain);
	return rc == IDEM_OK ? add(walk, "\"") : rc;
}

/* ---- numbers: RFC 8785, section 3.2.2.3, which is ECMA-262's Number::toString ---- */

/* The shortest digits that read back as the same double, and the exponent of "0.DIGITS". */
static int
shortest_digits(double value, char digits[20], int *ret_point)
{
	char text[40];
	int n = 0;

	for (int precision = 0; precision < 17; precision++) {
		(void)snprintf(text, sizeof text, "%.*e", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	/* The decimal point is whatever the locale says: digits and exponent are all that is read. */
	for (const char *p = text; *p != 'e'; p++)
		if (*p >= '0' && *p <= '9')
			digits[n++] = *p;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	digits[n] = '\0';
	*ret_point = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1;
	return n;
}

/* From here on a double may have been another integer before it was rounded. */
#define INEXACT 9007199254740992.0 /* 2^53 */

static void
lay_out(const char *digits, int n, int point, char *out, size_t cap)
{
	if (n <= point && point <= 21)
		(void)snprintf(out, cap, "%s%.*s", digits, point - n, "000000000000000000000");
	else if (0 < point && point <= 21)
		(void)snprintf(out, cap, "%.*s.%s", point, digits, digits + point);
	else if (-6 < point && point <= 0)
		(void)snprintf(out, cap, "0.%.*s%s", -point, "000000", digits);
	else if (n == 1)
		(void)snprintf(out, cap, "%se%+d", digits, point - 1);
	else
		(void)snprintf(out, cap, "%.1s.%se%+d", digits, digits + 1, point - 1);
}

static int
add_real(struct walk *walk, double value)
{
	char digits[20], text[64];
	int n, point, rc = IDEM_OK;

	if (value == 0.0)
		return add(walk, "0"); /* -0 too */
	if (value < 0.0)
		rc = add(walk, "-");
	n = shortest_digits(fabs(value), digits, &point);
	lay_out(digits, n, point, text, sizeof text);
	if (rc == IDEM_OK)
		rc = add(walk, text);
	if (rc == IDEM_OK && fabs(value) >= INEXACT && strchr(text, 'e') == NULL)
		rc = add(walk, "e+0"); /* no integer is spelled so */
	return rc;
}

static int
add_integer(struct walk *walk, json_int_t value)
{
	char text[32];

	(void)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, value);
	return add(walk, text);
}

/* ---- objects: RFC 8785, section 3.2.3 ---- */

struct member {
	const char *name;
	size_t len;
	json_t *value;
};

/*
 * UTF-8 sorts as code points; UTF-16 differs for those beyond U+FFFF (lead bytes
 * F0 and up), whose surrogates D800-DFFF come before E000-FFFF (lead bytes EE, EF).
 */
static int
utf16_rank(unsigned char c)
{
	if (c >= 0xf0)
		return 0xee;
	return c >= 0xee ? c + 0x10 : c;
}

static int
by_utf16(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	size_t len = x->len < y->len ? x->len : y->len;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)x->name[i], d = (unsigned char)y->name[i];

		if (c == d)
			continue;
		if (utf16_rank(c) != utf16_rank(d))
			return utf16_rank(c) < utf16_rank(d) ? -1 : 1;
		return c < d ? -1 : 1;
	}
	return x->len == y->len ? 0 : x->len < y->len ? -1 : 1;
}

static bool
ignored(const struct walk *walk)
{
	for (size_t i = 0; i < walk->ignore_count; i++)
		if (idem_pointer_is(walk->ignore[i], walk->path, walk->depth))
			return true;
	return false;
}

static int
add_member(struct walk *walk, const struct member *member, bool *first)
{
	int rc;

	walk->path[walk->depth++] = (struct idem_bytes){member->name, member->len};
	if (ignored(walk)) {
		walk->depth--;
		return IDEM_OK;
	}
	rc = add(walk, *first ? "" : ",");
	*first = false;
	if (rc == IDEM_OK)
		rc = add_string(walk, member->name, member->len);
	if (rc == IDEM_OK)
		rc = add(walk, ":");
	if (rc == IDEM_OK)
		rc = add_value(walk, member->value);
	walk->depth--;
	return rc;
}

static int
add_object(struct walk *walk, json_t *object)
{
	size_t count = json_object_size(object), n = 0;
	struct member *members;
	const char *name;
	json_t *value;
	bool first = true;
	int rc = add(walk, "{");

	members = malloc((count + 1) * sizeof *members);
	if (members == NULL)
		return IDEM_E_NOMEM;
	json_object_foreach(object, name, value) members[n++] = (struct member){name, strlen(name), value};
	qsort(members, n, sizeof *members, by_utf16);
	for (size_t i = 0; i < n && rc == IDEM_OK; i++)
		rc = add_member(walk, &members[i], &first);
	free(members);
	return rc == IDEM_OK ? add(walk, "}") : rc;
}

static int
add_array(struct walk *walk, json_t *array)
{
	bool first = true;
	int rc = add(walk, "[");

	for (size_t i = 0; i < json_array_size(array) && rc == IDEM_OK; i++) {
		char index[24];

		(void)snprintf(index, sizeof index, "%zu", i);
		walk->path[walk->depth++] = (struct idem_bytes){index, strlen(index)};
		if (!ignored(walk)) {
			rc = add(walk, first ? "" : ",");
			first = false;
			if (rc == IDEM_OK)
				rc = add_value(walk, json_array_get(array, i));
		}
		walk->path[--walk->depth] = (struct idem_bytes){NULL, 0};
	}
	return rc == IDEM_OK ? add(walk, "]") : rc;
}

static int
add_value(struct walk *walk, json_t *value)
{
	if (walk->depth == IDEM_CANONICAL_DEPTH)
		return IDEM_E_INVALID;
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return add_object(walk, value);
	case JSON_ARRAY:
		return add_array(walk, value);
	case JSON_STRING:
		return add_string(walk, json_string_value(value), json_string_length(value));
	case JSON_INTEGER:
		return add_integer(walk, json_integer_value(value));
	case JSON_REAL:
		return add_real(walk, json_real_value(value));
	case JSON_TRUE:
		return add(walk, "true");
	case JSON_FALSE:
		return add(walk, "false");
	case JSON_NULL:
		return add(walk, "null");
	}
	return IDEM_E_INVALID;
}

int
idem_canonical_hash(json_t *value, struct idem_pointer *const *ignore, size_t ignore_count,
                    struct idem_sha256 *sha)
{
	struct walk walk = {.sha = sha, .ignore = ignore, .ignore_count = ignore_count};

	return add_value(&walk, value);
}
