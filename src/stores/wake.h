/*
 * Telling other processes that a cell has changed.
 *
 * The users of a store share a board in mapped memory.  Each handle that waits has one of
 * 64 slots: an abstract Unix socket with the board's uuid and the slot's number in
 * its name, which the kernel takes away when the process dies.  The board has a bit for each
 * slot in each of its buckets of ids, set for as long as the slot's owner has a watch there:
 * whoever changes a cell sends the cell's id to the slots that are set.
 *
 * There are no locks and nothing to repair: a bit too many costs one datagram, and the bits of
 * a dead process are taken away by the next owner of its slot.  A bit is cleared by nobody but
 * the process that has the slot's name, so a watch that lives keeps its bit.
 *
 * Abstract names belong to a network namespace.  Processes that share a store and no such namespace do
 * not hear of each other's changes, and may take a bit from each other; then they ask now and then.
 */
#ifndef IDEM_STORES_WAKE_H
#define IDEM_STORES_WAKE_H

#include <stdatomic.h>
#include <sys/types.h>

#include <idem/loop.h>
#include <idem/store.h>

#define WAKE_SLOTS 64
#define WAKE_BUCKETS 1024

/* Other processes do not see a lock that a library would put beside the word. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words of 64 bits are atomic by themselves");

struct wake_board {
	uint8_t uuid[16];                       /* random */
	_Atomic uint64_t waiting[WAKE_BUCKETS]; /* a bit for each slot */
};

/* One handle's end.  Belongs to its thread. */
struct wake {
	struct wake_board *board;
	struct idem_loop *loop; /* may be NULL: then nothing is ever heard */
	struct idem_fd socket;  /* valid while slot >= 0 */
	int slot;
	pid_t owner; /* of the slot: after fork(2) it is the parent */
	struct idem_watch *watches;
	uint32_t counts[WAKE_BUCKETS]; /* of our watches */
};

/* The socket is made at the first watch, and once more at the first watch in a process that forked off. */
void idem_wake_init(struct wake *wake, struct wake_board *board, struct idem_loop *loop);
void idem_wake_close(struct wake *wake);

/* As idem_store_ops.watch.  IDEM_E_INVALID (no loop), IDEM_E_UNAVAILABLE (no free slot), IDEM_E_NOMEM,
 * IDEM_E_SYSTEM. */
int idem_wake_watch(struct wake *wake, struct idem_watch *watch) IDEM_MUST_CHECK;
void idem_wake_unwatch(struct wake *wake, struct idem_watch *watch);

/* To be called when others can see the change.  Any thread.  fd: any datagram socket of AF_UNIX, or -1. */
void idem_wake_ring(struct wake_board *board, int fd, const struct idem_id *id);
/* With the handle's own socket, if it has one. */
void idem_wake_ring_from(const struct wake *wake, const struct idem_id *id);

/* A socket for idem_wake_ring(), or -1. */
int idem_wake_socket(void);

#endif
