/* What the URI of a PostgreSQL store says: the store's own options; everything else is libpq's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "layout.h"

/* Where we are, and where to complain. */
struct parse {
	struct postgres_uri *uri;
	char *why;
	size_t cap;
};

static int
wrong(const struct parse *parse, const char *what, const char *cure)
{
	return idem_postgres_say(parse->why, parse->cap, IDEM_E_INVALID,
	                         "%s in the URI of a PostgreSQL store: %s", what, cure);
}

/* ---- the store's own options ---- */

static int
take_connections(struct parse *parse, const char *value, size_t len)
{
	unsigned count = 0;

	for (size_t i = 0; i < len && count <= CONNECTIONS_MAX; i++) {
		if (value[i] < '0' || value[i] > '9')
			count = CONNECTIONS_MAX;
		count = 10 * count + (unsigned)(value[i] - '0');
	}
	if (count == 0 || count > CONNECTIONS_MAX)
		return wrong(parse, "no good connections", "it is a number from 1 to 16");
	parse->uri->connections = count;
	return IDEM_OK;
}

/* A name that needs no quotes is one that people can type. */
static bool
is_name(const char *text, size_t len)
{
	if (len == 0 || len > SCHEMA_MAX || (text[0] >= '0' && text[0] <= '9'))
		return false;
	for (size_t i = 0; i < len; i++)
		if ((text[i] < 'a' || text[i] > 'z') && (text[i] < '0' || text[i] > '9') && text[i] != '_')
			return false;
	return true;
}

static int
take_schema(struct parse *parse, const char *value, size_t len)
{
	if (!is_name(value, len))
		return wrong(parse, "no good schema",
		             "it has 1 to 63 small letters, digits and \"_\", and begins with no digit");
	memcpy(parse->uri->schema, value, len);
	parse->uri->schema[len] = '\0';
	return IDEM_OK;
}

static const struct option {
	const char *name;
	int (*take)(struct parse *parse, const char *value, size_t len);
} options[] = {
	{"connections=", take_connections},
	{"schema=", take_schema},
};

static const struct option *
own_option(const char *text)
{
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (strncmp(text, options[i].name, strlen(options[i].name)) == 0)
			return &options[i];
	return NULL;
}

static int
take_option(struct parse *parse, const struct option *option, const char *text, size_t len, bool *taken)
{
	size_t name = strlen(option->name);

	if (*taken)
		return wrong(parse, "an option twice", "give connections and schema once");
	*taken = true;
	return option->take(parse, text + name, len - name);
}

/* Takes out what is ours; the rest moves together. */
static int
take_options(struct parse *parse, char *query)
{
	char *from = query, *to = query;
	bool taken[sizeof options / sizeof *options] = {false};
	int rc = IDEM_OK;

	while (*from != '\0' && rc == IDEM_OK) {
		size_t len = strcspn(from, "&"), whole = len + (from[len] == '&');
		const struct option *option = own_option(from);

		if (option != NULL) {
			rc = take_option(parse, option, from, len, &taken[option - options]);
		} else {
			memmove(to, from, whole);
			to += whole;
		}
		from += whole;
	}
	/* Neither an "&" nor a "?" with nothing behind it. */
	if (to[-1] == '&' || to[-1] == '?')
		to--;
	*to = '\0';
	return rc;
}

/* ---- libpq's ---- */

static int
check_file(const struct parse *parse, const PQconninfoOption *option)
{
	static const char *const names[] = {"sslrootcert", "sslcert", "sslkey", "sslcrl"};
	char what[64];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (option->val == NULL || strcmp(option->keyword, names[i]) != 0 ||
		    access(option->val, R_OK) == 0 || strcmp(option->val, "system") == 0)
			continue;
		(void)snprintf(what, sizeof what, "no good %s", names[i]);
		return wrong(parse, what, "there is no such file that can be read");
	}
	return IDEM_OK;
}

/* libpq's own words may quote a password; those of an option that it does not know quote its name alone. */
static int
refuse(const struct parse *parse, const char *error)
{
	static const char *const harmless[] = {"invalid URI query parameter", "missing key/value separator",
	                                       "extra key/value separator", "invalid port number"};
	char line[WHY_MAX];

	if (error == NULL)
		return IDEM_E_NOMEM;
	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (strncmp(error, harmless[i], strlen(harmless[i])) == 0) {
			idem_postgres_one_line(error, line, sizeof line);
			return wrong(parse, "no good option", line);
		}
	return wrong(
		parse, "something that libpq does not understand",
		"write postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, and \"%\" as %25, \"@\" as "
		"%40, \"/\" as %2F and \":\" as %3A within these");
}

static int
check_conninfo(const struct parse *parse)
{
	char *error = NULL;
	PQconninfoOption *found = PQconninfoParse(parse->uri->conninfo, &error);
	int rc = IDEM_OK;

	if (found == NULL) {
		rc = refuse(parse, error);
		PQfreemem(error);
		return rc;
	}
	for (PQconninfoOption *option = found; option->keyword != NULL && rc == IDEM_OK; option++) {
		if (strcmp(option->keyword, "replication") == 0 && option->val != NULL)
			rc = wrong(parse, "replication", "the store needs an ordinary connection");
		else
			rc = check_file(parse, option);
	}
	PQconninfoFree(found);
	return rc;
}

/* ---- the whole ---- */

int
idem_postgres_uri_parse(struct postgres_uri *uri, const char *text, char *why, size_t cap)
{
	struct parse parse = {.uri = uri, .why = why, .cap = cap};
	char *query;
	int rc = IDEM_OK;

	*uri = (struct postgres_uri){.schema = "idem", .connections = 2};
	if (strncmp(text, "postgres://", 11) != 0 && strncmp(text, "postgresql://", 13) != 0)
		return wrong(&parse, "no known scheme", "it begins with postgres:// or postgresql://");
	uri->conninfo_len = strlen(text);
	uri->conninfo = strdup(text);
	if (uri->conninfo == NULL)
		return IDEM_E_NOMEM;
	query = strchr(uri->conninfo, '?');
	if (query != NULL)
		rc = take_options(&parse, query + 1);
	if (rc == IDEM_OK)
		rc = check_conninfo(&parse);
	if (rc != IDEM_OK)
		idem_postgres_uri_free(uri);
	return rc;
}

void
idem_postgres_uri_free(struct postgres_uri *uri)
{
	if (uri->conninfo != NULL)
		OPENSSL_cleanse(uri->conninfo, uri->conninfo_len); /* there may be a password in it */
	free(uri->conninfo);
	*uri = (struct postgres_uri){0};
}
