/* From a name to addresses, on a thread of its own: getaddrinfo(3) blocks. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

struct resolution {
	struct idem_offload *offload;
	char host[HOST_MAX + 1], port[8];
	struct addrinfo *found;
	int rc; /* of getaddrinfo(3) */
	void (*done)(void *data, struct addrinfo *found, const char *error);
	void *data;
};

static int
look_up(struct resolution *resolution, int flags)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};

	return getaddrinfo(resolution->host, resolution->port, &hints, &resolution->found);
}

static void
work(void *data)
{
	struct resolution *resolution = data;

	resolution->rc = look_up(resolution, AI_ADDRCONFIG);
}

static void
done(void *data)
{
	struct resolution *resolution = data;

	resolution->done(resolution->data, resolution->found,
	                 resolution->rc == 0 ? NULL : gai_strerror(resolution->rc));
	free(resolution);
}

static void
discard(void *data)
{
	struct resolution *resolution = data;

	if (resolution->found != NULL)
		freeaddrinfo(resolution->found);
	free(resolution);
}

static const struct idem_offload_ops resolve_ops = {work, done, discard};

struct resolution *
idem_redis_resolve(struct idem_loop *loop, const struct address *address,
                   void (*then)(void *data, struct addrinfo *found, const char *error), void *data,
                   struct addrinfo **ret_found)
{
	struct resolution *resolution = calloc(1, sizeof *resolution);

	*ret_found = NULL;
	if (resolution == NULL)
		return NULL;
	(void)snprintf(resolution->host, sizeof resolution->host, "%s", address->host);
	(void)snprintf(resolution->port, sizeof resolution->port, "%u", address->port);
	resolution->done = then;
	resolution->data = data;
	if (look_up(resolution, AI_NUMERICHOST) == 0) {
		*ret_found = resolution->found;
		free(resolution);
		return NULL;
	}
	resolution->found = NULL;
	if (idem_offload_start(&resolution->offload, loop, &resolve_ops, resolution) == IDEM_OK)
		return resolution;
	free(resolution);
	return NULL;
}

void
idem_redis_resolve_cancel(struct resolution *resolution)
{
	idem_offload_cancel(resolution->offload);
}
