/*
 * The Redis store from the inside.
 *
 *   uri      what the URI says
 *   stream   a socket, plain or with TLS
 *   link     one connection: made, greeted, kept, made again; commands go out and replies come back in order
 *   greeting what a server says of itself
 *   script   the one step, in Lua
 *   cell     a cell as text
 *   node     a server, with its few links
 *   call     one compare-and-swap on its way
 *   route    which server: the one; the one that Sentinels name; the one that has the slot
 *   hints    watches, by channels
 *   store    all of it
 */
#ifndef IDEM_STORES_REDIS_LAYOUT_H
#define IDEM_STORES_REDIS_LAYOUT_H

#include <hiredis/hiredis.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <idem/redis.h>

#include "../offload.h"

#define WHY_MAX 512

/* A host's name, or the path of a socket. */
#define HOST_MAX 255
#define ADDRESSES_MAX 16
#define CONNECTIONS_MAX 16
#define PREFIX_MAX 128

/* Between two attempts to connect: what comes back is found within a second. */
#define RETRY_MS 250
/* A host that does not even accept or refuse a connection for so long is tried anew. */
#define CONNECT_MS 500

/* ---- why ---- */

struct hub;

enum trouble {
	TROUBLE_SERVER,  /* it cannot be reached, or lets nobody in */
	TROUBLE_REFUSED, /* it carries out no step */
	TROUBLE_POLICY,
	TROUBLE_FULL,
	TROUBLE_REPLICAS,
	TROUBLE_CELL,
	TROUBLE_RIGHTS,
	TROUBLE_HINTS,
	TROUBLE_SENTINEL,
	TROUBLES
};

int idem_redis_say(char *why, size_t cap, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void idem_redis_report(struct hub *hub, enum trouble kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* If it was reported. */
void idem_redis_recovered(struct hub *hub, enum trouble kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- uri ---- */

struct address {
	char host[HOST_MAX + 1];
	unsigned port; /* 0: host is a path */
};

enum plan { PLAN_SINGLE, PLAN_SENTINEL, PLAN_CLUSTER };

/* What a URI says.  Its texts are in one block. */
struct redis_uri {
	enum plan plan;
	bool tls;
	struct address addresses[ADDRESSES_MAX];
	size_t count;
	const char *user, *password, *sentinel_user, *sentinel_password; /* NULL: none */
	const char *master;                                              /* what the Sentinels call it */
	unsigned database;
	const char *prefix;
	unsigned wait_replicas;
	uint64_t wait_ms;
	unsigned connections;
	const char *ca, *cert, *key;
	char *text; /* the block */
	size_t text_len;
};

/* IDEM_OK, IDEM_E_INVALID (why), IDEM_E_NOMEM. */
int idem_redis_uri_parse(struct redis_uri *uri, const char *text, char *why, size_t cap) IDEM_MUST_CHECK;
void idem_redis_uri_free(struct redis_uri *uri);

/* "host:port", as messages have it. */
void idem_redis_address_text(const struct address *address, char *buf, size_t cap);
bool idem_redis_address_same(const struct address *a, const struct address *b);
/* "HOST[:PORT]", "[V6]:PORT".  False: it is none. */
bool idem_redis_address_parse(struct address *address, const char *text, size_t len, unsigned default_port);

/* As servers write it: "HOST:PORT", where HOST may be IPv6 and has no brackets. */
bool idem_redis_address_parse_last(struct address *address, const char *text);

/* ---- stream ---- */

/* What TLS needs once for a store.  context is NULL without TLS. */
struct tls {
	SSL_CTX *context;
	BIO_METHOD *socket; /* reads and writes a stream's descriptor */
};

/* IDEM_OK, IDEM_E_INVALID (why), IDEM_E_NOMEM. */
int idem_redis_tls_init(struct tls *tls, const struct redis_uri *uri, char *why, size_t cap) IDEM_MUST_CHECK;
void idem_redis_tls_deinit(struct tls *tls);

/* Does not move while it has TLS. */
struct stream {
	int fd;   /* -1: none */
	SSL *tls; /* NULL: plain */
	bool shut;
};

enum {
	STREAM_WANTS_READ = -1,
	STREAM_WANTS_WRITE = -2,
	STREAM_BROKEN = -3,
	STREAM_ENDED = -4,
	STREAM_SHUT = -5, /* nothing can be written any more; what can still be read may say why */
};

/* The number of bytes, or one of these.  why: of STREAM_BROKEN. */
ssize_t idem_redis_stream_read(struct stream *stream, void *buf, size_t len, char *why, size_t cap);
ssize_t idem_redis_stream_write(struct stream *stream, const void *buf, size_t len, char *why, size_t cap);
/* IDEM_OK: connect(2) is under way. */
int idem_redis_stream_connect(struct stream *stream, const struct sockaddr *address,
                              socklen_t len) IDEM_MUST_CHECK;
/* After the connection is there.  name: whose certificate it must be. */
int idem_redis_stream_secure(struct stream *stream, const struct tls *tls, const char *name) IDEM_MUST_CHECK;
/* 0: it is secure, or one of the above. */
int idem_redis_stream_handshake(struct stream *stream, char *why, size_t cap);
void idem_redis_stream_close(struct stream *stream);

/* ---- resolve ---- */

struct resolution;

/* Not NULL: then() is called later.  NULL: *ret_found is the answer already, or NULL if memory was short. */
struct resolution *idem_redis_resolve(struct idem_loop *loop, const struct address *address,
                                      void (*then)(void *data, struct addrinfo *found, const char *error),
                                      void *data, struct addrinfo **ret_found);
void idem_redis_resolve_cancel(struct resolution *resolution);

/* ---- link ---- */

struct link;

/* A command that was sent.  Whoever sends it embeds it, and keeps it until replied() was called. */
struct command {
	struct command *next;
	/* Once.  NULL: the connection broke; it may have been carried out or not.  The reply is the link's.
	 */
	void (*replied)(struct command *command, const redisReply *reply);
	uint64_t since_ms;
};

/* What somebody wants of a link.  All are called from the loop. */
struct link_user {
	/* The connection is there, or is there again. */
	void (*up)(struct link *link);
	/* An attempt failed or a connection broke; all commands were replied to.  The next attempt follows,
	 * unless the link is closed inside.  why names the server. */
	void (*down)(struct link *link, const char *why);
	/* What a server says of its own accord: of links that listen.  Otherwise NULL. */
	void (*pushed)(struct link *link, const redisReply *reply);
	/* Something will be written now; more may be sent.  False: memory is short, and the connection
	 * breaks. May be NULL. */
	bool (*before_write)(struct link *link);
};

enum link_state {
	LINK_IDLE,       /* no address yet */
	LINK_WAITING,    /* for the next attempt */
	LINK_RESOLVING,  /* the name */
	LINK_CONNECTING, /* the socket, and TLS */
	LINK_GREETING,
	LINK_UP,
};

enum link_kind { LINK_FOR_DATA, LINK_FOR_HINTS, LINK_FOR_SENTINEL };

/* Words of a command. */
#define WORDS_MAX 16

struct link {
	struct hub *hub;
	const struct link_user *user;
	void *user_data;
	enum link_kind kind;
	enum link_state state;
	struct address address;
	struct idem_timer timer; /* the end of what is under way, or of the wait */
	struct idem_fd watch;
	unsigned readiness;
	struct stream stream;
	redisReader *reader;
#if HIREDIS_MAJOR == 0
	redisReplyObjectFunctions functions; /* hiredis' own, but for long lists */
	void *(*create_array)(const redisReadTask *task, int count);
#endif
	struct resolution *resolution; /* under way */
	struct addrinfo *found, *next; /* and what it brought; the next one to try */
	char *out;
	size_t out_len, out_sent, out_cap;
	struct command *first, **last;
	size_t pending;
	uint64_t heard_ms;
	uint64_t up_ms; /* since when it is up */
	bool listens;   /* what comes is no reply any more */
	bool clock_known;
	int64_t clock_ms; /* the server's, less the loop's */
	struct command greeting[3];
	unsigned life;     /* counts the ends of connections: did this one end inside a callback? */
	bool tried;        /* an attempt has failed since it was up, or opened */
	char why[WHY_MAX]; /* the last attempt failed */
};

/* What all parts of a store share. */
struct hub {
	struct idem_loop *loop;
	struct redis_uri uri;
	struct tls tls;
	uint64_t timeout_ms;
	void (*report)(void *report_data, const char *sentence);
	void *report_data;
	struct {
		bool reported, told; /* ever; and not yet taken back */
		uint64_t reported_ms;
	} troubles[TROUBLES];
};

void idem_redis_link_init(struct link *link, struct hub *hub, enum link_kind kind,
                          const struct link_user *user, void *user_data);
/* Begins to connect, and does so again whenever the connection breaks. */
void idem_redis_link_open(struct link *link, const struct address *address);
/* Commands are replied to with NULL.  Nothing more is called. */
void idem_redis_link_close(struct link *link);
/* Breaks the connection from outside: as if the server had done it. */
void idem_redis_link_break(struct link *link, const char *why);
/* IDEM_OK: replied() will be called, never from inside this; or IDEM_E_NOMEM, and nothing was sent.  Only
 * while it is up, and does not listen. */
int idem_redis_link_send(struct link *link, struct command *command, size_t count,
                         const struct idem_bytes *words) IDEM_MUST_CHECK;

/* Sends what makes the server talk of its own accord, as SUBSCRIBE does, and more of the kind; pushed() hears
 * it.  Only while it is up, and no command is pending. */
int idem_redis_link_listen(struct link *link, size_t count, const struct idem_bytes *words) IDEM_MUST_CHECK;

/* ---- greeting ---- */

/*
 * Looks at the answer to INFO: can it be used?  False: why not.  Sets link->clock_ms, and reports what those
 * who run the server should know.
 */
bool idem_redis_greeting_judge(struct link *link, const redisReply *reply, char *why, size_t cap);

/* ---- script ---- */

#define SHA_LEN 40

/* The step, in Lua.  It exists twice: once to make cells, and once to change those that are there, which may
 * go over maxmemory. */
struct script {
	const char *text;
	char sha[SHA_LEN + 1]; /* by which EVALSHA knows it */
};

enum { SCRIPT_MAKE, SCRIPT_CHANGE, SCRIPTS };

/* What it answers, behind the serial. */
enum { STEP_REFUSED = 0, STEP_APPLIED = 1, STEP_TOO_LATE = 2, STEP_FOREIGN = 3 };

/* IDEM_OK, or IDEM_E_NOMEM. */
int idem_redis_scripts_make(struct script scripts[SCRIPTS]) IDEM_MUST_CHECK;

/* ---- cell ---- */

#define CELL_MAGIC "idem/1 "
/* A cell's first line, all of a length, with its end. */
#define HEAD_LEN 176
#define TAG_TEXT_LEN ((size_t)2 * IDEM_TAG_LEN)
#define NAME_MAX_LEN (PREFIX_MAX + 2 * IDEM_ID_LEN + 1)

void idem_redis_hex(const uint8_t *bytes, size_t len, char *text);
/* The key's name: its length.  name has NAME_MAX_LEN + 1 bytes. */
size_t idem_redis_cell_name(const char *prefix, const struct idem_id *id, char *name);
/* For how long a key is kept, as Redis takes it. */
uint64_t idem_redis_retain_ms(uint64_t retain_ms);
/* head has HEAD_LEN + 1 bytes. */
void idem_redis_cell_write(const struct idem_cell *cell, char *head);
/* ttl_ms: what PTTL says.  The payload is left out.  IDEM_OK, IDEM_E_CORRUPT, IDEM_E_VERSION. */
int idem_redis_cell_read(const char *head, size_t len, int64_t ttl_ms, struct idem_cell *ret) IDEM_MUST_CHECK;

/* ---- node ---- */

struct redis_store;
struct call;

/* A server, and our connections to it. */
struct node {
	struct redis_store *store;
	struct node *next;
	struct link links[CONNECTIONS_MAX];
	struct call *unwaited[CONNECTIONS_MAX]; /* sent on that link, and no WAIT behind them yet */
	bool known;                             /* it has an address */
	bool wanted;                            /* in the cluster's newest map */
};

/* One that has no address yet: a closed one, or a new one in the store's list.  NULL: memory is short. */
struct node *idem_redis_node_get(struct redis_store *store);
/* All of them.  Until then a closed one stays, for its link may be the one whose reply is at hand. */
void idem_redis_nodes_free(struct redis_store *store);
/* Connects, if it is not connected to that address already. */
void idem_redis_node_open(struct node *node, const struct address *address);
void idem_redis_node_close(struct node *node);
/* The connection with the least to do.  NULL: there is none; *ret_hope: the first attempt is still under way.
 */
struct link *idem_redis_node_link(struct node *node, bool *ret_hope);
/* The place of a link in its node. */
size_t idem_redis_node_place(const struct node *node, const struct link *link);

/* ---- call ---- */

enum call_end {
	CALL_UNSENT,   /* or sent, and no reply came yet */
	CALL_ANSWERED, /* nothing more is to be told */
	CALL_HELD,     /* until the replicas have it */
	CALL_AGAIN,    /* to be sent once more, somewhere */
};

/* One compare-and-swap on its way.  Lives until the last of its replies has come. */
struct call {
	struct command command;
	struct command asking;
	struct redis_store *store;
	struct idem_io *io;        /* NULL: it was cancelled */
	struct call *next, **link; /* of the store's list, where it is until it is answered */
	struct call *next_waiting;
	struct call *next_unwaited;
	struct node *node; /* where it was sent last */
	struct link *sent_on;
	struct node *ask; /* where it is to be sent next, once, whatever the map says */
	enum call_end end;
	bool waiting;   /* for a connection */
	bool attached;  /* to a WAIT, or to those that will be */
	bool by_text;   /* the server does not know the script */
	unsigned again; /* how often */
	void *payload;  /* what is kept for the caller until it is told */
	uint64_t serial;
	uint64_t until_ms;
	char name[NAME_MAX_LEN + 1];
	size_t name_len;
};

/* IDEM_PENDING, or an error. */
int idem_redis_call_start(struct redis_store *store, struct idem_io *io) IDEM_MUST_CHECK;
void idem_redis_call_cancel(struct redis_store *store, struct idem_io *io);
/* Forgets all; those that were sent are freed when their links are closed. */
void idem_redis_calls_close(struct redis_store *store);
/* Those that wait, since something has changed. */
void idem_redis_calls_go_on(struct redis_store *store);
/* A link is about to write: whatever needs it gets a WAIT.  False: memory is short. */
bool idem_redis_calls_before_write(struct node *node, struct link *link);
/* A link is down: all that was sent on it was replied to. */
void idem_redis_calls_link_down(struct node *node, struct link *link);

/* ---- route ---- */

/* Where the cell is.  NULL: nobody knows; *ret_hope: that is being found out. */
struct node *idem_redis_route(struct redis_store *store, const struct call *call, bool *ret_hope);
int idem_redis_route_open(struct redis_store *store) IDEM_MUST_CHECK;
void idem_redis_route_close(struct redis_store *store);
void idem_redis_route_node_up(struct redis_store *store);
/* A node cannot be reached, or says it is not the one. */
void idem_redis_route_doubt(struct redis_store *store);
/* "MOVED slot address" or "ASK slot address". False: it is neither, or makes no sense. */
bool idem_redis_route_redirect(struct redis_store *store, struct call *call, const char *error);
/* Where hints can be heard.  NULL: not yet. */
const struct address *idem_redis_route_for_hints(struct redis_store *store);

/* Asks Sentinels for the master, and listens to them. */
struct sentinel {
	struct redis_store *store;
	struct link link;
	struct command command;
	size_t at;    /* of the addresses that are asked */
	size_t asked; /* since the last answer */
};

#define SLOTS 16384

struct cluster {
	struct redis_store *store;
	struct node *slots[SLOTS]; /* NULL: nobody has it */
	struct command command;
	bool asked; /* for the map, and the answer is to come */
	bool mapped;
	uint64_t asked_ms;
	struct address asked_address;
	struct idem_timer timer;
};

void idem_redis_sentinel_open(struct redis_store *store);
void idem_redis_sentinel_close(struct redis_store *store);
/* The master may be another one. */
void idem_redis_sentinel_ask(struct redis_store *store);

int idem_redis_cluster_open(struct redis_store *store) IDEM_MUST_CHECK;
void idem_redis_cluster_close(struct redis_store *store);
struct node *idem_redis_cluster_node(struct redis_store *store, const struct call *call, bool *ret_hope);
/* The map may be another one. */
void idem_redis_cluster_ask(struct redis_store *store);
bool idem_redis_cluster_redirect(struct redis_store *store, struct call *call, const char *error);
/* A node's connection is there. */
void idem_redis_cluster_node_up(struct redis_store *store);
unsigned idem_redis_slot(const char *name, size_t len);

/* ---- hints ---- */

#define EAR_BUCKETS 256

struct ear;

struct hints {
	struct redis_store *store;
	struct link link;
	bool open;
	struct ear *ears[EAR_BUCKETS];
	size_t count;
	uint64_t subscribed,
		acknowledged; /* how many SUBSCRIBEs on this connection, and how many of them took effect */
	struct idem_watch *cursor; /* the next one to be called */
};

void idem_redis_hints_init(struct hints *hints, struct redis_store *store);
void idem_redis_hints_close(struct hints *hints);
int idem_redis_hints_watch(struct hints *hints, struct idem_watch *watch) IDEM_MUST_CHECK;
void idem_redis_hints_unwatch(struct hints *hints, struct idem_watch *watch);
/* Somebody was told that the cell is locked: its end must be hinted. */
void idem_redis_hints_promise(struct hints *hints, const struct idem_id *id);
/* Where to listen may have changed. */
void idem_redis_hints_move(struct hints *hints);

/* ---- store ---- */

struct redis_store {
	struct idem_store base;
	struct hub hub;
	struct script scripts[SCRIPTS];
	uint64_t serial;
	struct call *calls; /* all that are not answered */
	struct call *waiting, **last_waiting;
	struct idem_timer turn; /* those that wait are looked at from the loop alone */
	struct node *nodes;
	struct sentinel sentinel;
	struct cluster *cluster;
	struct hints hints;
};

#endif
