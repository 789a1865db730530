/* Between a store and its server: passes bytes on, and cuts a connection behind any one of them. */
#ifndef IDEM_TEST_PROXY_H
#define IDEM_TEST_PROXY_H

#include <idem/loop.h>

struct proxy;

enum proxy_way { PROXY_TO_SERVER, PROXY_TO_CLIENT };

/*
 * Listens on a socket of that path, or on a port of 127.0.0.1 if path is NULL; each connection is one to the
 * server, which is at a path as well, or at a port of 127.0.0.1 if server_path is NULL.  All of it happens on
 * the loop.  Fails the test.
 */
struct proxy *proxy_make(struct idem_loop *loop, const char *path, const char *server_path,
                         unsigned server_port);
void proxy_free(struct proxy *proxy);
unsigned proxy_port(const struct proxy *proxy);

/*
 * The connection that passes the bytes in that direction, counted from now and over all connections, is cut
 * when "after" of them have arrived.  0: none arrives.  Once.
 */
void proxy_cut(struct proxy *proxy, enum proxy_way way, uint64_t after);
/* Is nothing left to be cut? */
bool proxy_has_cut(const struct proxy *proxy);
/* Nothing is cut any more. */
void proxy_spare(struct proxy *proxy);

#endif
