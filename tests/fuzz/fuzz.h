/* What the fuzzers share: the entry point they define, and a check that stays on in every build. */
#ifndef IDEM_FUZZ_H
#define IDEM_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <idem/idem.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise ends the run, so that libFuzzer keeps the input. */
#define require(condition)                                                                                   \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			(void)fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);        \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* A copy that ends where its bytes end, so that a sanitizer sees a read beyond. */
static inline char *
exact_copy(const void *data, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);

	require(copy != NULL);
	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

#endif
