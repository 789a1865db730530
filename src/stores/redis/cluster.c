/*
 * Redis Cluster: a map of slots, asked for when a connection is made and whenever it turns out to be wrong.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* Between two maps. */
#define ASK_EVERY_MS 100

/* ---- slots ---- */

/* CRC-16/XMODEM, as the Redis Cluster specification has it. */
static unsigned
crc16(const char *text, size_t len)
{
	unsigned crc = 0;

	for (size_t i = 0; i < len; i++) {
		crc ^= (unsigned)(uint8_t)text[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
	}
	return crc;
}

/* Of what is between the first "{" and the next "}", if there is something; it may come with a prefix. */
unsigned
idem_redis_slot(const char *name, size_t len)
{
	const char *open = memchr(name, '{', len), *close;

	if (open != NULL) {
		close = memchr(open, '}', len - (size_t)(open - name));
		if (close != NULL && close > open + 1)
			return crc16(open + 1, (size_t)(close - open - 1)) % SLOTS;
	}
	return crc16(name, len) % SLOTS;
}

/* ---- nodes ---- */

static struct node *
find(struct redis_store *store, const struct address *address)
{
	for (struct node *node = store->nodes; node != NULL; node = node->next)
		if (node->known && idem_redis_address_same(&node->links[0].address, address))
			return node;
	return NULL;
}

/* NULL: memory is short. */
static struct node *
find_or_make(struct redis_store *store, const struct address *address)
{
	struct node *node = find(store, address);

	if (node != NULL)
		return node;
	node = idem_redis_node_get(store);
	if (node != NULL)
		idem_redis_node_open(node, address);
	return node;
}

static void
forget(struct redis_store *store, struct node *node)
{
	for (struct call *call = store->calls; call != NULL; call = call->next)
		if (call->ask == node)
			call->ask = NULL;
	for (size_t i = 0; i < SLOTS; i++)
		if (store->cluster->slots[i] == node)
			store->cluster->slots[i] = NULL;
	idem_redis_node_close(node);
}

static void
forget_unwanted(struct redis_store *store)
{
	for (struct node *node = store->nodes; node != NULL; node = node->next)
		if (node->known && !node->wanted)
			forget(store, node);
}

/* When all that we know are gone, those of the URI may know more. */
static bool
open_seeds(struct redis_store *store)
{
	const struct redis_uri *uri = &store->hub.uri;

	for (size_t i = 0; i < uri->count; i++)
		if (find_or_make(store, &uri->addresses[i]) == NULL)
			return false;
	return true;
}

/* ---- the map ---- */

/* [ip, port, id, ...].  No ip: the host that was asked. */
static bool
read_node(const redisReply *reply, const struct address *asked, struct address *ret)
{
	*ret = *asked;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
	    reply->element[1]->type != REDIS_REPLY_INTEGER || reply->element[1]->integer <= 0 ||
	    reply->element[1]->integer > 65535)
		return false;
	ret->port = (unsigned)reply->element[1]->integer;
	if (reply->element[0]->type == REDIS_REPLY_STRING && reply->element[0]->len > 0) {
		if (reply->element[0]->len > HOST_MAX)
			return false;
		memset(ret->host, 0, sizeof ret->host);
		memcpy(ret->host, reply->element[0]->str, reply->element[0]->len);
	}
	return true;
}

/* [first, last, master, replica, ...] */
static bool
read_range(struct cluster *cluster, const redisReply *reply, const struct address *asked)
{
	struct address address;
	struct node *node;
	long long first, last;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    reply->element[0]->type != REDIS_REPLY_INTEGER || reply->element[1]->type != REDIS_REPLY_INTEGER)
		return false;
	first = reply->element[0]->integer;
	last = reply->element[1]->integer;
	if (first < 0 || last >= SLOTS || first > last || !read_node(reply->element[2], asked, &address))
		return false;
	node = find_or_make(cluster->store, &address);
	if (node == NULL)
		return false;
	node->wanted = true;
	for (long long slot = first; slot <= last; slot++)
		cluster->slots[slot] = node;
	return true;
}

static bool
read_map(struct cluster *cluster, const redisReply *reply, const struct address *asked)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0)
		return false;
	for (struct node *node = cluster->store->nodes; node != NULL; node = node->next)
		node->wanted = false;
	memset(cluster->slots, 0, sizeof cluster->slots);
	for (size_t i = 0; i < reply->elements; i++)
		if (!read_range(cluster, reply->element[i], asked))
			return false;
	forget_unwanted(cluster->store);
	return true;
}

static void
answered(struct command *command, const redisReply *reply)
{
	struct cluster *cluster =
		(struct cluster *)(void *)((char *)command - offsetof(struct cluster, command));
	struct redis_store *store = cluster->store;

	cluster->asked = false;
	if (reply == NULL) {
		idem_redis_cluster_ask(store);
		return;
	}
	cluster->mapped = read_map(cluster, reply, &cluster->asked_address);
	if (!cluster->mapped) {
		idem_redis_report(&store->hub, TROUBLE_SERVER, "the cluster has no map of its slots: %s",
		                  reply->type == REDIS_REPLY_ERROR ? reply->str : "is it complete?");
		idem_redis_cluster_ask(store);
	}
	idem_redis_hints_move(&store->hints);
	idem_redis_calls_go_on(store);
}

/* Of any node that is there, another one each time. */
static struct link *
whom_to_ask(struct cluster *cluster)
{
	struct node *node = cluster->store->nodes;
	struct link *link, *first = NULL;
	bool hope, passed = false;

	for (; node != NULL; node = node->next) {
		link = idem_redis_node_link(node, &hope);
		if (link != NULL && first == NULL)
			first = link;
		if (link != NULL && passed)
			return link;
		passed |= node->known &&
		          idem_redis_address_same(&node->links[0].address, &cluster->asked_address);
	}
	return first;
}

static void
ask(struct idem_timer *timer)
{
	static const struct idem_bytes words[] = {{"CLUSTER", 7}, {"SLOTS", 5}};
	struct cluster *cluster = (struct cluster *)(void *)((char *)timer - offsetof(struct cluster, timer));
	struct redis_store *store = cluster->store;
	struct link *link = whom_to_ask(cluster);

	cluster->asked_ms = store->hub.loop->ops->now_ms(store->hub.loop);
	if (link == NULL) {
		if (!open_seeds(store))
			idem_redis_cluster_ask(store); /* memory may be there later */
		return;
	}
	cluster->command.replied = answered;
	if (idem_redis_link_send(link, &cluster->command, 2, words) != IDEM_OK) {
		idem_redis_cluster_ask(store);
		return;
	}
	cluster->asked = true;
	cluster->asked_address = link->address;
}

void
idem_redis_cluster_ask(struct redis_store *store)
{
	struct cluster *cluster = store->cluster;
	uint64_t now_ms = store->hub.loop->ops->now_ms(store->hub.loop);

	if (cluster->asked || cluster->timer.armed)
		return;
	store->hub.loop->ops->timer_start(
		store->hub.loop, &cluster->timer,
		now_ms - cluster->asked_ms < ASK_EVERY_MS ? ASK_EVERY_MS - (now_ms - cluster->asked_ms) : 0);
}

/* ---- for calls ---- */

struct node *
idem_redis_cluster_node(struct redis_store *store, const struct call *call, bool *ret_hope)
{
	struct cluster *cluster = store->cluster;
	bool hope;

	if (cluster->mapped)
		return cluster->slots[idem_redis_slot(call->name, call->name_len)];
	*ret_hope = cluster->asked;
	for (struct node *node = store->nodes; node != NULL; node = node->next) {
		if (idem_redis_node_link(node, &hope) != NULL)
			hope = true;
		*ret_hope |= hope;
	}
	return NULL;
}

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381"; without a host it is the one that said it. */
bool
idem_redis_cluster_redirect(struct redis_store *store, struct call *call, const char *error)
{
	bool moved = strncmp(error, "MOVED ", 6) == 0;
	struct address address;
	const char *target;
	struct node *node;
	unsigned long slot;
	char *end;

	if (!moved && strncmp(error, "ASK ", 4) != 0)
		return false;
	slot = strtoul(strchr(error, ' ') + 1, &end, 10);
	if (*end != ' ' || slot >= SLOTS)
		return false;
	target = end + 1;
	if (*target == ':') {
		address = call->node->links[0].address;
		address.port = (unsigned)strtoul(target + 1, NULL, 10);
	} else if (!idem_redis_address_parse_last(&address, target)) {
		return false;
	}
	node = find_or_make(store, &address);
	if (node == NULL)
		return false;
	if (moved) {
		store->cluster->slots[slot] = node;
		idem_redis_cluster_ask(store);
	} else {
		call->ask = node;
	}
	return true;
}

void
idem_redis_cluster_node_up(struct redis_store *store)
{
	if (!store->cluster->mapped)
		idem_redis_cluster_ask(store);
}

/* ---- life ---- */

int
idem_redis_cluster_open(struct redis_store *store)
{
	struct cluster *cluster = calloc(1, sizeof *cluster);

	if (cluster == NULL)
		return IDEM_E_NOMEM;
	store->cluster = cluster;
	cluster->store = store;
	cluster->timer.fire = ask;
	cluster->timer.background = true;
	return open_seeds(store) ? IDEM_OK : IDEM_E_NOMEM;
}

void
idem_redis_cluster_close(struct redis_store *store)
{
	if (store->cluster == NULL)
		return;
	store->hub.loop->ops->timer_stop(store->hub.loop, &store->cluster->timer);
	free(store->cluster);
	store->cluster = NULL;
}
