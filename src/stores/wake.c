/* Hints between the processes that share a store: see wake.h. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "wake.h"

static socklen_t
slot_address(const struct wake_board *board, int slot, struct sockaddr_un *address)
{
	char *p = address->sun_path;
	int n;

	address->sun_family = AF_UNIX;
	*p++ = '\0'; /* abstract: unix(7) */
	p += sprintf(p, "idem-");
	for (size_t i = 0; i < sizeof board->uuid; i++)
		p += sprintf(p, "%02x", board->uuid[i]);
	n = sprintf(p, "-%d", slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(p + n - address->sun_path));
}

/* An id is a digest: any of its bits will do. */
static size_t
bucket_of(const struct idem_id *id)
{
	const uint8_t *end = id->b + IDEM_ID_LEN;

	return ((size_t)end[-1] << 8 | end[-2]) % WAKE_BUCKETS;
}

int
idem_wake_socket(void)
{
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* ---- the board: only the owner of a slot sets and clears its bits ---- */

static void
set_bit(const struct wake *wake, size_t bucket)
{
	(void)atomic_fetch_or(&wake->board->waiting[bucket], (uint64_t)1 << wake->slot);
	/*
	 * Of two fences one is first.  If it is this one, whoever changes the cell finds the bit after
	 * the fence in idem_wake_ring(); else the caller, who asks once more now, finds the change.
	 */
	atomic_thread_fence(memory_order_seq_cst);
}

static void
clear_bit(const struct wake *wake, size_t bucket)
{
	uint64_t bit = (uint64_t)1 << wake->slot;

	if ((atomic_load(&wake->board->waiting[bucket]) & bit) != 0)
		(void)atomic_fetch_and(&wake->board->waiting[bucket], ~bit);
}

static void
clear_all_bits(const struct wake *wake)
{
	for (size_t i = 0; i < WAKE_BUCKETS; i++)
		clear_bit(wake, i);
}

/* In a child of fork(2) the slot is the parent's still. */
static bool
owns_slot(const struct wake *wake)
{
	return wake->slot >= 0 && wake->owner == getpid();
}

/* ---- hearing ---- */

static void
mark(struct wake *wake, const struct idem_id *id)
{
	for (struct idem_watch *watch = wake->watches; watch != NULL; watch = watch->next)
		if (memcmp(watch->id.b, id->b, IDEM_ID_LEN) == 0)
			watch->store_data = wake;
}

static struct idem_watch *
next_marked(struct wake *wake)
{
	struct idem_watch *watch = wake->watches;

	while (watch != NULL && watch->store_data == NULL)
		watch = watch->next;
	return watch;
}

static void
heard(struct idem_fd *socket, unsigned readiness)
{
	struct wake *wake = (struct wake *)(void *)((char *)socket - offsetof(struct wake, socket));
	struct idem_watch *watch;
	struct idem_id id;

	(void)readiness;
	while (recv(socket->fd, &id, sizeof id, MSG_DONTWAIT) == (ssize_t)sizeof id)
		mark(wake, &id);
	/* changed() may take any watch out of the list: begin anew each time. */
	while ((watch = next_marked(wake)) != NULL) {
		watch->store_data = NULL;
		watch->changed(watch);
	}
}

/* errno is EADDRINUSE if all slots are taken. */
static int
bind_free_slot(const struct wake *wake, int fd)
{
	for (int slot = 0; slot < WAKE_SLOTS; slot++) {
		struct sockaddr_un address = {0};
		socklen_t len = slot_address(wake->board, slot, &address);

		if (bind(fd, (const struct sockaddr *)&address, len) == 0)
			return slot;
		if (errno != EADDRINUSE)
			return -1;
	}
	return -1;
}

static int
take_slot(struct wake *wake, int fd)
{
	int rc, slot = bind_free_slot(wake, fd);

	if (slot < 0)
		return errno == EADDRINUSE ? IDEM_E_UNAVAILABLE : IDEM_E_SYSTEM;
	wake->socket = (struct idem_fd){.fd = fd, .ready = heard};
	rc = wake->loop->ops->fd_watch(wake->loop, &wake->socket, IDEM_READABLE);
	if (rc != IDEM_OK)
		return rc;
	wake->slot = slot;
	wake->owner = getpid();
	return IDEM_OK;
}

static void
close_socket(struct wake *wake)
{
	if (wake->loop->ops->fd_watch(wake->loop, &wake->socket, 0) == IDEM_OK) /* stopping cannot fail */
		(void)close(wake->socket.fd);
	wake->slot = -1;
}

static int
open_socket(struct wake *wake)
{
	int fd, rc;

	if (wake->loop == NULL)
		return IDEM_E_INVALID;
	if (owns_slot(wake))
		return IDEM_OK;
	if (wake->slot >= 0)
		close_socket(wake); /* two who read it would take each other's hints */
	fd = idem_wake_socket();
	if (fd < 0)
		return IDEM_E_SYSTEM;
	rc = take_slot(wake, fd);
	if (rc != IDEM_OK) {
		(void)close(fd);
		return rc;
	}
	clear_all_bits(wake); /* what the slot's last owner left, if it was killed */
	for (size_t i = 0; i < WAKE_BUCKETS; i++)
		if (wake->counts[i] > 0) /* watches from before a fork */
			set_bit(wake, i);
	return IDEM_OK;
}

int
idem_wake_watch(struct wake *wake, struct idem_watch *watch)
{
	size_t bucket = bucket_of(&watch->id);
	int rc = open_socket(wake);

	if (rc != IDEM_OK)
		return rc;
	if (wake->counts[bucket]++ == 0)
		set_bit(wake, bucket);
	watch->store_data = NULL;
	watch->next = wake->watches;
	watch->link = &wake->watches;
	if (watch->next != NULL)
		watch->next->link = &watch->next;
	wake->watches = watch;
	return IDEM_OK;
}

void
idem_wake_unwatch(struct wake *wake, struct idem_watch *watch)
{
	size_t bucket = bucket_of(&watch->id);

	if (--wake->counts[bucket] == 0 && owns_slot(wake))
		clear_bit(wake, bucket);
	*watch->link = watch->next;
	if (watch->next != NULL)
		watch->next->link = watch->link;
}

void
idem_wake_init(struct wake *wake, struct wake_board *board, struct idem_loop *loop)
{
	memset(wake, 0, sizeof *wake);
	wake->board = board;
	wake->loop = loop;
	wake->slot = -1;
}

void
idem_wake_close(struct wake *wake)
{
	if (owns_slot(wake))
		clear_all_bits(wake); /* before another can own the slot */
	if (wake->slot >= 0)
		close_socket(wake);
}

/* ---- telling ---- */

static void
send_to_slots(const struct wake_board *board, int fd, const struct idem_id *id, uint64_t slots)
{
	for (int slot = 0; slot < WAKE_SLOTS; slot++) {
		struct sockaddr_un address = {0};
		socklen_t len;

		if ((slots >> slot & 1) == 0)
			continue;
		len = slot_address(board, slot, &address);
		/* A hint that cannot be sent is lost, as hints may be: a dead process, a full buffer. */
		(void)sendto(fd, id, sizeof *id, MSG_DONTWAIT | MSG_NOSIGNAL,
		             (const struct sockaddr *)&address, len);
	}
}

void
idem_wake_ring(struct wake_board *board, int fd, const struct idem_id *id)
{
	uint64_t slots;
	int own = -1;

	atomic_thread_fence(memory_order_seq_cst); /* between the change and the look: see set_bit() */
	slots = atomic_load(&board->waiting[bucket_of(id)]);
	if (slots == 0)
		return;
	if (fd < 0)
		fd = own = idem_wake_socket();
	if (fd < 0)
		return;
	send_to_slots(board, fd, id, slots);
	if (own >= 0)
		(void)close(own);
}

void
idem_wake_ring_from(const struct wake *wake, const struct idem_id *id)
{
	idem_wake_ring(wake->board, wake->slot >= 0 ? wake->socket.fd : -1, id);
}
