/*
 * DIR/idem.run: what the processes that have a directory open share, apart from the cells.
 *
 * Two of its bytes are locked, by locks of open files (fcntl(2)), which end with their process: the first
 * while somebody opens or closes, the second, shared, by all who have the directory open.  Whoever comes
 * alone makes the contents anew.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <idem/guard.h>

#include "layout.h"

#define OPENING 0
#define USERS 1

static int
lock_byte(int fd, off_t byte, short type, int how)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int rc;

	do
		rc = fcntl(fd, how, &lock);
	while (rc == -1 && errno == EINTR);
	return rc == -1 ? errno : 0;
}

bool
idem_lmdb_name(const struct lmdb_env *env, const char *file, char ret_name[PATH_MAX])
{
	int n = snprintf(ret_name, PATH_MAX, "%s/%s", env->path, file);

	return n >= 0 && n < PATH_MAX;
}

static int
sync_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return errno;
	rc = fsync(fd) == -1 ? errno : 0;
	(void)close(fd);
	return rc;
}

int
idem_lmdb_run_sync(struct lmdb_env *env)
{
	char parent[PATH_MAX];
	int rc;

	if (msync(env->run, sizeof *env->run, MS_SYNC) == -1 || fsync(env->run_fd) == -1)
		return errno;
	rc = sync_directory(env->path);
	if (rc != 0 || !idem_lmdb_name(env, "..", parent))
		return rc;
	rc = sync_directory(parent);
	return rc == EACCES ? 0 : rc; /* who may not read it has not made the directory either */
}

/* A power cut may have left anything of what was never synced. */
static int
set_aside(struct lmdb_env *env, char *why, size_t cap)
{
	char from[PATH_MAX], to[PATH_MAX], name[64];

	(void)snprintf(name, sizeof name, "data.mdb.lost-%lld", (long long)time(NULL));
	if (!idem_lmdb_name(env, "data.mdb", from) || !idem_lmdb_name(env, name, to))
		return idem_lmdb_why(why, cap, env->path, "", ENAMETOOLONG);
	if (rename(from, to) == -1)
		return errno == ENOENT ? IDEM_OK : idem_lmdb_why(why, cap, env->path, "data.mdb", errno);
	(void)idem_lmdb_say(env->report, sizeof env->report, 0,
	                    "%s: the machine stopped while the store was used with sync=process: it begins "
	                    "empty, and what "
	                    "was left of its keys is in %s",
	                    env->path, name);
	atomic_fetch_add(&env->report_count, 1);
	return IDEM_OK;
}

static int
begin_anew(struct lmdb_env *env, char *why, size_t cap)
{
	struct run *run = env->run;
	char boot[BOOT_MAX];
	bool ours = memcmp(run->magic, RUN_MAGIC, sizeof run->magic) == 0 && run->version == RUN_VERSION;
	bool unsynced = ours && run->unsynced != 0;
	uint64_t inode = ours ? run->data_inode : 0, floor = ours ? atomic_load(&run->floor) : 0;
	int rc = idem_lmdb_boot(boot);

	if (rc != IDEM_OK)
		return idem_lmdb_say(why, cap, rc,
		                     "%s: cannot read /proc/sys/kernel/random/boot_id: mount /proc",
		                     env->path);
	if (unsynced && memcmp(run->boot, boot, sizeof boot) != 0) {
		rc = set_aside(env, why, cap);
		if (rc != IDEM_OK)
			return rc;
		unsynced = false;
		inode = floor = 0; /* a new file is right */
	}
	if (memcmp(run->boot, boot, sizeof boot) != 0 && floor > 0)
		floor = 1; /* what was not synced may be missing from the end, but not all */
	/* Its mark stays until it is known to be wrong: this process may be killed at any point. */
	run->unsynced = unsynced;
	memset(&run->board, 0, sizeof run->board);
	rc = idem_random(NULL, run->board.uuid, sizeof run->board.uuid);
	if (rc != IDEM_OK)
		return idem_lmdb_say(why, cap, rc, "%s: %s", env->path, idem_strerror(rc));
	atomic_store(&run->durable, 0);
	atomic_store(&run->suspect, 0);
	atomic_store(&run->floor, floor);
	run->unused = 0;
	run->relaxed = env->sync == IDEM_LMDB_SYNC_PROCESS;
	run->data_inode = inode;
	memcpy(run->boot, boot, sizeof boot);
	run->version = RUN_VERSION;
	memcpy(run->magic, RUN_MAGIC, sizeof run->magic);
	return IDEM_OK;
}

static int
join(const struct lmdb_env *env, char *why, size_t cap)
{
	const struct run *run = env->run;

	if (memcmp(run->magic, RUN_MAGIC, sizeof run->magic) != 0 || run->version != RUN_VERSION)
		return idem_lmdb_say(why, cap, IDEM_E_VERSION,
		                     "%s/idem.run: used at the moment by another version of Idem: stop its "
		                     "processes first",
		                     env->path);
	if (run->relaxed != (env->sync == IDEM_LMDB_SYNC_PROCESS))
		return idem_lmdb_say(why, cap, IDEM_E_INVALID,
		                     "%s: other processes use it with %s: give all of them the same sync, or "
		                     "stop those first",
		                     env->path, run->relaxed ? "sync=process" : "another sync than process");
	return IDEM_OK;
}

static int
open_file(struct lmdb_env *env, char *why, size_t cap)
{
	char name[PATH_MAX];
	int rc;

	if (!idem_lmdb_name(env, "idem.run", name))
		return idem_lmdb_why(why, cap, env->path, "", ENAMETOOLONG);
	env->run_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (env->run_fd < 0)
		return idem_lmdb_why(why, cap, env->path, "idem.run", errno);
	rc = lock_byte(env->run_fd, OPENING, F_WRLCK, F_OFD_SETLKW);
	return rc == 0 ? IDEM_OK : idem_lmdb_why(why, cap, env->path, "idem.run", rc);
}

/*
 * Blocks are taken now: a full disk is found here, and not by a SIGBUS.  A file that is opened again comes to
 * the same address: handles know where the board is.
 */
static int
map_file(struct lmdb_env *env)
{
	int rc = posix_fallocate(env->run_fd, 0, sizeof *env->run);
	struct run *run;

	if (rc != 0)
		return rc;
	run = mmap(env->run, sizeof *run, PROT_READ | PROT_WRITE,
	           MAP_SHARED | (env->run != NULL ? MAP_FIXED : 0), env->run_fd, 0);
	if (run == MAP_FAILED)
		return errno;
	env->run = run;
	return 0;
}

int
idem_lmdb_run_open(struct lmdb_env *env, bool *ret_alone, char *why, size_t cap)
{
	int rc = open_file(env, why, cap);

	if (rc != IDEM_OK)
		return rc;
	rc = map_file(env);
	if (rc == 0 && env->run == NULL) /* mmap() gives no such address; clang-tidy does not know */
		rc = ENOMEM;
	if (rc != 0)
		return idem_lmdb_why(why, cap, env->path, "idem.run", rc);
	*ret_alone = lock_byte(env->run_fd, USERS, F_WRLCK, F_OFD_SETLK) == 0;
	if (!*ret_alone) {
		rc = lock_byte(env->run_fd, USERS, F_RDLCK, F_OFD_SETLK);
		if (rc != 0)
			return idem_lmdb_why(why, cap, env->path, "idem.run", rc);
		return join(env, why, cap);
	}
	return begin_anew(env, why, cap);
}

void
idem_lmdb_run_opened(struct lmdb_env *env)
{
	/* Neither can fail: a lock that is held is made weaker, or let go. */
	(void)lock_byte(env->run_fd, USERS, F_RDLCK, F_OFD_SETLK);
	(void)lock_byte(env->run_fd, OPENING, F_UNLCK, F_OFD_SETLK);
}

bool
idem_lmdb_run_last(struct lmdb_env *env)
{
	return lock_byte(env->run_fd, OPENING, F_WRLCK, F_OFD_SETLKW) == 0 &&
	       lock_byte(env->run_fd, USERS, F_WRLCK, F_OFD_SETLK) == 0;
}

void
idem_lmdb_run_close(struct lmdb_env *env)
{
	if (env->run_fd < 0)
		return;
	/* Closing would not do: the mapping is a user of the open file too, and so is a child after fork().
	 */
	(void)lock_byte(env->run_fd, USERS, F_UNLCK, F_OFD_SETLK);
	(void)lock_byte(env->run_fd, OPENING, F_UNLCK, F_OFD_SETLK);
	(void)close(env->run_fd);
	env->run_fd = -1;
}

void
idem_lmdb_run_unmap(struct lmdb_env *env)
{
	if (env->run != NULL)
		(void)munmap(env->run, sizeof *env->run);
	env->run = NULL;
}
