/*
 * One connection to a server: made, kept, and made again.
 *
 * Bytes are ours, the protocol (RESP) is hiredis': its formatter and its reader.  Its asynchronous layer is
 * not used. In the oldest version that we support it looks names up in the caller's thread, has no limit of
 * time, ends the process (assert(3)) over a reply that nobody asked for, and when memory is short it forgets
 * who asked for a reply, which then goes to somebody else.
 */
#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "layout.h"

#define READ_BYTES ((size_t)64 << 10)
/* What is kept of the memory for what is to be written. */
#define OUT_KEPT_BYTES ((size_t)256 << 10)
/* A listener says something so often, that it knows whether it is still connected. */
#define PING_MS 5000

static void connect_next(struct link *link);

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

/* ---- interest ---- */

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

/* ---- what reads ---- */

/* No list of a Redis server's is longer, and of what is none hiredis would make one of any length. */
#define ELEMENTS_MAX 100000

#if HIREDIS_MAJOR == 0
static void *
create_short_array(const redisReadTask *task, int count)
{
	const struct link *link = task->privdata;

	return count <= ELEMENTS_MAX ? link->create_array(task, count) : NULL;
}
#endif

static redisReader *
make_reader(struct link *link)
{
	redisReader *reader = redisReaderCreate();

	if (reader == NULL)
		return NULL;
#if HIREDIS_MAJOR == 0
	link->functions = *reader->fn;
	link->create_array = link->functions.createArray;
	link->functions.createArray = create_short_array;
	reader->fn = &link->functions;
	reader->privdata = link;
#else
	(void)link;
	reader->maxelements = ELEMENTS_MAX;
#endif
	return reader;
}

/* ---- the end of a connection ---- */

static void
drop_socket(struct link *link)
{
	if (link->stream.fd >= 0)
		(void)want(link, 0);
	idem_redis_stream_close(&link->stream);
	if (link->reader != NULL)
		redisReaderFree(link->reader);
	link->reader = NULL;
	link->listens = false;
	OPENSSL_clear_free(link->out, link->out_cap); /* there may be a password in it */
	link->out = NULL;
	link->out_len = link->out_sent = link->out_cap = 0;
}

static void
drop_search(struct link *link)
{
	if (link->resolution != NULL)
		idem_redis_resolve_cancel(link->resolution);
	link->resolution = NULL;
	if (link->found != NULL)
		freeaddrinfo(link->found);
	link->found = link->next = NULL;
}

static struct command *
take_command(struct link *link)
{
	struct command *command = link->first;

	if (command == NULL)
		return NULL;
	link->first = command->next;
	if (link->first == NULL)
		link->last = &link->first;
	link->pending--;
	return command;
}

static void
fail(struct link *link)
{
	unsigned life = ++link->life;
	/* One that was good is made anew at once; but not one that is cut again and again. */
	bool was_good = link->state == LINK_UP && now_of(link) - link->up_ms >= RETRY_MS;
	struct command *command;

	drop_socket(link);
	drop_search(link);
	link->tried = !was_good;
	link->state = LINK_WAITING;
	start_timer(link, was_good ? 0 : RETRY_MS);
	while (link->life == life && (command = take_command(link)) != NULL)
		command->replied(command, NULL);
	if (link->life == life)
		link->user->down(link, link->why);
}

static void
fail_because(struct link *link, const char *why)
{
	char address[HOST_MAX + 16];

	idem_redis_address_text(&link->address, address, sizeof address);
	(void)snprintf(link->why, sizeof link->why, "%s: %s", address, why);
	fail(link);
}

void
idem_redis_link_break(struct link *link, const char *why)
{
	if (link->state != LINK_IDLE && link->state != LINK_WAITING)
		fail_because(link, why);
}

/* ---- commands out ---- */

/* The oldest command's end, or none. */
static void
watch_time(struct link *link)
{
	uint64_t now, until;

	if (link->listens)
		return; /* it pings */
	if (link->first == NULL) {
		stop_timer(link);
		return;
	}
	now = now_of(link);
	until = link->first->since_ms + link->hub->timeout_ms + link->hub->uri.wait_ms;
	start_timer(link, until > now ? until - now : 0);
}

static bool
reserve(struct link *link, size_t len)
{
	size_t cap = link->out_cap > 0 ? link->out_cap : 4096;
	char *out;

	if (link->out_sent > 0 && link->out_sent == link->out_len)
		link->out_sent = link->out_len = 0;
	while (cap - link->out_len < len)
		cap *= 2;
	if (cap == link->out_cap)
		return true;
	out = OPENSSL_clear_realloc(link->out, link->out_cap, cap);
	if (out == NULL)
		return false;
	link->out = out;
	link->out_cap = cap;
	return true;
}

static bool
append(struct link *link, size_t count, const struct idem_bytes *words)
{
	const char *argv[WORDS_MAX];
	size_t lens[WORDS_MAX];
	char *text;
	int len;

	for (size_t i = 0; i < count; i++) {
		argv[i] = words[i].data;
		lens[i] = words[i].len;
	}
	len = (int)redisFormatCommandArgv(&text, (int)count, argv, lens);
	if (len < 0)
		return false;
	if (!reserve(link, (size_t)len)) {
		redisFreeCommand(text);
		return false;
	}
	memcpy(link->out + link->out_len, text, (size_t)len);
	link->out_len += (size_t)len;
	redisFreeCommand(text);
	return true;
}

int
idem_redis_link_send(struct link *link, struct command *command, size_t count, const struct idem_bytes *words)
{
	size_t before = link->out_len;

	if (!append(link, count, words))
		return IDEM_E_NOMEM;
	if (link->state != LINK_CONNECTING && !want(link, IDEM_READABLE | IDEM_WRITABLE)) {
		link->out_len = before;
		return IDEM_E_NOMEM;
	}
	if (command == NULL)
		return IDEM_OK; /* a listener's */
	command->next = NULL;
	command->since_ms = now_of(link);
	*link->last = command;
	link->last = &command->next;
	link->pending++;
	if (!link->timer.armed)
		watch_time(link);
	return IDEM_OK;
}

int
idem_redis_link_listen(struct link *link, size_t count, const struct idem_bytes *words)
{
	int rc = idem_redis_link_send(link, NULL, count, words);

	if (rc != IDEM_OK || link->listens)
		return rc;
	link->listens = true;
	start_timer(link, PING_MS);
	return IDEM_OK;
}

/* ---- bytes ---- */

static void
ended(struct link *link, ssize_t n, const char *why)
{
	fail_because(link, n == STREAM_ENDED ? "the server closed the connection" : why);
}

/* False: the connection or the link is no more. */
static bool
write_out(struct link *link)
{
	char why[WHY_MAX];

	if (link->state == LINK_UP && link->user->before_write != NULL && !link->user->before_write(link)) {
		fail_because(link, "out of memory");
		return false;
	}
	while (link->out_sent < link->out_len) {
		ssize_t n = idem_redis_stream_write(&link->stream, link->out + link->out_sent,
		                                    link->out_len - link->out_sent, why, sizeof why);

		if (n == STREAM_WANTS_WRITE || n == STREAM_WANTS_READ)
			return true;
		if (n == STREAM_SHUT) {
			(void)want(link, IDEM_READABLE); /* else we are told again and again */
			return true;
		}
		if (n < 0) {
			ended(link, n, why);
			return false;
		}
		link->out_sent += (size_t)n;
	}
	link->out_len = link->out_sent = 0;
	if (link->out_cap > OUT_KEPT_BYTES) {
		OPENSSL_clear_free(link->out, link->out_cap);
		link->out = NULL;
		link->out_cap = 0;
	}
	(void)want(link, IDEM_READABLE); /* at worst we are told once more that it is writable */
	return true;
}

/* ---- replies in ---- */

/* False: the connection or the link is no more. */
static bool
hand_over(struct link *link, const redisReply *reply)
{
	unsigned life = link->life;
	struct command *command;

	if (link->listens) {
		link->user->pushed(link, reply);
	} else {
		command = take_command(link);
		if (command == NULL) {
			fail_because(link, reply->type == REDIS_REPLY_ERROR
			                           ? reply->str
			                           : "a reply that nobody asked for; is it a Redis server?");
			return false;
		}
		command->replied(command, reply);
	}
	return link->life == life;
}

static bool
read_replies(struct link *link)
{
	void *reply;
	bool goes_on = true;

	while (goes_on) {
		if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
			fail_because(link, link->reader->err == REDIS_ERR_OOM
			                           ? "out of memory"
			                           : "no Redis server: its reply makes no sense");
			return false;
		}
		if (reply == NULL)
			return true;
		goes_on = hand_over(link, reply);
		freeReplyObject(reply);
	}
	return false;
}

static void
read_in(struct link *link)
{
	static const size_t turns = 16; /* others want their turn too */
	char buf[READ_BYTES], why[WHY_MAX];

	for (size_t i = 0; i < turns; i++) {
		ssize_t n = idem_redis_stream_read(&link->stream, buf, sizeof buf, why, sizeof why);

		if (n == STREAM_WANTS_READ || n == STREAM_WANTS_WRITE)
			break;
		if (n < 0) {
			ended(link, n, why);
			return;
		}
		link->heard_ms = now_of(link);
		if (redisReaderFeed(link->reader, buf, (size_t)n) != REDIS_OK) {
			fail_because(link, "out of memory");
			return;
		}
		if (!read_replies(link))
			return;
		/* TLS may hold more than the socket shows. */
		if ((size_t)n < sizeof buf && link->stream.tls == NULL)
			break;
	}
	watch_time(link);
}

/* ---- the greeting ---- */

/* The server's words are not repeated: where it knows no AUTH, they quote the password. */
static const char *
why_not_let_in(const char *error)
{
	static const char no_room[] = "ERR max number of clients reached";

	if (strncmp(error, "WRONGPASS", 9) == 0)
		return "it does not take the password, or does not know the user: see those in the URI";
	if (strncmp(error, "ERR AUTH <password> called without", 34) == 0)
		return "it has no password, and the URI gives one: take it away, or set requirepass";
	return strncmp(error, no_room, sizeof no_room - 1) == 0 ? no_room : "it refuses AUTH: is it renamed?";
}

static void
is_up(struct link *link)
{
	link->state = LINK_UP;
	link->up_ms = now_of(link);
	link->tried = false;
	link->why[0] = '\0';
	stop_timer(link);
	link->user->up(link);
}

static struct link *
link_of(struct command *command, size_t number)
{
	return (struct link *)(void *)((char *)(command - number) - offsetof(struct link, greeting));
}

static void
authenticated(struct command *command, const redisReply *reply)
{
	struct link *link = link_of(command, 0);

	if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
		fail_because(link, why_not_let_in(reply->str));
}

static void
selected(struct command *command, const redisReply *reply)
{
	struct link *link = link_of(command, 1);
	char why[WHY_MAX];

	if (reply == NULL || reply->type != REDIS_REPLY_ERROR)
		return;
	(void)snprintf(why, sizeof why, "it refuses the database %u of the URI: %s", link->hub->uri.database,
	               reply->str);
	fail_because(link, why);
}

static void
told_of_itself(struct command *command, const redisReply *reply)
{
	struct link *link = link_of(command, 2);
	char why[WHY_MAX];

	if (reply == NULL)
		return;
	if (!idem_redis_greeting_judge(link, reply, why, sizeof why))
		fail_because(link, why);
	else
		is_up(link);
}

static int
say(struct link *link, size_t number, void (*replied)(struct command *, const redisReply *), size_t count,
    const char *const *words)
{
	struct idem_bytes bytes[4];

	for (size_t i = 0; i < count; i++)
		bytes[i] = (struct idem_bytes){words[i], strlen(words[i])};
	link->greeting[number].replied = replied;
	return idem_redis_link_send(link, &link->greeting[number], count, bytes);
}

static int
greet(struct link *link)
{
	const struct redis_uri *uri = &link->hub->uri;
	bool sentinel = link->kind == LINK_FOR_SENTINEL;
	const char *user = sentinel ? uri->sentinel_user : uri->user;
	const char *password = sentinel ? uri->sentinel_password : uri->password;
	char database[16];
	int rc = IDEM_OK;

	if (password != NULL && user != NULL)
		rc = say(link, 0, authenticated, 3, (const char *[]){"AUTH", user, password});
	else if (password != NULL)
		rc = say(link, 0, authenticated, 2, (const char *[]){"AUTH", password});
	(void)snprintf(database, sizeof database, "%u", uri->database);
	if (rc == IDEM_OK && uri->database != 0 && !sentinel)
		rc = say(link, 1, selected, 2, (const char *[]){"SELECT", database});
	if (rc == IDEM_OK)
		rc = say(link, 2, told_of_itself, 1, (const char *[]){"INFO"});
	return rc;
}

static void
begin_greeting(struct link *link)
{
	link->state = LINK_GREETING;
	link->reader = make_reader(link);
	start_timer(link, link->hub->timeout_ms);
	if (link->reader == NULL || greet(link) != IDEM_OK)
		fail_because(link, "out of memory");
}

/* ---- connecting ---- */

static void
next_or_fail(struct link *link, const char *why)
{
	if (link->next == NULL) {
		fail_because(link, why);
		return;
	}
	(void)want(link, 0);
	idem_redis_stream_close(&link->stream);
	connect_next(link);
}

static void
shake_hands(struct link *link)
{
	char why[WHY_MAX];
	int rc = idem_redis_stream_handshake(&link->stream, why, sizeof why);
	bool fine = true;

	if (rc == STREAM_WANTS_READ)
		fine = want(link, IDEM_READABLE);
	else if (rc == STREAM_WANTS_WRITE)
		fine = want(link, IDEM_WRITABLE);
	else if (rc < 0)
		ended(link, rc, why);
	else
		begin_greeting(link);
	if (!fine)
		fail_because(link, "out of memory");
}

static void
connected(struct link *link)
{
	int error = 0;
	socklen_t len = sizeof error;

	if (link->stream.tls != NULL) {
		shake_hands(link);
		return;
	}
	if (getsockopt(link->stream.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error != 0) {
		next_or_fail(link, strerror(error));
		return;
	}
	if (link->hub->tls.context == NULL) {
		begin_greeting(link);
		return;
	}
	start_timer(link, link->hub->timeout_ms);
	if (idem_redis_stream_secure(&link->stream, &link->hub->tls, link->address.host) != IDEM_OK)
		fail_because(link, "out of memory");
	else
		shake_hands(link);
}

static int
begin_connect(struct link *link, const struct sockaddr *address, socklen_t len)
{
	int rc = idem_redis_stream_connect(&link->stream, address, len);

	if (rc != IDEM_OK)
		return rc;
	link->watch.fd = link->stream.fd;
	link->readiness = 0;
	if (want(link, IDEM_WRITABLE))
		return IDEM_OK;
	idem_redis_stream_close(&link->stream);
	errno = ENOMEM;
	return IDEM_E_SYSTEM;
}

static void
connect_next(struct link *link)
{
	uint64_t limit_ms = link->hub->timeout_ms < CONNECT_MS ? link->hub->timeout_ms : CONNECT_MS;

	link->state = LINK_CONNECTING;
	start_timer(link, limit_ms);
	while (link->next != NULL) {
		struct addrinfo *found = link->next;

		link->next = found->ai_next;
		if (begin_connect(link, found->ai_addr, found->ai_addrlen) == IDEM_OK)
			return;
	}
	fail_because(link, strerror(errno));
}

static void
connect_path(struct link *link)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	link->state = LINK_CONNECTING;
	start_timer(link, link->hub->timeout_ms);
	/* The URI was refused where the path does not fit; what is behind it is zero already. */
	memcpy(address.sun_path, link->address.host,
	       strnlen(link->address.host, sizeof address.sun_path - 1));
	if (begin_connect(link, (const struct sockaddr *)&address, sizeof address) != IDEM_OK)
		fail_because(link, strerror(errno));
}

static void
resolved(void *data, struct addrinfo *found, const char *error)
{
	struct link *link = data;
	char why[WHY_MAX];

	link->resolution = NULL;
	link->found = link->next = found;
	if (error == NULL) {
		connect_next(link);
		return;
	}
	(void)snprintf(why, sizeof why, "its name cannot be resolved: %s", error);
	fail_because(link, why);
}

static void
attempt(struct link *link)
{
	struct addrinfo *found;

	if (link->address.port == 0) {
		connect_path(link);
		return;
	}
	link->state = LINK_RESOLVING;
	start_timer(link, link->hub->timeout_ms);
	link->resolution = idem_redis_resolve(link->hub->loop, &link->address, resolved, link, &found);
	if (link->resolution != NULL)
		return;
	link->found = link->next = found;
	if (found != NULL)
		connect_next(link);
	else
		fail_because(link, "out of memory");
}

/* ---- events ---- */

static void
is_ready(struct idem_fd *watch, unsigned readiness)
{
	struct link *link = (struct link *)(void *)((char *)watch - offsetof(struct link, watch));

	if (link->state == LINK_CONNECTING)
		connected(link);
	else if ((!(readiness & IDEM_WRITABLE) || write_out(link)) && readiness & IDEM_READABLE)
		read_in(link);
}

static void
ping(struct link *link)
{
	static const struct idem_bytes word = {"PING", 4};

	if (now_of(link) - link->heard_ms > PING_MS + link->hub->timeout_ms) {
		fail_because(link, "it does not answer");
		return;
	}
	start_timer(link, PING_MS);
	if (idem_redis_link_send(link, NULL, 1, &word) != IDEM_OK)
		fail_because(link, "out of memory");
}

static void
time_is_over(struct idem_timer *timer)
{
	struct link *link = (struct link *)(void *)((char *)timer - offsetof(struct link, timer));

	switch (link->state) {
	case LINK_IDLE:
		break;
	case LINK_WAITING:
		attempt(link);
		break;
	case LINK_RESOLVING:
		fail_because(link, "its name was not resolved in time");
		break;
	case LINK_CONNECTING:
		if (link->stream.tls == NULL)
			next_or_fail(link, "no connection in time");
		else
			fail_because(link, "no TLS in time");
		break;
	case LINK_UP:
		if (link->listens) {
			ping(link);
			break;
		}
		/* fall through */
	case LINK_GREETING:
		fail_because(link, "no answer in time");
		break;
	}
}

/* ---- life ---- */

void
idem_redis_link_init(struct link *link, struct hub *hub, enum link_kind kind, const struct link_user *user,
                     void *user_data)
{
	*link = (struct link){.hub = hub, .kind = kind, .user = user, .user_data = user_data};
	link->timer.fire = time_is_over;
	link->timer.background = true;
	link->watch.ready = is_ready;
	link->stream.fd = -1;
	link->last = &link->first;
}

void
idem_redis_link_open(struct link *link, const struct address *address)
{
	link->address = *address;
	link->tried = false;
	link->state = LINK_WAITING;
	start_timer(link, 0); /* from the loop: nobody is called from inside this */
}

void
idem_redis_link_close(struct link *link)
{
	struct command *command;

	link->life++;
	stop_timer(link);
	drop_socket(link);
	drop_search(link);
	link->state = LINK_IDLE;
	while ((command = take_command(link)) != NULL)
		command->replied(command, NULL);
}
