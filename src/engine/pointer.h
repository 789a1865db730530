/* JSON Pointers (RFC 6901), parsed, and what they lead to. */
#ifndef IDEM_POINTER_H
#define IDEM_POINTER_H

#include <jansson.h>

#include <idem/fingerprint.h>

struct idem_pointer {
	size_t count;
	struct idem_bytes *tokens; /* unescaped; each also ends in NUL */
	char *text;
};

/* The value the pointer names, borrowed from root, or NULL. */
json_t *idem_pointer_get(const struct idem_pointer *pointer, json_t *root);

/* Does the pointer lead exactly to the place that path names (count tokens)? */
bool idem_pointer_is(const struct idem_pointer *pointer, const struct idem_bytes *path, size_t count);

#endif
