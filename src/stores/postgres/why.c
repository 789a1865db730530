/* What goes wrong, as sentences, and not too many of them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"

#define REPORT_EVERY_MS 60000

int
idem_postgres_say(char *why, size_t cap, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(why, cap, format, arguments);
	va_end(arguments);
	return status;
}

static void
tell(struct hub *hub, const char *format, va_list arguments)
{
	char sentence[WHY_MAX];

	(void)vsnprintf(sentence, sizeof sentence, format, arguments);
	hub->report(hub->report_data, sentence);
}

void
idem_postgres_report(struct hub *hub, enum trouble kind, const char *format, ...)
{
	uint64_t now_ms = hub->loop->ops->now_ms(hub->loop);
	va_list arguments;

	if (hub->report == NULL ||
	    (hub->troubles[kind].reported && now_ms - hub->troubles[kind].reported_ms < REPORT_EVERY_MS))
		return;
	hub->troubles[kind].reported = hub->troubles[kind].told = true;
	hub->troubles[kind].reported_ms = now_ms;
	va_start(arguments, format);
	tell(hub, format, arguments);
	va_end(arguments);
}

void
idem_postgres_recovered(struct hub *hub, enum trouble kind, const char *format, ...)
{
	bool told = hub->troubles[kind].told;
	va_list arguments;

	hub->troubles[kind].told = false;
	if (hub->report == NULL || !told)
		return;
	va_start(arguments, format);
	tell(hub, format, arguments);
	va_end(arguments);
}

void
idem_postgres_one_line(const char *message, char *line, size_t cap)
{
	size_t len = 0;

	for (; *message != '\0' && len + 1 < cap; message++) {
		bool space = *message == '\n' || *message == '\t' || *message == ' ';

		if (!space)
			line[len++] = *message;
		else if (len > 0 && line[len - 1] != ' ')
			line[len++] = ' ';
	}
	while (len > 0 && line[len - 1] == ' ')
		len--;
	line[len] = '\0';
}

/* By the first bytes of an SQLSTATE, which names a class or one error. */
static const struct cure {
	const char *sqlstate;
	const char *text; /* $: the schema */
} cures[] = {
	{"3F000", "the schema \"$\" is missing: make it with schema.sql"},
	{"42883", "the schema \"$\" lacks a function: make it with schema.sql"},
	{"42P01", "the schema \"$\" lacks a table: make it with schema.sql"},
	{"42501", "the role may not use the schema \"$\": run schema.sql with -v gateway=ROLE, or GRANT it"},
	{"25006", "it is a standby, or read-only: name all hosts in the URI"},
	{"53100", "its disk is full: new keys are refused until there is room"},
};

/* The schema's name for the mark. */
static void
put_name(const char *text, const char *schema, char *cure, size_t cap)
{
	const char *mark = strchr(text, '$');

	if (mark == NULL)
		(void)snprintf(cure, cap, "%s", text);
	else
		(void)snprintf(cure, cap, "%.*s%s%s", (int)(mark - text), text, schema, mark + 1);
}

void
idem_postgres_explain(const struct hub *hub, const PGresult *result, char *why, size_t cap)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	char cure[WHY_MAX] = "";

	for (size_t i = 0; sqlstate != NULL && i < sizeof cures / sizeof *cures; i++)
		if (strcmp(sqlstate, cures[i].sqlstate) == 0)
			put_name(cures[i].text, hub->uri.schema, cure, sizeof cure);
	if (message == NULL)
		message = PQresultErrorMessage(result);
	idem_postgres_one_line(message, why, cap);
	if (cure[0] != '\0') {
		size_t len = strlen(why);

		(void)snprintf(why + len, cap - len, "%s%s", len > 0 ? ": " : "", cure);
	}
}
