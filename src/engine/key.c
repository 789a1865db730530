/* From a field value to a key, and from scope and key to a cell. */
#include <stdio.h>
#include <string.h>

#include <idem/key.h>

#include "sha256.h"

/* RFC 5234's VCHAR.  A space is allowed in a String of RFC 9651, but not in a key. */
static bool
is_visible(unsigned char c)
{
	return c >= 0x21 && c <= 0x7e;
}

static bool
is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* RFC 9562, section 4. */
static bool
is_uuid(const char *text, size_t len)
{
	if (len != 36)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? text[i] != '-' : !is_hex(text[i]))
			return false;
	}
	return true;
}

/* text may be longer than a key can be. */
static enum idem_key_fault
check(const struct idem_key_rules *rules, const char *text, size_t len)
{
	if (len == 0)
		return IDEM_KEY_EMPTY;
	for (size_t i = 0; i < len; i++)
		if (!is_visible((unsigned char)text[i]))
			return IDEM_KEY_BAD_BYTE;
	if (len < rules->min_len)
		return IDEM_KEY_TOO_SHORT;
	if (len > rules->max_len || len > IDEM_KEY_MAX)
		return IDEM_KEY_TOO_LONG;
	if (rules->format == IDEM_KEY_UUID && !is_uuid(text, len))
		return IDEM_KEY_NOT_UUID;
	return IDEM_KEY_OK;
}

enum idem_key_fault
idem_key_from_text(const struct idem_key_rules *rules, struct idem_bytes text, struct idem_key *ret_key)
{
	enum idem_key_fault fault = check(rules, text.data, text.len);

	if (fault != IDEM_KEY_OK)
		return fault;
	ret_key->len = text.len;
	memcpy(ret_key->text, text.data, text.len);
	return IDEM_KEY_OK;
}

/*
 * RFC 9651, section 4.2.5: what stands between the quotes, without the
 * backslashes.  A parameter after the String would be legal there; no two
 * implementations agree on what it means for a key, so it is refused.
 */
static enum idem_key_fault
parse_string(const struct idem_key_rules *rules, const char *p, size_t len, struct idem_key *ret_key)
{
	char text[IDEM_KEY_MAX + 1];
	size_t n = 0, i;
	enum idem_key_fault fault;

	for (i = 1; i < len && p[i] != '"'; i++) {
		char c = p[i];

		if (c == '\\') {
			if (i + 1 == len)
				return IDEM_KEY_UNTERMINATED;
			c = p[++i];
			if (c != '\\' && c != '"')
				return IDEM_KEY_BAD_ESCAPE;
		} else if (!is_visible((unsigned char)c)) {
			return IDEM_KEY_BAD_BYTE;
		}
		if (n < sizeof text)
			text[n++] = c;
	}
	if (i == len)
		return IDEM_KEY_UNTERMINATED;
	if (i + 1 != len)
		return IDEM_KEY_TRAILING;
	fault = check(rules, text, n);
	if (fault != IDEM_KEY_OK)
		return fault;
	ret_key->len = n;
	memcpy(ret_key->text, text, n);
	return IDEM_KEY_OK;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

enum idem_key_fault
idem_key_parse(const struct idem_key_rules *rules, struct idem_bytes field, struct idem_key *ret_key)
{
	const char *p = field.data;
	size_t len = field.len;

	while (len > 0 && is_blank(p[0])) {
		p++;
		len--;
	}
	while (len > 0 && is_blank(p[len - 1]))
		len--;
	if (len == 0)
		return IDEM_KEY_EMPTY;
	if (p[0] == '"')
		return parse_string(rules, p, len, ret_key);
	if (rules->syntax == IDEM_KEY_STRICT)
		return IDEM_KEY_NOT_STRING;
	return idem_key_from_text(rules, (struct idem_bytes){p, len}, ret_key);
}

size_t
idem_key_fault_text(enum idem_key_fault fault, const struct idem_key_rules *rules, char *buf, size_t cap)
{
	int n = 0;

	switch (fault) {
	case IDEM_KEY_OK:
		n = snprintf(buf, cap, "The key is valid.");
		break;
	case IDEM_KEY_EMPTY:
		n = snprintf(buf, cap, "The key is empty.");
		break;
	case IDEM_KEY_BAD_BYTE:
		n = snprintf(buf, cap, "The key has a character that is not visible ASCII (0x21 to 0x7E).");
		break;
	case IDEM_KEY_NOT_STRING:
		n = snprintf(buf, cap, "The key is not a quoted String of RFC 9651, such as \"8e03978e\".");
		break;
	case IDEM_KEY_UNTERMINATED:
		n = snprintf(buf, cap, "The key begins with a quotation mark and does not end with one.");
		break;
	case IDEM_KEY_BAD_ESCAPE:
		n = snprintf(buf, cap,
		             "The key has a backslash before a character other than \\ or a quotation mark.");
		break;
	case IDEM_KEY_TRAILING:
		n = snprintf(buf, cap, "Something follows the closing quotation mark of the key.");
		break;
	case IDEM_KEY_TOO_SHORT:
		n = snprintf(buf, cap, "The key is too short; it must have at least %zu characters.",
		             rules->min_len);
		break;
	case IDEM_KEY_TOO_LONG:
		n = snprintf(buf, cap, "The key is too long; it may have at most %zu characters.",
		             rules->max_len);
		break;
	case IDEM_KEY_NOT_UUID:
		n = snprintf(buf, cap, "The key is not a UUID.");
		break;
	}
	if (n < 0 || cap == 0)
		return 0;
	return (size_t)n < cap ? (size_t)n : cap - 1;
}

/* SHA-256 of a purpose and one or two parts, cut to half an id. */
static int
half_id(const char *purpose, struct idem_bytes first, struct idem_bytes second, uint8_t *half)
{
	struct idem_sha256 sha;
	uint8_t digest[IDEM_SHA256_LEN];
	int rc;

	rc = idem_sha256_init(&sha);
	if (rc == IDEM_OK)
		rc = idem_sha256_add_part(&sha, purpose, strlen(purpose));
	if (rc == IDEM_OK)
		rc = idem_sha256_add_part(&sha, first.data, first.len);
	if (rc == IDEM_OK)
		rc = idem_sha256_add_part(&sha, second.data, second.len);
	if (rc == IDEM_OK)
		rc = idem_sha256_end(&sha, digest);
	if (rc == IDEM_OK)
		memcpy(half, digest, IDEM_ID_LEN / 2);
	return rc;
}

int
idem_id_make(struct idem_bytes scope, const struct idem_key *key, struct idem_id *ret_id)
{
	struct idem_bytes nothing = {"", 0};
	struct idem_id id = {{0}};
	int rc;

	rc = half_id("idem scope 1", scope, nothing, id.b);
	if (rc == IDEM_OK)
		rc = half_id("idem key 1", scope, (struct idem_bytes){key->text, key->len},
		             id.b + IDEM_ID_LEN / 2);
	if (rc == IDEM_OK)
		*ret_id = id;
	return rc;
}

void
idem_id_text(const struct idem_id *id, char text[IDEM_ID_TEXT_LEN])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < IDEM_ID_LEN; i++) {
		text[2 * i] = digits[id->b[i] >> 4];
		text[2 * i + 1] = digits[id->b[i] & 15];
	}
	text[2 * IDEM_ID_LEN] = '\0';
}
