/* A server, and our few connections to it. */
#include <stdlib.h>

#include "layout.h"

size_t
idem_redis_node_place(const struct node *node, const struct link *link)
{
	return (size_t)(link - node->links);
}

static void
is_up(struct link *link)
{
	struct node *node = link->user_data;
	char address[HOST_MAX + 16];

	idem_redis_address_text(&link->address, address, sizeof address);
	idem_redis_recovered(link->hub, TROUBLE_SERVER, "%s: the store works again", address);
	idem_redis_route_node_up(node->store);
	idem_redis_calls_go_on(node->store);
}

static void
is_down(struct link *link, const char *why)
{
	struct node *node = link->user_data;

	idem_redis_calls_link_down(node, link);
	if (link->tried)
		idem_redis_report(link->hub, TROUBLE_SERVER, "cannot use the server %s", why);
	idem_redis_route_doubt(node->store);
	idem_redis_calls_go_on(node->store);
}

static bool
before_write(struct link *link)
{
	return idem_redis_calls_before_write(link->user_data, link);
}

static const struct link_user node_user = {.up = is_up, .down = is_down, .before_write = before_write};

struct node *
idem_redis_node_get(struct redis_store *store)
{
	struct node *node, **last;

	for (last = &store->nodes; *last != NULL; last = &(*last)->next)
		if (!(*last)->known)
			return *last;
	node = calloc(1, sizeof *node);
	if (node == NULL)
		return NULL;
	node->store = store;
	*last = node;
	for (size_t i = 0; i < store->hub.uri.connections; i++)
		idem_redis_link_init(&node->links[i], &store->hub, LINK_FOR_DATA, &node_user, node);
	return node;
}

void
idem_redis_nodes_free(struct redis_store *store)
{
	struct node *node;

	for (node = store->nodes; node != NULL; node = node->next)
		idem_redis_node_close(node);
	while ((node = store->nodes) != NULL) {
		store->nodes = node->next;
		free(node);
	}
}

void
idem_redis_node_open(struct node *node, const struct address *address)
{
	if (node->known && idem_redis_address_same(&node->links[0].address, address))
		return;
	idem_redis_node_close(node);
	node->known = true;
	for (size_t i = 0; i < node->store->hub.uri.connections; i++)
		idem_redis_link_open(&node->links[i], address);
}

void
idem_redis_node_close(struct node *node)
{
	if (!node->known)
		return;
	node->known = false;
	for (size_t i = 0; i < node->store->hub.uri.connections; i++) {
		idem_redis_link_close(&node->links[i]);
		idem_redis_calls_link_down(node, &node->links[i]);
	}
}

struct link *
idem_redis_node_link(struct node *node, bool *ret_hope)
{
	struct link *best = NULL;

	*ret_hope = false;
	for (size_t i = 0; node->known && i < node->store->hub.uri.connections; i++) {
		struct link *link = &node->links[i];

		if (link->state == LINK_UP && (best == NULL || link->pending < best->pending))
			best = link;
		*ret_hope |= !link->tried;
	}
	return best;
}
