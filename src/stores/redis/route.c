/* Which server has a cell: the one, the one that Sentinels name, or the one that has its slot. */
#include <string.h>

#include "layout.h"

struct node *
idem_redis_route(struct redis_store *store, const struct call *call, bool *ret_hope)
{
	if (store->hub.uri.plan == PLAN_CLUSTER)
		return idem_redis_cluster_node(store, call, ret_hope);
	if (store->nodes->known)
		return store->nodes;
	*ret_hope = store->sentinel.asked <= store->hub.uri.count; /* not yet every one in vain */
	return NULL;
}

int
idem_redis_route_open(struct redis_store *store)
{
	if (store->hub.uri.plan == PLAN_CLUSTER)
		return idem_redis_cluster_open(store);
	store->nodes = idem_redis_node_get(store);
	if (store->nodes == NULL)
		return IDEM_E_NOMEM;
	if (store->hub.uri.plan == PLAN_SENTINEL)
		idem_redis_sentinel_open(store);
	else
		idem_redis_node_open(store->nodes, &store->hub.uri.addresses[0]);
	return IDEM_OK;
}

void
idem_redis_route_close(struct redis_store *store)
{
	if (store->hub.uri.plan == PLAN_SENTINEL)
		idem_redis_sentinel_close(store);
	idem_redis_nodes_free(store);
	if (store->hub.uri.plan == PLAN_CLUSTER)
		idem_redis_cluster_close(store);
}

void
idem_redis_route_node_up(struct redis_store *store)
{
	if (store->hub.uri.plan == PLAN_CLUSTER)
		idem_redis_cluster_node_up(store);
	idem_redis_hints_move(&store->hints);
}

void
idem_redis_route_doubt(struct redis_store *store)
{
	if (store->hub.uri.plan == PLAN_SENTINEL)
		idem_redis_sentinel_ask(store);
	if (store->hub.uri.plan == PLAN_CLUSTER)
		idem_redis_cluster_ask(store);
}

bool
idem_redis_route_redirect(struct redis_store *store, struct call *call, const char *error)
{
	return store->hub.uri.plan == PLAN_CLUSTER && idem_redis_cluster_redirect(store, call, error);
}

/* In a cluster every node hears of everything that is published. */
const struct address *
idem_redis_route_for_hints(struct redis_store *store)
{
	bool hope;

	for (struct node *node = store->nodes; node != NULL; node = node->next)
		if (node->known &&
		    (store->hub.uri.plan != PLAN_CLUSTER || idem_redis_node_link(node, &hope) != NULL))
			return &node->links[0].address;
	return NULL;
}
