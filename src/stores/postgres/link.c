/*
 * One connection to a server: made, greeted, kept, and made again; one statement at a time.
 *
 * A statement has ended when the server is ready for the next one, not when its rows are here: it commits in
 * between.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

static uint64_t
now_of(const struct link *link)
{
	return link->hub->loop->ops->now_ms(link->hub->loop);
}

static void
start_timer(struct link *link, uint64_t after_ms)
{
	link->hub->loop->ops->timer_start(link->hub->loop, &link->timer, after_ms);
}

static void
stop_timer(struct link *link)
{
	link->hub->loop->ops->timer_stop(link->hub->loop, &link->timer);
}

static bool
want(struct link *link, unsigned readiness)
{
	if (link->readiness == readiness)
		return true;
	if (link->hub->loop->ops->fd_watch(link->hub->loop, &link->watch, readiness) != IDEM_OK)
		return false;
	link->readiness = readiness;
	return true;
}

/* ---- the end of a connection ---- */

static void
drop_result(struct link *link)
{
	PQclear(link->result);
	link->result = NULL;
}

static void
end_statement(struct link *link, enum ending ending)
{
	struct statement *statement = link->current;
	PGresult *result = link->result;

	link->current = NULL;
	link->result = NULL;
	statement->ended(statement, link, ending, result);
	PQclear(result);
}

static void
fail(struct link *link)
{
	unsigned life = ++link->life;
	/* One that was good is made anew at once; but not one that is cut again and again. */
	bool was_good = link->state == LINK_UP && now_of(link) - link->up_ms >= RETRY_MS;

	if (link->conn != NULL)
		(void)want(link, 0);
	link->state = LINK_WAITING;
	link->tried = !was_good;
	start_timer(link, was_good ? 0 : RETRY_MS);
	if (link->current != NULL)
		end_statement(link, ENDED_LOST);
	if (link->life == life)
		link->user->down(link, link->why);
}

static void
fail_because(struct link *link, const char *why)
{
	char line[WHY_MAX];

	idem_postgres_one_line(why, line, sizeof line);
	if (link->server[0] != '\0')
		(void)snprintf(link->why, sizeof link->why, "%.*s: %.300s", (int)sizeof link->server,
		               link->server, line);
	else
		(void)snprintf(link->why, sizeof link->why, "%s", line);
	fail(link);
}

void
idem_postgres_link_break(struct link *link, const char *why)
{
	if (link->state == LINK_GREETING || link->state == LINK_UP)
		fail_because(link, why);
}

/* ---- statements out ---- */

/* False: the connection is no more. */
static bool
write_out(struct link *link)
{
	int rc = PQflush(link->conn);

	if (rc < 0) {
		fail_because(link, PQerrorMessage(link->conn));
		return false;
	}
	if (want(link, rc > 0 ? IDEM_READABLE | IDEM_WRITABLE : IDEM_READABLE))
		return true;
	fail_because(link, "out of memory");
	return false;
}

int
idem_postgres_link_send(struct link *link, struct statement *statement, const char *text,
                        const struct parameters *parameters)
{
	static const struct parameters none = {0};
	char whole[256];
	int formats[COLUMNS + 1];

	(void)snprintf(whole, sizeof whole, text, link->hub->uri.schema);
	if (parameters == NULL)
		parameters = &none;
	for (int i = 0; i < parameters->count; i++)
		formats[i] = 1;
	/* What is not flushed is when the socket is ready: nobody is called from inside this. */
	if (!want(link, IDEM_READABLE | IDEM_WRITABLE) ||
	    PQsendQueryParams(link->conn, whole, parameters->count, parameters->types, parameters->values,
	                      parameters->lengths, formats, 1) == 0) {
		/* Half a message may be on its way: this connection is no use any more. */
		start_timer(link, 0);
		return IDEM_E_NOMEM;
	}
	link->current = statement;
	start_timer(link, link->hub->timeout_ms);
	return IDEM_OK;
}

bool
idem_postgres_link_is_free(const struct link *link)
{
	/* Armed, the timer is about to break it: see above. */
	return link->state == LINK_UP && link->current == NULL && !link->timer.armed;
}

/* ---- results in ---- */

/*
 * An error ends the transaction, and nothing was written; but those that end the connection, or that a pooler
 * makes up (class 08), may come after the commit.
 */
static enum ending
ending_of(const PGresult *result)
{
	const char *severity, *sqlstate;

	if (result == NULL)
		return ENDED_LOST;
	switch (PQresultStatus(result)) {
	case PGRES_COMMAND_OK:
	case PGRES_TUPLES_OK:
		return ENDED_DONE;
	case PGRES_FATAL_ERROR:
		break;
	default:
		return ENDED_LOST;
	}
	severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	if (severity == NULL || sqlstate == NULL || strcmp(severity, "ERROR") != 0 ||
	    strncmp(sqlstate, "08", 2) == 0)
		return ENDED_LOST;
	return ENDED_REFUSED;
}

static void
take_result(struct link *link, PGresult *result)
{
	/* An error that follows rows is the one of the commit. */
	drop_result(link);
	link->result = result;
}

/* False: the connection or the link is no more. */
static bool
read_results(struct link *link)
{
	unsigned life = link->life;
	PGresult *result;

	while (link->current != NULL && PQisBusy(link->conn) == 0) {
		result = PQgetResult(link->conn);
		if (result != NULL) {
			take_result(link, result);
			continue;
		}
		if (PQstatus(link->conn) != CONNECTION_OK)
			return true; /* who called sees that too */
		stop_timer(link);
		end_statement(link, ending_of(link->result));
		if (link->life != life)
			return false;
	}
	return true;
}

static bool
read_notices(struct link *link)
{
	unsigned life = link->life;
	PGnotify *notice;

	while (link->life == life && (notice = PQnotifies(link->conn)) != NULL) {
		if (link->user->notified != NULL)
			link->user->notified(link, notice);
		PQfreemem(notice);
	}
	return link->life == life;
}

static void
read_in(struct link *link)
{
	bool ended = PQconsumeInput(link->conn) == 0;

	if (!read_results(link) || !read_notices(link))
		return;
	if (ended || PQstatus(link->conn) != CONNECTION_OK)
		fail_because(link, PQerrorMessage(link->conn));
	else if (link->state == LINK_UP && link->current == NULL && link->user->idle != NULL)
		link->user->idle(link);
}

static void
is_ready(struct idem_fd *watch, unsigned readiness)
{
	struct link *link = (struct link *)(void *)((char *)watch - offsetof(struct link, watch));

	if ((!(readiness & IDEM_WRITABLE) || write_out(link)) && readiness & IDEM_READABLE)
		read_in(link);
}

/* ---- the greeting ---- */

void
idem_postgres_link_set_clock(struct link *link, int64_t at_us)
{
	link->clock_us = at_us - (int64_t)now_of(link) * 1000;
	link->clock_known = true;
}

static bool
is_text(const PGresult *result, int field, const char *text)
{
	return strcmp(PQgetvalue(result, 0, field), text) == 0;
}

static void
report_settings(struct link *link, const PGresult *result)
{
	if (is_text(result, 4, "off") || is_text(result, 5, "off"))
		idem_postgres_report(
			link->hub, TROUBLE_DURABILITY,
			"%s: %s is off: what is acknowledged is lost when the server fails, and a retry "
			"executed again: turn it on",
			link->server, is_text(result, 5, "off") ? "fsync" : "synchronous_commit");
	if (!is_text(result, 3, "read committed"))
		idem_postgres_report(
			link->hub, TROUBLE_ISOLATION,
			"%s: default_transaction_isolation is \"%s\": requests that race are made "
			"again and again: set it to \"read committed\" for this role",
			link->server, PQgetvalue(result, 0, 3));
}

static bool
judge_greeting(struct link *link, const PGresult *result, char *why, size_t cap)
{
	int32_t version, process;
	int64_t at_us;

	if (PQntuples(result) != 1 || PQnfields(result) < 6 ||
	    !idem_postgres_get_int4(result, 0, 0, &version)) {
		(void)snprintf(why, cap, "the schema \"%s\" is not one of schema.sql", link->hub->uri.schema);
		return false;
	}
	if (version != SCHEMA_VERSION) {
		(void)snprintf(why, cap,
		               "the schema \"%s\" has version %d, and this is made for version %d: bring the "
		               "older of "
		               "the two up to date",
		               link->hub->uri.schema, (int)version, SCHEMA_VERSION);
		return false;
	}
	if (!idem_postgres_get_int8(result, 0, 1, &at_us) ||
	    !idem_postgres_get_int4(result, 0, 2, &process)) {
		(void)snprintf(why, cap, "its greeting makes no sense");
		return false;
	}
	idem_postgres_link_set_clock(link, at_us);
	link->pooled = process != PQbackendPID(link->conn);
	report_settings(link, result);
	return true;
}

static void
greeted(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	char why[WHY_MAX];

	(void)statement;
	if (ending == ENDED_LOST)
		return; /* it has failed, or will */
	if (ending == ENDED_REFUSED)
		idem_postgres_explain(link->hub, result, why, sizeof why);
	if (ending == ENDED_REFUSED || !judge_greeting(link, result, why, sizeof why)) {
		fail_because(link, why);
		return;
	}
	link->state = LINK_UP;
	link->up_ms = now_of(link);
	link->tried = false;
	link->why[0] = '\0';
	link->user->up(link);
}

/* ---- connecting ---- */

static void
name_server(struct link *link)
{
	const char *host = PQhost(link->conn), *port = PQport(link->conn);

	link->server[0] = '\0';
	if (host != NULL && host[0] != '\0')
		(void)snprintf(link->server, sizeof link->server, "%s:%s", host, port != NULL ? port : "");
}

static void
ignore_notice(void *data, const PGresult *result)
{
	(void)data;
	(void)result; /* libpq would write it to stderr */
}

static void
connected(void *data, PGconn *made)
{
	struct link *link = data;

	stop_timer(link);
	link->attempt = NULL;
	link->conn = made;
	if (made == NULL) {
		fail_because(link, "out of memory");
		return;
	}
	name_server(link);
	link->watch.fd = PQsocket(made);
	link->readiness = 0;
	if (PQstatus(made) != CONNECTION_OK) {
		link->server[0] = '\0'; /* libpq says it */
		fail_because(link, PQerrorMessage(made));
		return;
	}
	(void)PQsetNoticeReceiver(made, ignore_notice, NULL);
	link->state = LINK_GREETING;
	if (PQsetnonblocking(made, 1) != 0 ||
	    idem_postgres_link_send(link, &link->greeting, "SELECT * FROM %s.greet()", NULL) != IDEM_OK)
		fail_because(link, "out of memory");
}

static void
begin_attempt(struct link *link)
{
	PGconn *before = link->conn;

	link->conn = NULL;
	link->clock_known = false;
	link->state = LINK_CONNECTING;
	start_timer(link, link->hub->timeout_ms);
	if (idem_postgres_connect(&link->attempt, link->hub, before, connected, link) == IDEM_OK)
		return;
	link->server[0] = '\0';
	fail_because(link, "no memory, descriptor or thread to connect with");
}

/* The attempt goes on: the server may come back while it is under way.  But nobody waits for it any more. */
static void
take_time(struct link *link)
{
	(void)snprintf(link->why, sizeof link->why, "no connection in time");
	link->tried = true;
	link->user->down(link, link->why);
}

static void
time_is_over(struct idem_timer *timer)
{
	struct link *link = (struct link *)(void *)((char *)timer - offsetof(struct link, timer));

	switch (link->state) {
	case LINK_WAITING:
		begin_attempt(link);
		break;
	case LINK_CONNECTING:
		take_time(link);
		break;
	case LINK_GREETING:
	case LINK_UP:
		fail_because(link, link->current != NULL ? "no answer in time" : "out of memory");
		break;
	default:
		break;
	}
}

/* ---- life ---- */

void
idem_postgres_link_init(struct link *link, struct hub *hub, const struct link_user *user, void *user_data)
{
	*link = (struct link){.hub = hub, .user = user, .user_data = user_data};
	link->timer.fire = time_is_over;
	link->timer.background = true;
	link->watch.ready = is_ready;
	link->watch.fd = -1;
	link->greeting.ended = greeted;
}

void
idem_postgres_link_open(struct link *link)
{
	link->tried = false;
	link->state = LINK_WAITING;
	start_timer(link, 0); /* from the loop: nobody is called from inside this */
}

void
idem_postgres_link_close(struct link *link)
{
	link->life++;
	stop_timer(link);
	if (link->attempt != NULL)
		idem_postgres_connect_cancel(link->attempt);
	link->attempt = NULL;
	if (link->conn != NULL)
		(void)want(link, 0);
	link->state = LINK_CLOSED;
	if (link->current != NULL)
		end_statement(link, ENDED_LOST);
	drop_result(link);
	PQfinish(link->conn);
	link->conn = NULL;
}
