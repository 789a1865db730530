/* Arrays as parameters, and numbers from results, in PostgreSQL's binary form: big-endian. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* Number of dimensions, whether there are NULLs, type; of the one dimension: how many, and the first index.
 */
#define HEAD_LEN 20
#define COUNT_AT 12
#define NULL_LEN UINT32_MAX

static void
put(unsigned char *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t
get(const char *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | (unsigned char)at[i];
	return value;
}

void
idem_postgres_put_int4(unsigned char *at, uint32_t value)
{
	put(at, value, 4);
}

/* ---- arrays ---- */

static unsigned char *
extend(struct column *column, size_t len)
{
	size_t cap = column->cap > 0 ? column->cap : 256;
	unsigned char *data;

	if (column->failed)
		return NULL;
	while (cap - column->len < len)
		cap *= 2;
	if (cap != column->cap) {
		data = realloc(column->data, cap);
		if (data == NULL) {
			column->failed = true;
			return NULL;
		}
		column->data = data;
		column->cap = cap;
	}
	column->len += len;
	return column->data + column->len - len;
}

void
idem_postgres_column_begin(struct column *column, Oid element)
{
	unsigned char *head;

	column->len = 0;
	column->count = 0;
	column->failed = false;
	head = extend(column, HEAD_LEN);
	if (head == NULL)
		return;
	put(head, 1, 4);
	put(head + 4, 1, 4);
	put(head + 8, element, 4);
	put(head + COUNT_AT, 0, 4);
	put(head + 16, 1, 4);
}

static unsigned char *
put_element(struct column *column, uint32_t len_word, size_t len)
{
	unsigned char *at = extend(column, 4 + len);

	if (at == NULL)
		return NULL;
	put(at, len_word, 4);
	put(column->data + COUNT_AT, ++column->count, 4);
	return at + 4;
}

void
idem_postgres_column_put(struct column *column, const void *data, size_t len)
{
	unsigned char *at = put_element(column, (uint32_t)len, len);

	if (at != NULL && len > 0)
		memcpy(at, data, len);
}

void
idem_postgres_column_put_null(struct column *column)
{
	(void)put_element(column, NULL_LEN, 0);
}

void
idem_postgres_column_put_int8(struct column *column, int64_t value)
{
	unsigned char *at = put_element(column, 8, 8);

	if (at != NULL)
		put(at, (uint64_t)value, 8);
}

void
idem_postgres_column_put_bool(struct column *column, bool value)
{
	unsigned char *at = put_element(column, 1, 1);

	if (at != NULL)
		*at = value;
}

void
idem_postgres_column_end(struct column *column, bool keep_memory)
{
	if (keep_memory)
		return;
	free(column->data);
	column->data = NULL;
	column->len = column->cap = 0;
}

/* ---- results ---- */

static bool
has_len(const PGresult *result, int row, int field, size_t len)
{
	return field < PQnfields(result) && PQgetisnull(result, row, field) == 0 &&
	       (size_t)PQgetlength(result, row, field) == len;
}

bool
idem_postgres_get_int4(const PGresult *result, int row, int field, int32_t *ret)
{
	if (!has_len(result, row, field, 4))
		return false;
	*ret = (int32_t)(uint32_t)get(PQgetvalue(result, row, field), 4);
	return true;
}

bool
idem_postgres_get_int8(const PGresult *result, int row, int field, int64_t *ret)
{
	if (!has_len(result, row, field, 8))
		return false;
	*ret = (int64_t)get(PQgetvalue(result, row, field), 8);
	return true;
}

bool
idem_postgres_get_bytes(const PGresult *result, int row, int field, void *ret, size_t len)
{
	if (!has_len(result, row, field, len))
		return false;
	memcpy(ret, PQgetvalue(result, row, field), len);
	return true;
}
