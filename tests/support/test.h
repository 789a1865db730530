/* What every unit test includes, in the order cmocka wants. */
#ifndef IDEM_TEST_H
#define IDEM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <idem/idem.h>

static inline struct idem_bytes
bytes_of(const char *text)
{
	return (struct idem_bytes){text, strlen(text)};
}

#define assert_ok(call) assert_int_equal((call), IDEM_OK)

#endif
