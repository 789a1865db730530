/*
 * The record of a response.
 *
 *   offset  bytes
 *   0       1  version (1)
 *   1       1  flags (1: the body is kept)
 *   2       1  the host's flags
 *   3       1  zero
 *   4       2  status
 *   6       2  length of the status text
 *   8       2  number of fields
 *   10      2  number of trailer fields
 *   12      4  length of the fields
 *   16      4  length of the trailer fields
 *   20      4  length of the body
 *   24         status text, fields, trailer fields, body
 *
 * A field is the length of its name (2), of its value (4), name, value.
 */
#include <string.h>

#include <idem/response.h>
#include <idem/store.h>

#define VERSION 1
#define BODY_KEPT 0x01
#define FIXED_LEN 24
#define FIELD_FIXED_LEN 6

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
		if (fields[i].name.len > UINT16_MAX || fields[i].value.len > IDEM_PAYLOAD_MAX)
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

	if (response->status < 100 || response->status > 999 || response->reason.len > UINT16_MAX ||
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
		p = put(p, fields[i].name.len, 2);
		p = put(p, fields[i].value.len, 4);
		p = put_bytes(p, fields[i].name);
		p = put_bytes(p, fields[i].value);
	}
	return p;
}

void
idem_response_encode_head(const struct idem_response *response, void *buf)
{
	uint8_t *start = buf, *p = start + FIXED_LEN, *fields, *trailers;

	p = put_bytes(p, response->reason);
	fields = p;
	p = put_run(p, response->fields, response->field_count);
	trailers = p;
	p = put_run(p, response->trailers, response->trailer_count);

	start[0] = VERSION;
	start[1] = response->body_kept ? BODY_KEPT : 0;
	start[2] = response->host_flags;
	start[3] = 0;
	put(start + 4, response->status, 2);
	put(start + 6, response->reason.len, 2);
	put(start + 8, response->field_count, 2);
	put(start + 10, response->trailer_count, 2);
	put(start + 12, (size_t)(trailers - fields), 4);
	put(start + 16, (size_t)(p - trailers), 4);
	put(start + 20, response->body.len, 4);
}

/* ---- decoding ---- */

bool
idem_response_next(struct idem_bytes *run, struct idem_field *ret_field)
{
	const uint8_t *p = run->data;
	size_t name_len, value_len;

	if (run->len < FIELD_FIXED_LEN)
		return false;
	name_len = get(p, 2);
	value_len = get(p + 2, 4);
	if (name_len > run->len - FIELD_FIXED_LEN || value_len > run->len - FIELD_FIXED_LEN - name_len)
		return false;
	ret_field->name = (struct idem_bytes){p + FIELD_FIXED_LEN, name_len};
	ret_field->value = (struct idem_bytes){p + FIELD_FIXED_LEN + name_len, value_len};
	run->data = p + FIELD_FIXED_LEN + name_len + value_len;
	run->len -= FIELD_FIXED_LEN + name_len + value_len;
	return true;
}

/* Does a run hold as many fields as it says, and nothing else? */
static bool
run_is_whole(struct idem_bytes run, size_t count)
{
	struct idem_field field;

	for (size_t i = 0; i < count; i++)
		if (!idem_response_next(&run, &field))
			return false;
	return run.len == 0;
}

static struct idem_bytes
take(const uint8_t **p, size_t len)
{
	struct idem_bytes bytes = {*p, len};

	*p += len;
	return bytes;
}

int
idem_response_decode(struct idem_bytes record, struct idem_response *ret_response)
{
	const uint8_t *start = record.data, *p;
	struct idem_response response = {0};
	uint64_t reason, fields, trailers, body;

	if (record.len < 1)
		return IDEM_E_CORRUPT;
	if (start[0] > VERSION)
		return IDEM_E_VERSION;
	if (start[0] != VERSION || record.len < FIXED_LEN || start[1] > BODY_KEPT || start[3] != 0)
		return IDEM_E_CORRUPT;
	response.body_kept = start[1] == BODY_KEPT;
	response.host_flags = start[2];
	response.status = get(start + 4, 2);
	reason = get(start + 6, 2);
	response.field_count = get(start + 8, 2);
	response.trailer_count = get(start + 10, 2);
	fields = get(start + 12, 4);
	trailers = get(start + 16, 4);
	body = get(start + 20, 4);
	if (response.status < 100 || response.status > 999 ||
	    FIXED_LEN + reason + fields + trailers + body != record.len)
		return IDEM_E_CORRUPT;
	p = start + FIXED_LEN;
	response.reason = take(&p, (size_t)reason);
	response.field_run = take(&p, (size_t)fields);
	response.trailer_run = take(&p, (size_t)trailers);
	response.body = take(&p, (size_t)body);
	if (!run_is_whole(response.field_run, response.field_count) ||
	    !run_is_whole(response.trailer_run, response.trailer_count))
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
