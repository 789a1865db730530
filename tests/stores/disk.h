/*
 * A disk that can be cut off or fail.
 *
 * A test that links disk.c takes pwrite(2), writev(2), fsync(2) and fdatasync(2) from everybody in its
 * process, LMDB too, and knows what of one file has reached the disk: what was written and then synced
 * without an error.  The rest is in the page cache, from where a power cut takes any part of it, sector by
 * sector.
 */
#ifndef IDEM_TEST_DISK_H
#define IDEM_TEST_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now on: the file with this device and inode, as it is, is on the disk. */
void disk_watch(const char *path);

/*
 * Called before each write and each sync of the file, with the disk at rest, by whoever writes.  NULL:
 * nobody. step counts these.
 */
void disk_on_step(void (*step)(uint64_t number, void *data), void *data);

/*
 * What a power cut at this moment would leave: all that is synced, and of all that is not each sector (512
 * bytes) with a probability of one half; seed decides.  From a step, or while nobody writes.  False: the file
 * could not be written.
 */
bool disk_cut(const char *path, uint64_t seed);

enum disk_fault {
	DISK_FINE,
	DISK_SYNC_FAILS,  /* EIO; what it should have written is lost, though it can be read until then */
	DISK_WRITE_FAILS, /* EIO for a meta page, which LMDB writes and syncs in one step */
	DISK_MAP_FAILS,   /* ENOMEM for mmap(2) */
	DISK_IS_FULL,     /* ENOSPC for what would make the file longer, and a short write before it */
};

/* From the next call on. */
void disk_break(enum disk_fault fault);

/* The skip + 1st time it could strike, it does, and then no more. */
void disk_break_once(enum disk_fault fault, unsigned skip);

/* How often the fault has struck since it was set. */
unsigned disk_struck(void);

#endif
