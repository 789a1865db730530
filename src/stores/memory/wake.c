/*
 * Telling other processes that a cell has changed.
 *
 * Each process that waits has one of 64 slots: an abstract Unix socket with the
 * region's uuid and the slot's number in its name, which the kernel takes away
 * when the process dies.  A cell that is locked knows by a bit for each slot
 * who wants to hear; whoever changes it sends them its id.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "layout.h"

static socklen_t
slot_address(const struct memory_store *store, int slot, struct sockaddr_un *address)
{
	char *p = address->sun_path;
	int n;

	address->sun_family = AF_UNIX;
	*p++ = '\0'; /* abstract: unix(7) */
	p += sprintf(p, "idem-");
	for (size_t i = 0; i < sizeof store->region->uuid; i++)
		p += sprintf(p, "%02x", store->region->uuid[i]);
	n = sprintf(p, "-%d", slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(p + n - address->sun_path));
}

/* ---- hearing ---- */

static void
mark(struct memory_store *store, const struct idem_id *id)
{
	for (struct idem_watch *watch = store->watches; watch != NULL; watch = watch->next)
		if (memcmp(watch->id.b, id->b, IDEM_ID_LEN) == 0)
			watch->store_data = store;
}

static struct idem_watch *
next_marked(struct memory_store *store)
{
	struct idem_watch *watch = store->watches;

	while (watch != NULL && watch->store_data == NULL)
		watch = watch->next;
	return watch;
}

static void
heard(struct idem_fd *socket, unsigned readiness)
{
	struct memory_store *store =
		(struct memory_store *)(void *)((char *)socket - offsetof(struct memory_store, socket));
	struct idem_watch *watch;
	struct idem_id id;

	(void)readiness;
	while (recv(socket->fd, &id, sizeof id, MSG_DONTWAIT) == (ssize_t)sizeof id)
		mark(store, &id);
	/* changed() may take any watch out of the list: begin anew each time. */
	while ((watch = next_marked(store)) != NULL) {
		watch->store_data = NULL;
		watch->changed(watch);
	}
}

static int
bind_free_slot(struct memory_store *store, int fd)
{
	for (int slot = 0; slot < WAKE_SLOTS; slot++) {
		struct sockaddr_un address = {0};
		socklen_t len = slot_address(store, slot, &address);

		if (bind(fd, (const struct sockaddr *)&address, len) == 0)
			return slot;
		if (errno != EADDRINUSE)
			return -1;
	}
	return -1;
}

static int
open_socket(struct memory_store *store)
{
	struct idem_loop *loop = store->options.loop;
	int fd, slot, rc;

	if (loop == NULL)
		return IDEM_E_INVALID;
	if (store->slot >= 0)
		return IDEM_OK;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return IDEM_E_SYSTEM;
	slot = bind_free_slot(store, fd);
	if (slot < 0) {
		(void)close(fd);
		return IDEM_E_UNAVAILABLE;
	}
	store->socket.fd = fd;
	store->socket.ready = heard;
	rc = loop->ops->fd_watch(loop, &store->socket, IDEM_READABLE);
	if (rc != IDEM_OK) {
		(void)close(fd);
		return rc;
	}
	store->slot = slot;
	return IDEM_OK;
}

/* False: there is no need for a bit, or it is there already. */
static bool
lacks_bit(const struct memory_store *store, const struct first_half *first)
{
	return store->slot >= 0 && first->state == IDEM_LOCKED &&
	       (block_at(store, first->second)->second.waiters >> store->slot & 1) == 0;
}

static void
leave_bit(struct memory_store *store, uint32_t number)
{
	const struct first_half *first = &block_at(store, number)->first;

	if (lacks_bit(store, first))
		block_at(store, first->second)->second.waiters |= (uint64_t)1 << store->slot;
}

void
idem_memory_stay_awake(struct memory_store *store, uint32_t number)
{
	const struct first_half *first = &block_at(store, number)->first;

	/* Before the list, which is long when many wait: all of them come here, again and again. */
	if (!lacks_bit(store, first))
		return;
	for (struct idem_watch *watch = store->watches; watch != NULL; watch = watch->next) {
		if (memcmp(watch->id.b, first->id.b, IDEM_ID_LEN) == 0) {
			leave_bit(store, number);
			return;
		}
	}
}

static int
enter_and_leave_bit(struct memory_store *store, const struct idem_id *id)
{
	struct place place = idem_memory_place(store, id);
	uint32_t *link, number;
	int rc = idem_memory_enter(store, place.shard);

	if (rc != IDEM_OK)
		return rc;
	number = idem_memory_find(store, &place, id, &link);
	if (number != 0)
		leave_bit(store, number);
	idem_memory_unlock(&place.shard->lock);
	return IDEM_OK;
}

int
idem_memory_watch(struct idem_store *base, struct idem_watch *watch)
{
	struct memory_store *store = idem_memory_downcast(base);
	int rc = open_socket(store);

	if (rc == IDEM_OK)
		rc = enter_and_leave_bit(store, &watch->id);
	if (rc != IDEM_OK)
		return rc;
	watch->store_data = NULL;
	watch->next = store->watches;
	watch->link = &store->watches;
	if (watch->next != NULL)
		watch->next->link = &watch->next;
	store->watches = watch;
	return IDEM_OK;
}

void
idem_memory_unwatch(struct idem_store *base, struct idem_watch *watch)
{
	(void)base; /* the bit stays: a hint too many harms nobody */
	*watch->link = watch->next;
	if (watch->next != NULL)
		watch->next->link = watch->link;
}

void
idem_memory_wake_close(struct memory_store *store)
{
	struct idem_loop *loop = store->options.loop;

	if (store->slot < 0)
		return;
	if (loop->ops->fd_watch(loop, &store->socket, 0) == IDEM_OK) /* stopping cannot fail */
		(void)close(store->socket.fd);
	store->slot = -1;
}

/* ---- telling ---- */

/* A hint that cannot be sent is lost, as hints may be: a dead process, a full buffer. */
void
idem_memory_ring(const struct memory_store *store, const struct idem_id *id, uint64_t waiters)
{
	int fd;

	if (waiters == 0)
		return;
	fd = store->slot >= 0 ? store->socket.fd
	                      : socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	for (int slot = 0; slot < WAKE_SLOTS; slot++) {
		struct sockaddr_un address = {0};
		socklen_t len;

		if ((waiters >> slot & 1) == 0)
			continue;
		len = slot_address(store, slot, &address);
		(void)sendto(fd, id, sizeof *id, MSG_DONTWAIT | MSG_NOSIGNAL,
		             (const struct sockaddr *)&address, len);
	}
	if (store->slot < 0)
		(void)close(fd);
}
