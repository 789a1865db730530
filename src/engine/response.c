/*
 * The record of a response.
 *
 *   offset  bytes
 *   0       1  version (1)
 *   1       1  flags (1: the body is kept)
 *   2       1  the host's flags
 *   3       1  length of the status text
 *   4       2  status
 *   6       2  number of fields
 *   8       2  number of trailer fields
 *   10      4  length of the body
 *   14         status text, fields, trailer fields, body
 *
 * A field is the length of its name (1), of its value (3), name, value.
 */
#include <string.h>

#include <idem/response.h>
#include <idem/store.h>

#define VERSION 1
#define BODY_KEPT 0x01
#define FIXED_LEN 14
#define FIELD_FIXED_LEN 4
#define VALUE_MAX 0xffffff

/* ---- numbers ---- */

static uint8_t *
put(uint8_t *p, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*p++ = (uint8_t)(value >> (8 * i));
	return p;
}

static uint32_t
get(const uint8_t *p, unsigned bytes)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint32_t)p[i] << (8 * i);
	return value;
}

/* ---- encoding ---- */

static uint8_t *
put_bytes(uint8_t *p, struct idem_bytes bytes)
{
	if (bytes.len > 0)
		memcpy(p, bytes.data, bytes.len);
	return p + bytes.len;
}

/* The length of a run of fields; false if one breaks a limit. */
static bool
run_len(const struct idem_field *fields, size_t count, size_t *ret_len)
{
	size_t len = 0;

	if (count > UINT16_MAX)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (fields[i].name.len > UINT8_MAX || fields[i].value.len > VALUE_MAX)
			return false;
		len += FIELD_FIXED_LEN + fields[i].name.len + fields[i].value.len;
		if (len > IDEM_PAYLOAD_MAX)
			return false;
	}
	*ret_len = len;
	return true;
}

size_t
idem_response_head_len(const struct idem_response *response)
{
	size_t fields, trailers, len;

	if (response->status < 100 || response->status > 999 || response->reason.len > UINT8_MAX ||
	    response->body.len > IDEM_PAYLOAD_MAX ||
	    !run_len(response->fields, response->field_count, &fields) ||
	    !run_len(response->trailers, response->trailer_count, &trailers))
		return 0;
	len = FIXED_LEN + response->reason.len + fields + trailers;
	return len > IDEM_PAYLOAD_MAX - response->body.len ? 0 : len;
}

static uint8_t *
put_run(uint8_t *p, const struct idem_field *fields, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		p = put(p, fields[i].name.len, 1);
		p = put(p, fields[i].value.len, 3);
		p = put_bytes(p, fields[i].name);
		p = put_bytes(p, fields[i].value);
	}
	return p;
}

void
idem_response_encode_head(const struct idem_response *response, void *buf)
{
	uint8_t *start = buf, *p = start + FIXED_LEN;

	start[0] = VERSION;
	start[1] = response->body_kept ? BODY_KEPT : 0;
	start[2] = response->host_flags;
	start[3] = (uint8_t)response->reason.len;
	put(start + 4, response->status, 2);
	put(start + 6, response->field_count, 2);
	put(start + 8, response->trailer_count, 2);
	put(start + 10, response->body.len, 4);
	p = put_bytes(p, response->reason);
	p = put_run(p, response->fields, response->field_count);
	(void)put_run(p, response->trailers, response->trailer_count);
}

/* ---- decoding ---- */

bool
idem_response_next(struct idem_bytes *run, struct idem_field *ret_field)
{
	const uint8_t *p = run->data;
	size_t name_len, value_len;

	if (run->len < FIELD_FIXED_LEN)
		return false;
	name_len = get(p, 1);
	value_len = get(p + 1, 3);
	if (name_len > run->len - FIELD_FIXED_LEN || value_len > run->len - FIELD_FIXED_LEN - name_len)
		return false;
	ret_field->name = (struct idem_bytes){p + FIELD_FIXED_LEN, name_len};
	ret_field->value = (struct idem_bytes){p + FIELD_FIXED_LEN + name_len, value_len};
	run->data = p + FIELD_FIXED_LEN + name_len + value_len;
	run->len -= FIELD_FIXED_LEN + name_len + value_len;
	return true;
}

/* Takes a run of count fields from the front of *rest; false if it is not there. */
static bool
take_run(struct idem_bytes *rest, size_t count, struct idem_bytes *ret_run)
{
	struct idem_bytes begin = *rest;
	struct idem_field field;

	for (size_t i = 0; i < count; i++)
		if (!idem_response_next(rest, &field))
			return false;
	*ret_run = (struct idem_bytes){begin.data, begin.len - rest->len};
	return true;
}

static bool
take_bytes(struct idem_bytes *rest, size_t len, struct idem_bytes *ret_bytes)
{
	if (len > rest->len)
		return false;
	*ret_bytes = (struct idem_bytes){rest->data, len};
	rest->data = (const uint8_t *)rest->data + len;
	rest->len -= len;
	return true;
}

int
idem_response_decode(struct idem_bytes record, struct idem_response *ret_response)
{
	const uint8_t *start = record.data;
	struct idem_response response = {0};
	struct idem_bytes rest;

	if (record.len < 1)
		return IDEM_E_CORRUPT;
	if (start[0] > VERSION)
		return IDEM_E_VERSION;
	if (start[0] != VERSION || record.len < FIXED_LEN || start[1] > BODY_KEPT)
		return IDEM_E_CORRUPT;
	response.body_kept = start[1] == BODY_KEPT;
	response.host_flags = start[2];
	response.status = get(start + 4, 2);
	response.field_count = get(start + 6, 2);
	response.trailer_count = get(start + 8, 2);
	rest = (struct idem_bytes){start + FIXED_LEN, record.len - FIXED_LEN};
	if (response.status < 100 || response.status > 999 ||
	    !take_bytes(&rest, start[3], &response.reason) ||
	    !take_run(&rest, response.field_count, &response.field_run) ||
	    !take_run(&rest, response.trailer_count, &response.trailer_run) ||
	    !take_bytes(&rest, get(start + 10, 4), &response.body) || rest.len != 0 ||
	    (!response.body_kept && response.body.len != 0))
		return IDEM_E_CORRUPT;
	*ret_response = response;
	return IDEM_OK;
}

/* ---- what no record has ---- */

/* ASCII alone, whatever the locale: in some, strcasecmp(3) tells I from i. */
static char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* name is in lower case. */
static bool
is_named(struct idem_bytes field, const char *name)
{
	const char *p = field.data;
	size_t i = 0;

	while (i < field.len && name[i] != '\0' && lower(p[i]) == name[i])
		i++;
	return i == field.len && name[i] == '\0';
}

bool
idem_response_field_left_out(struct idem_bytes name)
{
	static const char *const names[] = {
		"connection",
		"content-length",
		"date",
		"idempotent-replayed",
		"keep-alive",
		"proxy-authenticate",
		"proxy-authentication-info",
		"proxy-connection",
		"server",
		"te",
		"trailer",
		"transfer-encoding",
		"upgrade",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (is_named(name, names[i]))
			return true;
	return false;
}
