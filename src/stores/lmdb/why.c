/* What LMDB's and the system's errors mean to those who use a store, and what helps. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "layout.h"

bool
idem_lmdb_no_space(int rc)
{
	return rc == ENOSPC || rc == EDQUOT || rc == EFBIG;
}

int
idem_lmdb_status(int rc)
{
	switch (rc) {
	case 0:
		return IDEM_OK;
	case ENOMEM:
		return IDEM_E_NOMEM;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return IDEM_E_FULL;
	case MDB_INVALID:
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INCOMPATIBLE:
		return IDEM_E_CORRUPT;
	case MDB_VERSION_MISMATCH:
		return IDEM_E_VERSION;
	default:
		return IDEM_E_UNAVAILABLE;
	}
}

int
idem_lmdb_say(char *why, size_t cap, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(why, cap, format, arguments);
	va_end(arguments);
	return status;
}

static const char *
cure(int rc)
{
	switch (rc) {
	case EROFS:
		return "mount the file system writable, or choose another directory";
	case ENOENT:
		return "make the directory above it, or choose another path";
	case ENOTDIR:
		return "a file is where a directory should be: choose another path";
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return "free some space on its file system";
	case ENOMEM:
		return "it can be mapped when the process may use as much address space as its size";
	case EMFILE:
	case ENFILE:
		return "allow more open files";
	case MDB_INVALID:
		return "it is no file of LMDB's, or its beginning was overwritten: restore a backup, or move "
		       "it away "
		       "and lose its keys";
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INCOMPATIBLE:
		return "it is damaged: restore a backup, or move it away and lose its keys";
	case MDB_VERSION_MISMATCH:
		return "it is of another version of LMDB: use the one that wrote it, or move it away and "
		       "lose its keys";
	case MDB_READERS_FULL:
		return "too many processes read it at once";
	default:
		return "see the system's log";
	}
}

int
idem_lmdb_why(char *why, size_t cap, const char *path, const char *file, int rc)
{
	const char *slash = file[0] == '\0' ? "" : "/";

	if ((rc == EACCES || rc == EPERM) && faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) == -1)
		return idem_lmdb_say(why, cap, IDEM_E_UNAVAILABLE,
		                     "%s: permission denied: let user id %u pass the directories above it",
		                     path, (unsigned)geteuid());
	if (rc == EACCES || rc == EPERM)
		return idem_lmdb_say(
			why, cap, IDEM_E_UNAVAILABLE,
			"%s%s%s: permission denied: give the directory and all files in it to user id %u",
			path, slash, file, (unsigned)geteuid());
	return idem_lmdb_say(why, cap, idem_lmdb_status(rc), "%s%s%s: %s: %s", path, slash, file,
	                     mdb_strerror(rc), cure(rc));
}
