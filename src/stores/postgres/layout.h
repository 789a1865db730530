/*
 * The PostgreSQL store from the inside.
 *
 *   uri      what the URI says
 *   connect  a connection being made, on a thread of its own
 *   link     one connection: made, greeted, kept, made again; one statement at a time
 *   columns  arrays, as parameters of a statement
 *   call     one compare-and-swap, until it is answered
 *   batch    many of them in one statement
 *   sweep    cells whose time is over
 *   hints    watches, by LISTEN or by looking
 *   why      what goes wrong, as sentences
 *   store    all of it
 */
#ifndef IDEM_STORES_POSTGRES_LAYOUT_H
#define IDEM_STORES_POSTGRES_LAYOUT_H

#include <libpq-fe.h>

#include <idem/postgres.h>

#include "../offload.h"

#define WHY_MAX 512

#define CONNECTIONS_MAX 16
/* PostgreSQL's own limit to a name. */
#define SCHEMA_MAX 63
#define SCHEMA_VERSION 1

/* Between two attempts to connect: what comes back is found within a second. */
#define RETRY_MS 250

/* ---- why ---- */

struct hub;

enum trouble {
	TROUBLE_SERVER, /* it cannot be reached, or refuses */
	TROUBLE_SCHEMA,
	TROUBLE_RIGHTS,
	TROUBLE_DURABILITY,
	TROUBLE_ISOLATION,
	TROUBLE_FULL,
	TROUBLE_CELL,
	TROUBLE_STATEMENT,
	TROUBLE_HINTS,
	TROUBLES
};

int idem_postgres_say(char *why, size_t cap, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void idem_postgres_report(struct hub *hub, enum trouble kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* If it was reported. */
void idem_postgres_recovered(struct hub *hub, enum trouble kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* libpq's messages end in a newline, and may have more lines: as one sentence. */
void idem_postgres_one_line(const char *message, char *line, size_t cap);
/* What a server said against a statement, and the cure if we know one. */
void idem_postgres_explain(const struct hub *hub, const PGresult *result, char *why, size_t cap);

/* ---- uri ---- */

struct postgres_uri {
	char *conninfo;      /* what is libpq's, with passwords */
	size_t conninfo_len; /* of its memory: our own options were taken out of it */
	char schema[SCHEMA_MAX + 1];
	unsigned connections;
};

/* IDEM_OK, IDEM_E_INVALID (why), IDEM_E_NOMEM. */
int idem_postgres_uri_parse(struct postgres_uri *uri, const char *text, char *why,
                            size_t cap) IDEM_MUST_CHECK;
void idem_postgres_uri_free(struct postgres_uri *uri);

/* ---- connect ---- */

struct attempt;

/*
 * Makes a connection.  before, if not NULL, is closed first, and what it executes is cancelled; it is the
 * attempt's from the call on.  then() is called later, from the loop, unless it is cancelled; the connection
 * is its own, and may be a failed one, or NULL if memory was short.  IDEM_OK, IDEM_E_NOMEM, IDEM_E_SYSTEM.
 */
int idem_postgres_connect(struct attempt **ret, struct hub *hub, PGconn *before,
                          void (*then)(void *data, PGconn *made), void *data) IDEM_MUST_CHECK;
void idem_postgres_connect_cancel(struct attempt *attempt);

/* ---- link ---- */

struct link;

enum ending {
	ENDED_DONE,    /* and committed */
	ENDED_REFUSED, /* an error: nothing was written */
	ENDED_LOST,    /* nobody knows */
};

/* A statement that was sent.  Whoever sends it embeds it, and keeps it until ended() was called. */
struct statement {
	/* Once.  The result is the link's; NULL if there is none. */
	void (*ended)(struct statement *statement, struct link *link, enum ending ending,
	              const PGresult *result);
};

/* What somebody wants of a link.  All are called from the loop. */
struct link_user {
	/* The connection is there, or is there again. */
	void (*up)(struct link *link);
	/* An attempt failed, or takes long, or a connection broke; its statement has ended.  The next attempt
	 * follows.  why names the server. */
	void (*down)(struct link *link, const char *why);
	/* It is up and has nothing to do.  May be NULL. */
	void (*idle)(struct link *link);
	/* May be NULL. */
	void (*notified)(struct link *link, const PGnotify *notice);
};

enum link_state {
	LINK_CLOSED,
	LINK_WAITING,    /* for the next attempt */
	LINK_CONNECTING, /* on a thread */
	LINK_GREETING,
	LINK_UP,
};

struct link {
	struct hub *hub;
	const struct link_user *user;
	void *user_data;
	enum link_state state;
	struct idem_timer timer; /* the end of the statement, or of the wait */
	struct idem_fd watch;
	unsigned readiness;
	struct attempt *attempt;
	PGconn *conn;
	struct statement greeting;
	struct statement *current; /* NULL: it has nothing to do */
	PGresult *result;          /* of it, so far */
	bool pooled;               /* what answers is not what was connected to */
	bool clock_known;
	int64_t clock_us; /* the server's, less the loop's */
	uint64_t up_ms;   /* since when it is up */
	unsigned life;    /* counts the ends of connections: did this one end inside a callback? */
	bool tried;       /* an attempt has failed since it was up, or opened */
	char server[192]; /* "host:port", as messages have it */
	char why[WHY_MAX];
};

/* What all parts of a store share. */
struct hub {
	struct idem_loop *loop;
	struct postgres_uri uri;
	uint64_t timeout_ms;
	void (*report)(void *report_data, const char *sentence);
	void *report_data;
	struct {
		bool reported, told; /* ever; and not yet taken back */
		uint64_t reported_ms;
	} troubles[TROUBLES];
};

/* A statement's parameters, all in binary. */
struct parameters {
	int count;
	const Oid *types;
	const char *const *values;
	const int *lengths;
};

void idem_postgres_link_init(struct link *link, struct hub *hub, const struct link_user *user,
                             void *user_data);
/* Begins to connect, and does so again whenever the connection breaks. */
void idem_postgres_link_open(struct link *link);
/* The statement has ended lost.  No other callback is called. */
void idem_postgres_link_close(struct link *link);
/* Breaks the connection from outside: as if the server had done it. */
void idem_postgres_link_break(struct link *link, const char *why);
/* Only while it is up and has no statement.  text: with %s for the schema.  IDEM_OK: ended() will be called,
 * never from inside this.  IDEM_E_NOMEM: nothing was sent, and the link will break. */
int idem_postgres_link_send(struct link *link, struct statement *statement, const char *text,
                            const struct parameters *parameters) IDEM_MUST_CHECK;
/* It is up, and has nothing to do. */
bool idem_postgres_link_is_free(const struct link *link);
/* The server's clock, as a timestamptz: microseconds since 2000. */
void idem_postgres_link_set_clock(struct link *link, int64_t at_us);

/* ---- columns ---- */

#define OID_BOOL 16
#define OID_BYTEA 17
#define OID_INT8 20
#define OID_INT4 23
#define OID_TEXT 25
#define OID_TIMESTAMPTZ 1184
#define OID_BOOL_ARRAY 1000
#define OID_BYTEA_ARRAY 1001
#define OID_TEXT_ARRAY 1009
#define OID_INT8_ARRAY 1016
#define OID_TIMESTAMPTZ_ARRAY 1185

/* An array with one dimension, in PostgreSQL's binary form, which grows. */
struct column {
	unsigned char *data;
	size_t len, cap;
	unsigned count;
	bool failed; /* memory was short: sticky */
};

void idem_postgres_column_begin(struct column *column, Oid element);
void idem_postgres_column_put(struct column *column, const void *data, size_t len);
void idem_postgres_column_put_null(struct column *column);
void idem_postgres_column_put_int8(struct column *column, int64_t value);
void idem_postgres_column_put_bool(struct column *column, bool value);
void idem_postgres_column_end(struct column *column, bool keep_memory);
void idem_postgres_put_int4(unsigned char *at, uint32_t value);
/* Of a result's field.  False: it has another length, or is NULL. */
bool idem_postgres_get_int4(const PGresult *result, int row, int field, int32_t *ret);
bool idem_postgres_get_int8(const PGresult *result, int row, int field, int64_t *ret);
bool idem_postgres_get_bytes(const PGresult *result, int row, int field, void *ret, size_t len);

/* ---- call ---- */

struct postgres_store;
struct batch;

/* One compare-and-swap on its way. */
struct call {
	struct postgres_store *store;
	struct idem_io *io;        /* NULL: nobody waits for it any more */
	struct call *next, **link; /* of the store's list, in order of age, where it is while it has an io */
	struct call *next_waiting;
	bool waiting;   /* for a batch */
	bool alone;     /* in a batch of its own: those that it was sent with failed */
	unsigned again; /* how often */
	void *payload;  /* what is kept for the caller until it is told */
	uint64_t until_ms;
};

/* IDEM_PENDING, or an error. */
int idem_postgres_call_start(struct postgres_store *store, struct idem_io *io) IDEM_MUST_CHECK;
void idem_postgres_call_cancel(struct postgres_store *store, struct idem_io *io);
/* Those that wait are gone; those that were sent are their batch's. */
void idem_postgres_calls_close(struct postgres_store *store);
/* The end of one that does not wait. */
void idem_postgres_call_finish(struct call *call, int status);
/* It waits, before those that are there. */
void idem_postgres_call_again(struct call *call);
/* The first that waits.  NULL: none. */
struct call *idem_postgres_call_take(struct postgres_store *store);
/* Is there anything to send, or anything that cannot be sent?  Looked at from the loop. */
void idem_postgres_calls_go_on(struct postgres_store *store);

/* ---- batch ---- */

#define BATCH_MAX 256
/* No further call is put into a batch that is so long. */
#define BATCH_BYTES ((size_t)4 << 20)

enum {
	COLUMN_SCOPE,
	COLUMN_KEY,
	COLUMN_EXPECT,
	COLUMN_TAG,
	COLUMN_STATE,
	COLUMN_ATTEMPT,
	COLUMN_LEASE,
	COLUMN_RETAIN,
	COLUMN_FINGERPRINT,
	COLUMN_PAYLOAD,
	COLUMN_WANT,
	COLUMN_WAIT,
	COLUMN_NOT_AFTER,
	COLUMNS
};

/* One of the store's connections, and what it is at. */
struct batch {
	struct postgres_store *store;
	struct link link;
	struct statement swap, sweep;
	struct call *calls[BATCH_MAX];
	size_t count;
	struct column columns[COLUMNS];
};

void idem_postgres_batch_init(struct batch *batch, struct postgres_store *store);
void idem_postgres_batch_close(struct batch *batch);
/* Sends what waits, if the link has nothing to do. */
void idem_postgres_batch_go(struct batch *batch);

/* ---- sweep ---- */

struct sweep {
	struct postgres_store *store;
	struct idem_timer timer;
	bool due, busy;
};

void idem_postgres_sweep_init(struct sweep *sweep, struct postgres_store *store);
void idem_postgres_sweep_close(struct sweep *sweep);
/* Sends it on that link, which has nothing to do, if it is due. */
void idem_postgres_sweep_go(struct sweep *sweep, struct batch *batch);

/* ---- hints ---- */

#define EAR_BUCKETS 256

struct ear;

struct hints {
	struct postgres_store *store;
	struct link link;
	struct idem_timer timer; /* to say something, or to look */
	struct statement statement, look;
	struct ear *ears[EAR_BUCKETS];
	size_t count;
	struct ear **looked_at; /* those of the statement that looks; NULL where one went */
	size_t looked_count;
	bool due, looking;
	bool listening;            /* LISTEN is in effect */
	bool pooled;               /* nobody can listen */
	struct idem_watch *cursor; /* the next one to be called */
};

void idem_postgres_hints_init(struct hints *hints, struct postgres_store *store);
void idem_postgres_hints_close(struct hints *hints);
/* Looks, on the link of that batch, which has nothing to do, if it is due. */
void idem_postgres_hints_go(struct hints *hints, struct batch *batch);
int idem_postgres_hints_watch(struct hints *hints, struct idem_watch *watch) IDEM_MUST_CHECK;
void idem_postgres_hints_unwatch(struct hints *hints, struct idem_watch *watch);
/* Does somebody here wait for the cell? */
bool idem_postgres_hints_wanted(struct hints *hints, const struct idem_id *id);
/* Somebody was told that this is there, locked: its end must be hinted. */
void idem_postgres_hints_promise(struct hints *hints, const struct idem_id *id, const struct idem_tag *tag);

/* ---- store ---- */

struct postgres_store {
	struct idem_store base;
	struct hub hub;
	struct call *calls, **last_call; /* all that somebody waits for */
	struct call *waiting, **last_waiting;
	struct idem_timer turn;     /* what arrives in one turn of the loop is sent together */
	struct idem_timer deadline; /* the oldest call's */
	struct batch batches[CONNECTIONS_MAX];
	struct sweep sweep;
	struct hints hints;
};

#endif
