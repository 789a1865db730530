/* A disk that can be cut off or fail: see disk.h. */
#define _GNU_SOURCE      /* RTLD_NEXT, O_DSYNC */
#undef _FILE_OFFSET_BITS /* or pwrite() would be called pwrite64() */
#include "disk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR 512

/* What was written and not yet synced, in order. */
struct piece {
	struct piece *next;
	off_t at;
	size_t len;
	bool lost; /* its sync failed: in the page cache, and never on the disk */
	uint8_t bytes[];
};

static struct {
	pthread_mutex_t lock;
	dev_t device;
	ino_t inode;
	bool watched;
	uint8_t *image; /* on the disk */
	size_t len;
	struct piece *first, **last;
	void (*step)(uint64_t number, void *data);
	void *step_data;
	uint64_t steps;
	enum disk_fault fault;
	bool once;
	unsigned skip;
	unsigned struck;
} disk = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .last = &disk.first}; /* a step may break it */

static void *
must(void *pointer)
{
	if (pointer == NULL)
		abort();
	return pointer;
}

static ssize_t
real_pwrite(int fd, const void *bytes, size_t len, off_t at)
{
	ssize_t (*next)(int, const void *, size_t, off_t);

	*(void **)&next = must(dlsym(RTLD_NEXT, "pwrite"));
	return next(fd, bytes, len, at);
}

static bool
is_watched(int fd)
{
	struct stat st;

	return disk.watched && fstat(fd, &st) == 0 && st.st_dev == disk.device && st.st_ino == disk.inode;
}

static void
step(void)
{
	disk.steps++;
	if (disk.step != NULL)
		disk.step(disk.steps, disk.step_data);
}

/* ---- what is where ---- */

static void
apply(const void *bytes, size_t len, off_t at)
{
	size_t end = (size_t)at + len;

	if (end > disk.len) {
		disk.image = must(realloc(disk.image, end));
		memset(disk.image + disk.len, 0, end - disk.len);
		disk.len = end;
	}
	memcpy(disk.image + at, bytes, len);
}

static void
remember(const void *bytes, size_t len, off_t at)
{
	struct piece *piece = must(malloc(sizeof *piece + len));

	piece->next = NULL;
	piece->at = at;
	piece->len = len;
	piece->lost = false;
	memcpy(piece->bytes, bytes, len);
	*disk.last = piece;
	disk.last = &piece->next;
}

static void
synced(void)
{
	struct piece *piece;

	while ((piece = disk.first) != NULL) {
		disk.first = piece->next;
		if (!piece->lost)
			apply(piece->bytes, piece->len, piece->at);
		free(piece);
	}
	disk.last = &disk.first;
}

void
disk_watch(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0)
		abort();
	(void)pthread_mutex_lock(&disk.lock);
	synced();
	free(disk.image);
	disk.len = (size_t)st.st_size;
	disk.image = must(malloc(disk.len + 1));
	if (pread(fd, disk.image, disk.len, 0) != (ssize_t)disk.len)
		abort();
	disk.device = st.st_dev;
	disk.inode = st.st_ino;
	disk.watched = true;
	(void)pthread_mutex_unlock(&disk.lock);
	(void)close(fd);
}

void
disk_on_step(void (*function)(uint64_t number, void *data), void *data)
{
	(void)pthread_mutex_lock(&disk.lock);
	disk.step = function;
	disk.step_data = data;
	(void)pthread_mutex_unlock(&disk.lock);
}

void
disk_break(enum disk_fault fault)
{
	(void)pthread_mutex_lock(&disk.lock);
	disk.fault = fault;
	disk.once = false;
	disk.skip = 0;
	disk.struck = 0;
	(void)pthread_mutex_unlock(&disk.lock);
}

void
disk_break_once(enum disk_fault fault, unsigned skip)
{
	(void)pthread_mutex_lock(&disk.lock);
	disk_break(fault);
	disk.once = true;
	disk.skip = skip;
	(void)pthread_mutex_unlock(&disk.lock);
}

unsigned
disk_struck(void)
{
	unsigned struck;

	(void)pthread_mutex_lock(&disk.lock);
	struck = disk.struck;
	(void)pthread_mutex_unlock(&disk.lock);
	return struck;
}

/* ---- a power cut ---- */

static uint64_t
next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static bool
write_piece(int fd, const struct piece *piece, uint64_t *seed)
{
	for (size_t i = 0; i < piece->len; i += SECTOR) {
		size_t n = piece->len - i < SECTOR ? piece->len - i : SECTOR;

		if (next_random(seed) >> 32 & 1)
			continue;
		if (real_pwrite(fd, piece->bytes + i, n, piece->at + (off_t)i) != (ssize_t)n)
			return false;
	}
	return true;
}

bool
disk_cut(const char *path, uint64_t seed)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool fine = fd >= 0 && real_pwrite(fd, disk.image, disk.len, 0) == (ssize_t)disk.len;

	seed = (seed + 1) * 0x9e3779b97f4a7c15;
	for (const struct piece *piece = disk.first; fine && piece != NULL; piece = piece->next)
		if (!piece->lost)
			fine = write_piece(fd, piece, &seed);
	if (fd >= 0)
		(void)close(fd);
	return fine;
}

/* ---- what everybody calls ---- */

static bool
strikes(int fd, enum disk_fault fault, off_t end)
{
	bool meta = (fcntl(fd, F_GETFL) & O_DSYNC) != 0;

	if (disk.fault != fault)
		return false;
	if (fault == DISK_WRITE_FAILS && !meta)
		return false;
	if (fault == DISK_IS_FULL && end <= lseek(fd, 0, SEEK_END))
		return false;
	if (disk.skip > 0) {
		disk.skip--;
		return false;
	}
	disk.struck++;
	if (disk.once)
		disk.fault = DISK_FINE;
	return true;
}

static ssize_t
fail(int error)
{
	errno = error;
	return -1;
}

static ssize_t
write_watched(int fd, const void *bytes, size_t len, off_t at)
{
	ssize_t n;

	step();
	if (strikes(fd, DISK_IS_FULL, at + (off_t)len)) {
		if (disk.struck % 2 == 0)
			return fail(ENOSPC);
		len /= 2; /* as far as there was room */
	}
	n = real_pwrite(fd, bytes, len, at);
	if (n <= 0)
		return n;
	/* LMDB's meta pages: a write through O_DSYNC is on the disk when it returns, and it alone. */
	if ((fcntl(fd, F_GETFL) & O_DSYNC) == 0) {
		remember(bytes, (size_t)n, at);
		return n;
	}
	if (strikes(fd, DISK_WRITE_FAILS, 0))
		return fail(EIO);
	apply(bytes, (size_t)n, at);
	return n;
}

ssize_t
pwrite(int fd, const void *bytes, size_t len, off_t at)
{
	ssize_t n;

	if (!is_watched(fd))
		return real_pwrite(fd, bytes, len, at);
	(void)pthread_mutex_lock(&disk.lock);
	n = write_watched(fd, bytes, len, at);
	(void)pthread_mutex_unlock(&disk.lock);
	return n;
}

ssize_t
pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
	return pwrite(fd, bytes, len, at);
}

ssize_t
writev(int fd, const struct iovec *parts, int count)
{
	ssize_t (*next)(int, const struct iovec *, int), n = 0;
	off_t at = lseek(fd, 0, SEEK_CUR);

	*(void **)&next = must(dlsym(RTLD_NEXT, "writev"));
	if (!is_watched(fd))
		return next(fd, parts, count);
	(void)pthread_mutex_lock(&disk.lock);
	for (int i = 0; i < count; i++) {
		ssize_t len = (ssize_t)parts[i].iov_len,
			wrote = write_watched(fd, parts[i].iov_base, parts[i].iov_len, at + n);

		if (wrote < 0 && n == 0)
			n = -1;
		if (wrote > 0)
			n += wrote;
		if (wrote != len)
			break;
	}
	(void)pthread_mutex_unlock(&disk.lock);
	return n;
}

static int
sync_file(int fd, const char *name)
{
	int (*next)(int), rc = 0;

	*(void **)&next = must(dlsym(RTLD_NEXT, name));
	if (!is_watched(fd))
		return next(fd);
	(void)pthread_mutex_lock(&disk.lock);
	step();
	if (strikes(fd, DISK_SYNC_FAILS, 0)) {
		for (struct piece *piece = disk.first; piece != NULL; piece = piece->next)
			piece->lost = true;
		rc = (int)fail(EIO);
	}
	if (rc == 0)
		synced();
	(void)pthread_mutex_unlock(&disk.lock);
	return rc;
}

void *
mmap(void *address, size_t len, int protection, int flags, int fd, off_t at)
{
	void *(*next)(void *, size_t, int, int, int, off_t);

	*(void **)&next = must(dlsym(RTLD_NEXT, "mmap"));
	if (fd >= 0 && is_watched(fd)) {
		bool struck;

		(void)pthread_mutex_lock(&disk.lock);
		struck = strikes(fd, DISK_MAP_FAILS, 0);
		(void)pthread_mutex_unlock(&disk.lock);
		if (struck) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
	}
	return next(address, len, protection, flags, fd, at);
}

/* By this name a library that was built for large files calls it. */
int
fstatvfs64(int fd, struct statvfs64 *fs)
{
	int (*next)(int, struct statvfs64 *), rc;

	*(void **)&next = must(dlsym(RTLD_NEXT, "fstatvfs64"));
	rc = next(fd, fs);
	(void)pthread_mutex_lock(&disk.lock);
	if (is_watched(fd) && disk.fault == DISK_IS_FULL)
		fs->f_bavail = 0;
	(void)pthread_mutex_unlock(&disk.lock);
	return rc;
}

int
fdatasync(int fd)
{
	return sync_file(fd, "fdatasync");
}

int
fsync(int fd)
{
	return sync_file(fd, "fsync");
}
