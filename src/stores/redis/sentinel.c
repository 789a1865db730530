/*
 * Sentinels: they are asked for the master, one after the other until one knows, and the one that knew is
 * listened to.  When the master cannot be reached they are asked again, for a failover can be missed.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

static const char switched[] = "+switch-master";

static struct idem_bytes
text_of(const char *text)
{
	return (struct idem_bytes){text, strlen(text)};
}

static void
ask_next(struct sentinel *sentinel)
{
	const struct redis_uri *uri = &sentinel->store->hub.uri;

	idem_redis_link_close(&sentinel->link);
	sentinel->at = (sentinel->at + 1) % uri->count;
	sentinel->asked++;
	idem_redis_link_open(&sentinel->link, &uri->addresses[sentinel->at]);
}

static bool
parse_port(const char *text, unsigned *ret)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	*ret = (unsigned)port;
	return end != text && (*end == '\0' || *end == ' ') && port > 0 && port <= 65535;
}

static void
set_master(struct sentinel *sentinel, const struct address *address)
{
	struct redis_store *store = sentinel->store;

	sentinel->asked = 0;
	idem_redis_node_open(store->nodes, address);
	idem_redis_hints_move(&store->hints);
	idem_redis_calls_go_on(store);
}

/* ---- listening ---- */

static int
subscribe(struct sentinel *sentinel)
{
	const struct idem_bytes words[] = {text_of("SUBSCRIBE"), text_of(switched)};

	return idem_redis_link_listen(&sentinel->link, 2, words);
}

/* "NAME OLD-IP OLD-PORT NEW-IP NEW-PORT" */
static void
heard(struct sentinel *sentinel, const char *message)
{
	const char *name = sentinel->store->hub.uri.master, *words[5] = {message};
	struct address address = {{0}, 0};
	size_t len;

	for (size_t i = 1; i < 5; i++) {
		words[i] = strchr(words[i - 1], ' ');
		if (words[i] == NULL)
			return;
		words[i]++;
	}
	if (strncmp(message, name, strlen(name)) != 0 || message[strlen(name)] != ' ')
		return;
	len = (size_t)(words[4] - words[3] - 1);
	if (len == 0 || len > HOST_MAX || !parse_port(words[4], &address.port))
		return;
	memcpy(address.host, words[3], len);
	set_master(sentinel, &address);
}

static void
pushed(struct link *link, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
	    reply->element[0]->type == REDIS_REPLY_STRING && strcmp(reply->element[0]->str, "message") == 0 &&
	    reply->element[2]->type == REDIS_REPLY_STRING)
		heard(link->user_data, reply->element[2]->str);
}

/* ---- asking ---- */

static bool
read_address(const redisReply *reply, struct address *ret)
{
	*ret = (struct address){{0}, 0};
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_STRING)
		return false;
	if (reply->element[0]->len == 0 || reply->element[0]->len > HOST_MAX ||
	    !parse_port(reply->element[1]->str, &ret->port))
		return false;
	memcpy(ret->host, reply->element[0]->str, reply->element[0]->len);
	return true;
}

static void
answered(struct command *command, const redisReply *reply)
{
	struct sentinel *sentinel =
		(struct sentinel *)(void *)((char *)command - offsetof(struct sentinel, command));
	struct hub *hub = &sentinel->store->hub;
	struct address address;

	if (reply == NULL)
		return;
	if (!read_address(reply, &address)) {
		idem_redis_report(hub, TROUBLE_SERVER, "%s",
		                  reply->type == REDIS_REPLY_ERROR
		                          ? reply->str
		                          : "a Sentinel does not know the master of this name: see the URI");
		idem_redis_link_break(&sentinel->link, "it does not know the master");
		return;
	}
	if (subscribe(sentinel) != IDEM_OK) {
		idem_redis_link_break(&sentinel->link, "out of memory");
		return;
	}
	set_master(sentinel, &address);
}

static void
is_up(struct link *link)
{
	struct sentinel *sentinel = link->user_data;
	const struct idem_bytes words[] = {text_of("SENTINEL"), text_of("GET-MASTER-ADDR-BY-NAME"),
	                                   text_of(sentinel->store->hub.uri.master)};

	sentinel->command.replied = answered;
	if (idem_redis_link_send(link, &sentinel->command, 3, words) != IDEM_OK)
		idem_redis_link_break(link, "out of memory");
}

static void
is_down(struct link *link, const char *why)
{
	struct sentinel *sentinel = link->user_data;

	if (link->tried) {
		idem_redis_report(link->hub, TROUBLE_SENTINEL, "cannot ask the Sentinel %s", why);
		if (sentinel->asked < SIZE_MAX)
			sentinel->asked++;
	}
	sentinel->at = (sentinel->at + 1) % sentinel->store->hub.uri.count;
	link->address = sentinel->store->hub.uri.addresses[sentinel->at]; /* the next attempt's */
	idem_redis_calls_go_on(sentinel->store);
}

static const struct link_user sentinel_user = {.up = is_up, .down = is_down, .pushed = pushed};

void
idem_redis_sentinel_ask(struct redis_store *store)
{
	struct sentinel *sentinel = &store->sentinel;

	/* One that is being asked will answer, or the next one will. */
	if (sentinel->link.listens)
		ask_next(sentinel);
}

void
idem_redis_sentinel_open(struct redis_store *store)
{
	struct sentinel *sentinel = &store->sentinel;

	sentinel->store = store;
	idem_redis_link_init(&sentinel->link, &store->hub, LINK_FOR_SENTINEL, &sentinel_user, sentinel);
	idem_redis_link_open(&sentinel->link, &store->hub.uri.addresses[0]);
}

void
idem_redis_sentinel_close(struct redis_store *store)
{
	if (store->sentinel.store != NULL) /* it was opened */
		idem_redis_link_close(&store->sentinel.link);
}
