/* What a server says of itself, and whether it can be used. */
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define VERSION_MIN 7

/* The value of a line "name:value", or NULL. */
static const char *
field(const char *info, const char *name)
{
	size_t len = strlen(name);

	while (info != NULL) {
		if (strncmp(info, name, len) == 0 && info[len] == ':')
			return info + len + 1;
		info = strchr(info, '\n');
		info = info != NULL ? info + 1 : NULL;
	}
	return NULL;
}

static bool
is(const char *info, const char *name, const char *value)
{
	const char *found = field(info, name);

	return found != NULL && strncmp(found, value, strlen(value)) == 0;
}

/* Without INFO nothing is known, and nothing is wrong. */
static bool
judge_error(struct link *link, const redisReply *reply, char *why, size_t cap)
{
	char address[HOST_MAX + 16];

	if (strncmp(reply->str, "NOPERM", 6) == 0) {
		idem_redis_address_text(&link->address, address, sizeof address);
		idem_redis_report(link->hub, TROUBLE_RIGHTS,
		                  "%s: it cannot be asked whether it keeps its keys: grant the user +info",
		                  address);
		return true;
	}
	if (strncmp(reply->str, "NOAUTH", 6) == 0)
		idem_redis_say(why, cap, 0, "it wants a password: give USER:PASSWORD@ in the URI");
	else
		idem_redis_say(why, cap, 0, "%s", reply->str);
	return false;
}

static void
judge_policy(struct link *link, const char *info)
{
	const char *policy = field(info, "maxmemory_policy");
	char address[HOST_MAX + 16];

	if (policy == NULL)
		return;
	idem_redis_address_text(&link->address, address, sizeof address);
	if (strncmp(policy, "noeviction", 10) != 0)
		idem_redis_report(
			link->hub, TROUBLE_POLICY,
			"%s: its maxmemory-policy %.*s drops keys that are promised, and their requests can "
			"be executed again: set it to noeviction",
			address, (int)strcspn(policy, "\r\n"), policy);
	else
		idem_redis_recovered(link->hub, TROUBLE_POLICY, "%s: its maxmemory-policy is noeviction",
		                     address);
}

static void
set_clock(struct link *link, const char *info)
{
	const char *usec = field(info, "server_time_usec");

	/* INFO was sent after "since": the server's clock is not ahead of this. */
	link->clock_known = usec != NULL;
	if (usec != NULL)
		link->clock_ms =
			(int64_t)(strtoull(usec, NULL, 10) / 1000) - (int64_t)link->greeting[2].since_ms;
}

bool
idem_redis_greeting_judge(struct link *link, const redisReply *reply, char *why, size_t cap)
{
	const char *version;

	if (reply->type == REDIS_REPLY_ERROR)
		return judge_error(link, reply, why, cap);
	if (reply->type != REDIS_REPLY_STRING)
		return idem_redis_say(why, cap, false, "it does not answer INFO as Redis does");
	if (link->kind == LINK_FOR_SENTINEL) {
		if (!is(reply->str, "redis_mode", "sentinel"))
			return idem_redis_say(why, cap, false, "it is no Sentinel");
		return true;
	}
	version = field(reply->str, "redis_version");
	if (version == NULL || strtoul(version, NULL, 10) < VERSION_MIN)
		return idem_redis_say(why, cap, false, "it is no Redis of version 7.0 or newer");
	if (is(reply->str, "redis_mode", "sentinel"))
		return idem_redis_say(why, cap, false, "it is a Sentinel: write redis+sentinel://HOST/NAME");
	if (is(reply->str, "redis_mode", "cluster") && link->hub->uri.plan != PLAN_CLUSTER)
		return idem_redis_say(why, cap, false,
		                      "it is a node of a cluster: write redis+cluster://HOST");
	if (is(reply->str, "loading", "1"))
		return idem_redis_say(why, cap, false, "it is still loading its data");
	if (is(reply->str, "role", "slave") && link->kind == LINK_FOR_DATA &&
	    link->hub->uri.plan != PLAN_CLUSTER)
		return idem_redis_say(why, cap, false, "it is a replica: give the address of its master");
	judge_policy(link, reply->str);
	set_clock(link, reply->str);
	return true;
}
