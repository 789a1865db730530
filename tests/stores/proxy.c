/* Between a store and its server: passes bytes on, and cuts a connection behind any one of them. */
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../support/test.h"

#define HELD_BYTES ((size_t)16 << 10)

/* One of the two sockets of a connection, and what is to be written to it. */
struct side {
	struct idem_fd watch;
	unsigned readiness;
	struct pair *pair;
	size_t held, sent;
	char bytes[HELD_BYTES];
};

/* sides[way] is where bytes of that way are written to. */
struct pair {
	struct proxy *proxy;
	struct pair *next, **link;
	struct side sides[2];
};

struct proxy {
	struct idem_loop *loop;
	struct idem_fd listener;
	unsigned port, server_port;
	const char *server_path;
	struct pair *pairs;
	bool cuts;
	enum proxy_way way;
	uint64_t left; /* until the cut */
};

/* ---- sockets ---- */

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
};

static socklen_t
make_address(union address *address, const char *path, unsigned port)
{
	memset(address, 0, sizeof *address);
	if (path != NULL) {
		address->un.sun_family = AF_UNIX;
		(void)snprintf(address->un.sun_path, sizeof address->un.sun_path, "%s", path);
		return sizeof address->un;
	}
	address->in.sin_family = AF_INET;
	address->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address->in.sin_port = htons((uint16_t)port);
	return sizeof address->in;
}

static int
make_socket(const union address *address)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

/* And never waits for more, where it could. */
static void
never_block(int fd)
{
	const int yes = 1;

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
		assert_int_equal(errno, EOPNOTSUPP); /* it has a path */
}

/* A server of this machine accepts at once, or not at all: -1. */
static int
connect_to_server(const struct proxy *proxy)
{
	union address address;
	socklen_t len = make_address(&address, proxy->server_path, proxy->server_port);
	int fd = make_socket(&address);

	if (connect(fd, &address.any, len) == 0) {
		never_block(fd);
		return fd;
	}
	(void)close(fd);
	return -1;
}

/* ---- a connection ---- */

static void
want(struct side *side, unsigned readiness)
{
	struct idem_loop *loop = side->pair->proxy->loop;

	if (side->readiness != readiness)
		assert_ok(loop->ops->fd_watch(loop, &side->watch, readiness));
	side->readiness = readiness;
}

static void
end(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		want(&pair->sides[i], 0);
		(void)close(pair->sides[i].watch.fd);
	}
	*pair->link = pair->next;
	if (pair->next != NULL)
		pair->next->link = pair->link;
	free(pair);
}

/* Nothing is read before what was read is written. */
static void
want_what_is_needed(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &pair->sides[i], *other = &pair->sides[!i];

		want(side, (side->held > 0 ? IDEM_WRITABLE : 0u) | (other->held == 0 ? IDEM_READABLE : 0u));
	}
}

/* False: the connection is broken, or to be cut here. */
static bool
write_held(struct side *side)
{
	struct proxy *proxy = side->pair->proxy;
	bool counts = proxy->cuts && side == &side->pair->sides[proxy->way];
	size_t len = side->held - side->sent;
	ssize_t n;

	if (counts && len > proxy->left)
		len = (size_t)proxy->left;
	n = send(side->watch.fd, side->bytes + side->sent, len, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN;
	side->sent += (size_t)n;
	if (side->sent == side->held)
		side->sent = side->held = 0;
	if (counts)
		proxy->left -= (uint64_t)n;
	if (counts && proxy->left == 0)
		proxy->cuts = false;
	return !counts || proxy->cuts;
}

static bool
pass_on(struct side *from, struct side *to)
{
	ssize_t n = recv(from->watch.fd, to->bytes, sizeof to->bytes, 0);

	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	to->held = (size_t)n;
	return write_held(to);
}

static void
is_ready(struct idem_fd *watch, unsigned readiness)
{
	struct side *side = (struct side *)(void *)((char *)watch - offsetof(struct side, watch));
	struct pair *pair = side->pair;
	struct side *other = &pair->sides[side == &pair->sides[0]];

	if ((readiness & IDEM_WRITABLE && side->held > 0 && !write_held(side)) ||
	    (readiness & IDEM_READABLE && other->held == 0 && !pass_on(side, other)))
		end(pair);
	else
		want_what_is_needed(pair);
}

static void
has_come(struct idem_fd *watch, unsigned readiness)
{
	struct proxy *proxy = (struct proxy *)(void *)((char *)watch - offsetof(struct proxy, listener));
	int client = accept(watch->fd, NULL, NULL), server;
	struct pair *pair;

	(void)readiness;
	if (client < 0)
		return; /* it is gone again */
	server = connect_to_server(proxy);
	if (server < 0) {
		(void)close(client);
		return;
	}
	never_block(client);
	pair = calloc(1, sizeof *pair);
	assert_non_null(pair);
	pair->proxy = proxy;
	pair->sides[PROXY_TO_SERVER].watch.fd = server;
	pair->sides[PROXY_TO_CLIENT].watch.fd = client;
	pair->next = proxy->pairs;
	pair->link = &proxy->pairs;
	if (pair->next != NULL)
		pair->next->link = &pair->next;
	proxy->pairs = pair;
	for (int i = 0; i < 2; i++) {
		pair->sides[i].pair = pair;
		pair->sides[i].watch.ready = is_ready;
	}
	want_what_is_needed(pair);
}

/* ---- life ---- */

struct proxy *
proxy_make(struct idem_loop *loop, const char *path, const char *server_path, unsigned server_port)
{
	struct proxy *proxy = calloc(1, sizeof *proxy);
	union address address;
	socklen_t len = make_address(&address, path, 0);

	assert_non_null(proxy);
	proxy->loop = loop;
	proxy->server_path = server_path;
	proxy->server_port = server_port;
	proxy->listener.fd = make_socket(&address);
	proxy->listener.ready = has_come;
	assert_int_equal(bind(proxy->listener.fd, &address.any, len), 0);
	assert_int_equal(listen(proxy->listener.fd, 64), 0);
	never_block(proxy->listener.fd);
	if (path == NULL) {
		assert_int_equal(getsockname(proxy->listener.fd, &address.any, &len), 0);
		proxy->port = ntohs(address.in.sin_port);
	}
	assert_ok(loop->ops->fd_watch(loop, &proxy->listener, IDEM_READABLE));
	return proxy;
}

void
proxy_free(struct proxy *proxy)
{
	while (proxy->pairs != NULL)
		end(proxy->pairs);
	assert_ok(proxy->loop->ops->fd_watch(proxy->loop, &proxy->listener, 0));
	(void)close(proxy->listener.fd);
	free(proxy);
}

unsigned
proxy_port(const struct proxy *proxy)
{
	return proxy->port;
}

void
proxy_cut(struct proxy *proxy, enum proxy_way way, uint64_t after)
{
	proxy->cuts = true;
	proxy->way = way;
	proxy->left = after;
}

bool
proxy_has_cut(const struct proxy *proxy)
{
	return !proxy->cuts;
}

void
proxy_spare(struct proxy *proxy)
{
	proxy->cuts = false;
}
