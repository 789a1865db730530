/* JSON Pointers (RFC 6901). */
#include <stdlib.h>
#include <string.h>

#include "pointer.h"
#include "utf8.h"

static size_t
count_tokens(const char *p, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += p[i] == '/';
	return n;
}

/* Section 3: '~' stands before '0' or '1' alone. */
static bool
well_formed(const char *p, size_t len)
{
	if (len > 0 && p[0] != '/')
		return false;
	for (size_t i = 0; i < len; i++) {
		if (p[i] == '\0')
			return false;
		if (p[i] == '~' && (i + 1 == len || (p[i + 1] != '0' && p[i + 1] != '1')))
			return false;
	}
	return true;
}

/* Section 4: "~1" is '/', "~0" is '~'. */
static void
split(struct idem_pointer *pointer, const char *p, size_t len)
{
	char *out = pointer->text;
	size_t i = 0;

	for (size_t n = 0; n < pointer->count; n++) {
		char *begin = out;

		for (i++; i < len && p[i] != '/'; i++) {
			if (p[i] == '~')
				*out++ = p[++i] == '1' ? '/' : '~';
			else
				*out++ = p[i];
		}
		pointer->tokens[n] = (struct idem_bytes){begin, (size_t)(out - begin)};
		*out++ = '\0';
	}
}

int
idem_pointer_parse(struct idem_bytes text, struct idem_pointer **ret_pointer)
{
	struct idem_pointer *pointer;

	if (!well_formed(text.data, text.len) || !idem_is_utf8(text))
		return IDEM_E_INVALID;
	pointer = calloc(1, sizeof *pointer);
	if (pointer == NULL)
		return IDEM_E_NOMEM;
	pointer->count = count_tokens(text.data, text.len);
	pointer->tokens = calloc(pointer->count + 1, sizeof *pointer->tokens);
	pointer->text = malloc(text.len + 1);
	if (pointer->tokens == NULL || pointer->text == NULL) {
		idem_pointer_free(pointer);
		return IDEM_E_NOMEM;
	}
	split(pointer, text.data, text.len);
	*ret_pointer = pointer;
	return IDEM_OK;
}

void
idem_pointer_free(struct idem_pointer *pointer)
{
	if (pointer == NULL)
		return;
	free(pointer->tokens);
	free(pointer->text);
	free(pointer);
}

/* Section 4: digits without a leading zero. */
static bool
array_index(const struct idem_bytes *token, size_t *ret_index)
{
	const char *p = token->data;
	size_t index = 0;

	if (token->len == 0 || token->len > 9 || (p[0] == '0' && token->len > 1))
		return false;
	for (size_t i = 0; i < token->len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		index = 10 * index + (size_t)(p[i] - '0');
	}
	*ret_index = index;
	return true;
}

json_t *
idem_pointer_get(const struct idem_pointer *pointer, json_t *root)
{
	json_t *value = root;

	for (size_t n = 0; n < pointer->count && value != NULL; n++) {
		const struct idem_bytes *token = &pointer->tokens[n];
		size_t index;

		if (json_is_object(value))
			value = json_object_get(value, token->data);
		else if (json_is_array(value) && array_index(token, &index))
			value = json_array_get(value, index);
		else
			value = NULL;
	}
	return value;
}

bool
idem_pointer_is(const struct idem_pointer *pointer, const struct idem_bytes *path, size_t count)
{
	if (pointer->count != count)
		return false;
	for (size_t n = 0; n < count; n++)
		if (pointer->tokens[n].len != path[n].len ||
		    memcmp(pointer->tokens[n].data, path[n].data, path[n].len) != 0)
			return false;
	return true;
}
