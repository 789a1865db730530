/* What the URI of a Redis store says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define DEFAULT_PORT 6379
#define DEFAULT_SENTINEL_PORT 26379
#define WAIT_REPLICAS_MAX 100
#define WAIT_MS_MAX 60000

static const struct scheme {
	const char *name;
	enum plan plan;
	bool tls;
} schemes[] = {
	{"redis://", PLAN_SINGLE, false},
	{"rediss://", PLAN_SINGLE, true},
	{"redis+sentinel://", PLAN_SENTINEL, false},
	{"rediss+sentinel://", PLAN_SENTINEL, true},
	{"redis+cluster://", PLAN_CLUSTER, false},
	{"rediss+cluster://", PLAN_CLUSTER, true},
	{"valkey://", PLAN_SINGLE, false},
	{"valkeys://", PLAN_SINGLE, true},
	{"valkey+sentinel://", PLAN_SENTINEL, false},
	{"valkeys+sentinel://", PLAN_SENTINEL, true},
	{"valkey+cluster://", PLAN_CLUSTER, false},
	{"valkeys+cluster://", PLAN_CLUSTER, true},
	{"unix:", PLAN_SINGLE, false},
};

/* Where we are, and where to complain. */
struct parse {
	struct redis_uri *uri;
	char *why;
	size_t cap;
	unsigned taken; /* a bit for each option, in the order of the list of them */
	bool has_database;
};

static int
wrong(const struct parse *parse, const char *what, const char *cure)
{
	return idem_redis_say(parse->why, parse->cap, IDEM_E_INVALID, "%s in the URI of a Redis store: %s",
	                      what, cure);
}

/* ---- words ---- */

static int
digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place.  False: no two digits after a "%", or a NUL. */
static bool
decode(char *text)
{
	char *to = text;

	for (; *text != '\0'; text++) {
		if (*text == '%') {
			int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);

			if (low < 0 || (high == 0 && low == 0))
				return false;
			*to++ = (char)(high << 4 | low);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
	return true;
}

/* Decimal digits alone. */
static bool
number(const char *text, size_t len, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (len == 0)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = 10 * value + (uint64_t)(text[i] - '0');
		if (value > max)
			return false;
	}
	*ret = value;
	return true;
}

/* ---- addresses ---- */

void
idem_redis_address_text(const struct address *address, char *buf, size_t cap)
{
	if (address->port == 0)
		(void)snprintf(buf, cap, "unix:%s", address->host);
	else
		(void)snprintf(buf, cap, strchr(address->host, ':') != NULL ? "[%s]:%u" : "%s:%u",
		               address->host, address->port);
}

bool
idem_redis_address_same(const struct address *a, const struct address *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

bool
idem_redis_address_parse(struct address *address, const char *text, size_t len, unsigned default_port)
{
	const char *host = text, *end = text + len, *colon;
	uint64_t port = default_port;

	if (len > 0 && *text == '[') {
		host++;
		colon = memchr(text, ']', len);
		if (colon == NULL)
			return false;
		len = (size_t)(colon - host);
		colon++;
	} else {
		colon = memchr(text, ':', len);
		if (colon == NULL)
			colon = end;
		len = (size_t)(colon - host);
	}
	if (len == 0 || len > HOST_MAX || (colon != end && *colon != ':'))
		return false;
	if (colon != end && (!number(colon + 1, (size_t)(end - colon - 1), 65535, &port) || port == 0))
		return false;
	memcpy(address->host, host, len);
	address->host[len] = '\0';
	address->port = (unsigned)port;
	return true;
}

bool
idem_redis_address_parse_last(struct address *address, const char *text)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;
	size_t len;

	if (colon == NULL || !number(colon + 1, strlen(colon + 1), 65535, &port) || port == 0)
		return false;
	len = (size_t)(colon - text);
	if (len == 0 || len > HOST_MAX)
		return false;
	*address = (struct address){.port = (unsigned)port};
	memcpy(address->host, text, len);
	return true;
}

static int
take_addresses(struct parse *parse, const char *hosts)
{
	struct redis_uri *uri = parse->uri;
	unsigned port = uri->plan == PLAN_SENTINEL ? DEFAULT_SENTINEL_PORT : DEFAULT_PORT;

	for (;;) {
		size_t len = strcspn(hosts, ",");

		if (uri->count == ADDRESSES_MAX)
			return wrong(parse, "too many hosts", "16 are enough to find the others by");
		if (!idem_redis_address_parse(&uri->addresses[uri->count], hosts, len, port))
			return wrong(parse, "no good host",
			             "write HOST, HOST:PORT or [IPV6]:PORT, and nothing else");
		uri->count++;
		if (hosts[len] == '\0')
			break;
		hosts += len + 1;
	}
	if (uri->plan == PLAN_SINGLE && uri->count > 1)
		return wrong(parse, "several hosts",
		             "one server has one; write redis+sentinel:// or redis+cluster:// for many");
	return IDEM_OK;
}

/* "USER", "USER:PASSWORD" or ":PASSWORD". */
static int
take_credentials(struct parse *parse, char *text)
{
	char *colon = strchr(text, ':');

	if (colon != NULL)
		*colon++ = '\0';
	if (!decode(text) || (colon != NULL && !decode(colon)))
		return wrong(parse, "no good user or password",
		             "write \"%\" as %25, and other bytes as % and two hexadecimal digits");
	if (colon == NULL)
		return wrong(parse, "a user without a password", "write USER:PASSWORD@, or :PASSWORD@ alone");
	parse->uri->user = *text != '\0' ? text : NULL;
	parse->uri->password = colon;
	return IDEM_OK;
}

static int
take_database(struct parse *parse, const char *text)
{
	uint64_t value;

	if (parse->uri->plan == PLAN_CLUSTER)
		return wrong(parse, "a database", "a cluster has but one");
	if (parse->has_database)
		return wrong(parse, "two databases", "give one, as in redis://HOST/0 or db=0");
	if (!number(text, strlen(text), 1000000, &value))
		return wrong(parse, "no good database", "it is a number, as in redis://HOST/0");
	parse->has_database = true;
	parse->uri->database = (unsigned)value;
	return IDEM_OK;
}

/* What follows the hosts: "/DATABASE", or "/NAME" and perhaps "/DATABASE" of Sentinels. */
static int
take_path(struct parse *parse, char *path)
{
	char *slash;

	if (parse->uri->plan != PLAN_SENTINEL)
		return *path == '\0' ? IDEM_OK : take_database(parse, path);
	slash = strchr(path, '/');
	if (slash != NULL)
		*slash++ = '\0';
	if (!decode(path) || *path == '\0')
		return wrong(parse, "no name",
		             "Sentinels know a master by one: redis+sentinel://HOST,HOST/NAME");
	parse->uri->master = path;
	return slash == NULL || *slash == '\0' ? IDEM_OK : take_database(parse, slash);
}

static int
take_authority(struct parse *parse, char *text)
{
	char *path = text + strcspn(text, "/"), *at;
	int rc = IDEM_OK;

	if (*path != '\0')
		*path++ = '\0';
	at = strrchr(text, '@');
	if (at != NULL) {
		*at = '\0';
		rc = take_credentials(parse, text);
		text = at + 1;
	}
	if (rc == IDEM_OK)
		rc = take_addresses(parse, text);
	return rc == IDEM_OK ? take_path(parse, path) : rc;
}

/* "unix:/PATH" or "unix:///PATH". */
static int
take_socket(struct parse *parse, char *path)
{
	struct address *address = &parse->uri->addresses[0];

	if (strncmp(path, "//", 2) == 0)
		path += 2;
	if (!decode(path) || *path != '/')
		return wrong(parse, "no path", "write unix:/PATH/OF/THE/SOCKET");
	if (strlen(path) > 107)
		return wrong(parse, "a path that is too long", "that of a Unix socket has at most 107 bytes");
	(void)snprintf(address->host, sizeof address->host, "%s", path);
	parse->uri->count = 1;
	return IDEM_OK;
}

/* ---- options ---- */

/* Of one that we know: what we do not know may be a part of a password, and is not repeated. */
static int
wrong_option(const struct parse *parse, const char *name, const char *what, const char *cure)
{
	char text[64];

	(void)snprintf(text, sizeof text, "%s %s", name, what);
	return wrong(parse, text, cure);
}

static int
take_wait(struct parse *parse, const char *value)
{
	size_t len = strcspn(value, ",");
	uint64_t replicas, ms;

	if (value[len] == '\0' || !number(value, len, WAIT_REPLICAS_MAX, &replicas) || replicas == 0 ||
	    !number(value + len + 1, strlen(value + len + 1), WAIT_MS_MAX, &ms) || ms == 0)
		return wrong(parse, "no good wait_replicas",
		             "write how many, and for how long in milliseconds, as in wait_replicas=1,500");
	parse->uri->wait_replicas = (unsigned)replicas;
	parse->uri->wait_ms = ms;
	return IDEM_OK;
}

static int
take_connections(struct parse *parse, const char *value)
{
	uint64_t count;

	if (!number(value, strlen(value), CONNECTIONS_MAX, &count) || count == 0)
		return wrong(parse, "no good connections", "it is a number from 1 to 16");
	parse->uri->connections = (unsigned)count;
	return IDEM_OK;
}

static int
take_prefix(struct parse *parse, const char *value)
{
	if (*value == '\0' || strlen(value) > PREFIX_MAX)
		return wrong(parse, "no good prefix", "it has 1 to 128 bytes");
	parse->uri->prefix = value;
	return IDEM_OK;
}

/* Two would leave it to us which one is meant. */
static int
take_text(struct parse *parse, const char **text, const char *name, const char *value)
{
	if (*text != NULL)
		return wrong_option(parse, name, "given twice", "give it once, before \"@\" or as an option");
	if (*value == '\0' && strstr(name, "password") == NULL)
		return wrong_option(parse, name, "without a value", "give one, or leave it away");
	*text = value;
	return IDEM_OK;
}

static int
take_option(struct parse *parse, char *option)
{
	struct redis_uri *uri = parse->uri;
	char *value = strchr(option, '=');
	const struct {
		const char *name;
		const char **text; /* or */
		int (*take)(struct parse *parse, const char *value);
	} options[] = {
		{"prefix", NULL, take_prefix},
		{"wait_replicas", NULL, take_wait},
		{"connections", NULL, take_connections},
		{"db", NULL, take_database},
		{"user", &uri->user, NULL},
		{"password", &uri->password, NULL},
		{"sentinel_user", &uri->sentinel_user, NULL},
		{"sentinel_password", &uri->sentinel_password, NULL},
		{"ca", &uri->ca, NULL},
		{"cert", &uri->cert, NULL},
		{"key", &uri->key, NULL},
	};

	if (value != NULL)
		*value++ = '\0';
	if (value == NULL || !decode(value))
		return wrong(parse, "no good option", "write NAME=VALUE, with \"%\" as %25");
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		if (strcmp(option, options[i].name) != 0)
			continue;
		if (options[i].take == NULL)
			return take_text(parse, options[i].text, option, value);
		if (parse->taken & 1u << i)
			return wrong_option(parse, option, "given twice", "give it once");
		parse->taken |= 1u << i;
		return options[i].take(parse, value);
	}
	return wrong(parse, "an unknown option",
	             "there are prefix, wait_replicas, connections, db, user, password, sentinel_user, "
	             "sentinel_password, ca, cert and key");
}

static int
take_options(struct parse *parse, char *text)
{
	char *next;
	int rc;

	for (; text != NULL; text = next) {
		next = strchr(text, '&');
		if (next != NULL)
			*next++ = '\0';
		rc = take_option(parse, text);
		if (rc != IDEM_OK)
			return rc;
	}
	return IDEM_OK;
}

/* What does not go together. */
static int
check(const struct parse *parse)
{
	const struct redis_uri *uri = parse->uri;

	if (uri->user != NULL && uri->password == NULL)
		return wrong(parse, "a user without a password", "give the password too");
	if (uri->sentinel_user != NULL && uri->sentinel_password == NULL)
		return wrong(parse, "a sentinel_user without a sentinel_password", "give both");
	if (uri->sentinel_password != NULL && uri->plan != PLAN_SENTINEL)
		return wrong(parse, "a sentinel_password", "there is no Sentinel");
	if (!uri->tls && (uri->ca != NULL || uri->cert != NULL || uri->key != NULL))
		return wrong(parse, "ca, cert or key", "they are for TLS: write rediss:// for redis://");
	if ((uri->cert == NULL) != (uri->key == NULL))
		return wrong(parse, "one of cert and key", "give both, or none");
	return IDEM_OK;
}

/* ---- the whole ---- */

static int
parse_as(struct parse *parse, const struct scheme *scheme)
{
	char *rest = parse->uri->text + strlen(scheme->name);
	char *options = strchr(rest, '?');
	int rc;

	parse->uri->plan = scheme->plan;
	parse->uri->tls = scheme->tls;
	if (options != NULL)
		*options++ = '\0';
	rc = strcmp(scheme->name, "unix:") == 0 ? take_socket(parse, rest) : take_authority(parse, rest);
	if (rc == IDEM_OK && options != NULL)
		rc = take_options(parse, options);
	return rc == IDEM_OK ? check(parse) : rc;
}

int
idem_redis_uri_parse(struct redis_uri *uri, const char *text, char *why, size_t cap)
{
	struct parse parse = {.uri = uri, .why = why, .cap = cap};
	int rc = IDEM_E_INVALID;

	*uri = (struct redis_uri){.prefix = "idem:", .connections = 2};
	uri->text_len = strlen(text);
	uri->text = strdup(text);
	if (uri->text == NULL)
		return IDEM_E_NOMEM;
	(void)wrong(&parse, "no known scheme",
	            "it begins with redis://, rediss://, redis+sentinel://, redis+cluster:// or unix:");
	for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
		if (strncmp(text, schemes[i].name, strlen(schemes[i].name)) == 0) {
			idem_redis_say(why, cap, 0, "%s", "");
			rc = parse_as(&parse, &schemes[i]);
			break;
		}
	if (rc != IDEM_OK)
		idem_redis_uri_free(uri);
	return rc;
}

void
idem_redis_uri_free(struct redis_uri *uri)
{
	if (uri->text != NULL)
		OPENSSL_cleanse(uri->text, uri->text_len); /* there are passwords in it */
	free(uri->text);
	*uri = (struct redis_uri){0};
}
