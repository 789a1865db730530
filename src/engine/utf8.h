/* Is it UTF-8?  jansson knows, but cannot say so without allocating. */
#ifndef IDEM_UTF8_H
#define IDEM_UTF8_H

#include <idem/types.h>

bool idem_is_utf8(struct idem_bytes bytes);

#endif
