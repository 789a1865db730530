/* What a status means, in words. */
#include <idem/types.h>

const char *
idem_strerror(int status)
{
	switch (status) {
	case IDEM_OK:
		return "success";
	case IDEM_PENDING:
		return "the answer comes later";
	case IDEM_E_NOMEM:
		return "out of memory";
	case IDEM_E_INVALID:
		return "invalid argument";
	case IDEM_E_FULL:
		return "the store is full";
	case IDEM_E_UNAVAILABLE:
		return "the store cannot be reached";
	case IDEM_E_INDOUBT:
		return "the store did not say whether it has written";
	case IDEM_E_CORRUPT:
		return "the bytes are damaged or not Idem's";
	case IDEM_E_VERSION:
		return "the bytes are of another version of Idem";
	case IDEM_E_RANDOM:
		return "the system gave no random bytes";
	case IDEM_E_SYSTEM:
		return "a system call failed";
	default:
		return "unknown status";
	}
}
