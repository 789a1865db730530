/*
 * A cell as text: a line that people can read, then the payload.
 *
 *   idem/1 TAG STATE FINGERPRINT attempt=N lease=MS retain=MS
 *
 * Each part has its place, for the script in script.c looks there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"

#define MS_MAX UINT64_C(999999999999999) /* 15 digits: 31 thousand years */

#define TAG_AT 7
#define STATE_AT 40
#define FINGERPRINT_AT 47
#define ATTEMPT_AT 120
#define LEASE_AT 137
#define RETAIN_AT 160

#define STATE_LEN 6

static const char *const states[] = {"", "locked", "stored", "doubt "};

static const char digits[] = "0123456789abcdef";

void
idem_redis_hex(const uint8_t *bytes, size_t len, char *text)
{
	for (size_t i = 0; i < len; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
}

size_t
idem_redis_cell_name(const char *prefix, const struct idem_id *id, char *name)
{
	size_t len = strlen(prefix), half = IDEM_ID_LEN / 2;

	memcpy(name, prefix, len);
	idem_redis_hex(id->b, half, name + len);
	name[len + 2 * half] = ':';
	idem_redis_hex(id->b + half, half, name + len + 2 * half + 1);
	len += 4 * half + 1;
	name[len] = '\0';
	return len;
}

static uint64_t
at_most(uint64_t ms)
{
	return ms < MS_MAX ? ms : MS_MAX;
}

uint64_t
idem_redis_retain_ms(uint64_t retain_ms)
{
	return retain_ms > 0 ? at_most(retain_ms) : 1;
}

void
idem_redis_cell_write(const struct idem_cell *cell, char *head)
{
	char tag[2 * IDEM_TAG_LEN + 1] = "", fingerprint[2 * IDEM_FINGERPRINT_LEN + 1] = "";

	idem_redis_hex(cell->tag.b, IDEM_TAG_LEN, tag);
	idem_redis_hex(cell->fingerprint.b, IDEM_FINGERPRINT_LEN, fingerprint);
	(void)snprintf(head, HEAD_LEN + 1,
	               CELL_MAGIC "%s %s %s attempt=%010" PRIu32 " lease=%015" PRIu64 " retain=%015" PRIu64
	                          "\n",
	               tag, states[cell->state], fingerprint, cell->attempt, at_most(cell->lease_ms),
	               at_most(cell->retain_ms));
}

/* ---- reading ---- */

static bool
read_hex(const char *text, size_t len, uint8_t *bytes)
{
	for (size_t i = 0; i < len; i++) {
		const char *high = text[2 * i] != '\0' ? strchr(digits, text[2 * i]) : NULL;
		const char *low = text[2 * i + 1] != '\0' ? strchr(digits, text[2 * i + 1]) : NULL;

		if (high == NULL || low == NULL)
			return false;
		bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return true;
}

/* A name and a number of a fixed width. */
static bool
read_number(const char *head, const char *name, size_t at, size_t width, uint64_t *ret)
{
	size_t len = strlen(name);

	*ret = 0;
	if (memcmp(head + at - len, name, len) != 0)
		return false;
	for (size_t i = 0; i < width; i++) {
		char c = head[at + i];

		if (c < '0' || c > '9')
			return false;
		*ret = 10 * *ret + (uint64_t)(c - '0');
	}
	return true;
}

static bool
read_state(const char *text, enum idem_state *ret)
{
	for (int i = IDEM_LOCKED; i <= IDEM_DOUBT; i++)
		if (memcmp(text, states[i], STATE_LEN) == 0) {
			*ret = (enum idem_state)i;
			return true;
		}
	return false;
}

int
idem_redis_cell_read(const char *head, size_t len, int64_t ttl_ms, struct idem_cell *ret)
{
	uint64_t attempt, lease_ms, retain_ms;
	struct idem_cell cell = {0};

	if (len < HEAD_LEN || head[HEAD_LEN - 1] != '\n' || head[STATE_AT - 1] != ' ' ||
	    head[FINGERPRINT_AT - 1] != ' ')
		return IDEM_E_CORRUPT;
	if (!read_hex(head + TAG_AT, IDEM_TAG_LEN, cell.tag.b) || !read_state(head + STATE_AT, &cell.state) ||
	    !read_hex(head + FINGERPRINT_AT, IDEM_FINGERPRINT_LEN, cell.fingerprint.b) ||
	    !read_number(head, " attempt=", ATTEMPT_AT, 10, &attempt) ||
	    !read_number(head, " lease=", LEASE_AT, 15, &lease_ms) ||
	    !read_number(head, " retain=", RETAIN_AT, 15, &retain_ms) || attempt == 0 || attempt > UINT32_MAX)
		return IDEM_E_CORRUPT;
	cell.attempt = (uint32_t)attempt;
	cell.lease_ms = lease_ms;
	cell.retain_ms = retain_ms;
	/* One that somebody made last for ever is as old as it could be: whose lease it is, is not known. */
	cell.age_ms = retain_ms;
	if (ttl_ms >= 0)
		cell.age_ms = (uint64_t)ttl_ms < retain_ms ? retain_ms - (uint64_t)ttl_ms : 0;
	*ret = cell;
	return IDEM_OK;
}
