/*
 * One compare-and-swap on its way: out, back, and once more where the server says so.
 *
 * With wait_replicas a WAIT follows what was sent in one turn, and whatever one must be able to count on is
 * held until it is answered: writes, and what was found that others were or will be told.  What is found
 * again after a lost answer needs it too, so it is not only for writes.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rules.h"
#include "layout.h"

/* A call that is sent to and fro so often gives up: the cluster does not know where the key is. */
#define AGAIN_MAX 16

static int dispatch(struct call *call);

/* Its owner has had no answer for so long that it is not to be carried out any more. */
static bool
is_over(const struct call *call)
{
	struct idem_loop *loop = call->store->hub.loop;

	return loop->ops->now_ms(loop) > call->until_ms;
}

/* ---- lists ---- */

static void
enlist(struct call *call)
{
	struct redis_store *store = call->store;

	call->next = store->calls;
	call->link = &store->calls;
	if (call->next != NULL)
		call->next->link = &call->next;
	store->calls = call;
}

static void
delist(struct call *call)
{
	*call->link = call->next;
	if (call->next != NULL)
		call->next->link = call->link;
}

static void
wait_for_link(struct call *call)
{
	struct redis_store *store = call->store;

	call->waiting = true;
	call->next_waiting = NULL;
	*store->last_waiting = call;
	store->last_waiting = &call->next_waiting;
}

static struct call *
take_waiting(struct redis_store *store)
{
	struct call *call = store->waiting;

	if (call == NULL)
		return NULL;
	store->waiting = call->next_waiting;
	if (store->waiting == NULL)
		store->last_waiting = &store->waiting;
	call->waiting = false;
	return call;
}

static void
stop_waiting(struct call *call)
{
	struct redis_store *store = call->store;
	struct call **place = &store->waiting;

	while (*place != call)
		place = &(*place)->next_waiting;
	*place = call->next_waiting;
	if (call->next_waiting == NULL)
		store->last_waiting = place;
	call->waiting = false;
}

/* ---- the end ---- */

static void
free_call(struct call *call)
{
	delist(call);
	free(call->payload);
	free(call);
}

/* It may be that its WAIT is still to come: then that frees it. */
static void
finish(struct call *call, int status)
{
	struct idem_io *io = call->io;

	call->end = CALL_ANSWERED;
	call->io = NULL;
	if (io != NULL) {
		io->status = status;
		io->applied = io->applied && status == IDEM_OK;
		io->store_data = status == IDEM_OK ? call->payload : NULL;
		if (status == IDEM_OK)
			call->payload = NULL;
		else
			io->seen = (struct idem_cell){0};
	}
	if (!call->attached)
		free_call(call);
	if (io != NULL)
		io->done(io);
}

/* What is left to do once nothing more is awaited. */
static void
conclude(struct call *call, bool replicated)
{
	struct idem_io *io = call->io;
	int rc;

	switch (call->end) {
	case CALL_UNSENT: /* not reached */
	case CALL_ANSWERED:
		free_call(call);
		break;
	case CALL_HELD:
		if (replicated || io == NULL)
			finish(call, IDEM_OK);
		else
			finish(call, io->applied ? IDEM_E_INDOUBT : IDEM_E_UNAVAILABLE);
		break;
	case CALL_AGAIN:
		rc = call->io != NULL ? dispatch(call) : IDEM_E_UNAVAILABLE;
		if (rc != IDEM_PENDING)
			finish(call, rc);
		break;
	}
}

/* The call's own reply has come. */
static void
settle(struct call *call, enum call_end end)
{
	call->end = end;
	if (!call->attached)
		conclude(call, true);
}

/* ---- replies ---- */

static bool
begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* What the script needs, and we. */
#define RIGHTS                                                                                               \
	"+eval +evalsha +exists +getrange +set +del +pttl +time +publish "                                   \
	"+subscribe +unsubscribe +ping +wait +info +select +asking +cluster"

/* Of the script, or of what it does, which servers of different versions say in different words. */
static bool
is_of_rights(const char *error)
{
	return begins(error, "NOPERM") || strstr(error, "user executing the script can't") != NULL ||
	       strstr(error, "ACL failure in script") != NULL;
}

static void
report_server(struct call *call, enum trouble kind, const char *error)
{
	char address[HOST_MAX + 16];

	idem_redis_address_text(&call->node->links[0].address, address, sizeof address);
	if (kind == TROUBLE_FULL)
		idem_redis_report(
			&call->store->hub, kind,
			"%s: new keys are refused: the server is at its maxmemory: raise it, or keep keys "
			"for a shorter time",
			address);
	else if (is_of_rights(error))
		idem_redis_report(&call->store->hub, kind, "%s: %s: grant the user ~%s* &%s* " RIGHTS,
		                  address, error, call->store->hub.uri.prefix, call->store->hub.uri.prefix);
	else
		idem_redis_report(&call->store->hub, kind, "%s: %s", address, error);
}

static const char damaged[] = "is a damaged cell: look at it, and delete it";

static void
report_cell(struct call *call, const char *what)
{
	char address[HOST_MAX + 16];

	idem_redis_address_text(&call->node->links[0].address, address, sizeof address);
	idem_redis_report(&call->store->hub, TROUBLE_CELL, "%s: the key %s %s", address, call->name, what);
}

/* An error means that nothing was written: the script has but one write, and looks at nothing after it. */
static void
refused(struct call *call, struct link *link, const char *error)
{
	if (begins(error, "NOSCRIPT") && !call->by_text) {
		call->by_text = true;
		settle(call, CALL_AGAIN);
	} else if (idem_redis_route_redirect(call->store, call, error)) {
		settle(call, CALL_AGAIN);
	} else if (begins(error, "OOM")) {
		report_server(call, TROUBLE_FULL, error);
		finish(call, IDEM_E_FULL);
	} else if (begins(error, "WRONGTYPE")) {
		report_cell(call, "is no cell, but of another type: give the store a prefix of its own");
		finish(call, IDEM_E_CORRUPT);
	} else if (begins(error, "READONLY")) {
		finish(call, IDEM_E_UNAVAILABLE);
		idem_redis_link_break(link, "it is a replica now: give the address of its master");
	} else {
		report_server(call, TROUBLE_REFUSED, error);
		finish(call, IDEM_E_UNAVAILABLE);
	}
}

static bool
is_text(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_STRING;
}

static int
take_payload(struct call *call, const redisReply *reply)
{
	struct idem_io *io = call->io;

	if (!idem_rule_may_see_payload(io->seen.state, &io->seen.fingerprint, &io->write.fingerprint,
	                               io->want_payload))
		return IDEM_OK;
	if (reply->elements < 5 || !is_text(reply->element[4]))
		return IDEM_E_CORRUPT;
	call->payload = malloc(reply->element[4]->len + 1);
	if (call->payload == NULL)
		return IDEM_E_NOMEM;
	memcpy(call->payload, reply->element[4]->str, reply->element[4]->len);
	io->seen.payload = (struct idem_bytes){call->payload, reply->element[4]->len};
	return IDEM_OK;
}

static int
take_cell(struct call *call, const redisReply *reply)
{
	struct idem_io *io = call->io;
	int rc;

	if (reply->elements < 4 || !is_text(reply->element[2]) ||
	    reply->element[3]->type != REDIS_REPLY_INTEGER)
		return IDEM_E_CORRUPT;
	rc = idem_redis_cell_read(reply->element[2]->str, reply->element[2]->len, reply->element[3]->integer,
	                          &io->seen);
	return rc == IDEM_OK ? take_payload(call, reply) : rc;
}

/* What one must be able to count on: others were told of it, or it is one's own. */
static bool
must_last(const struct idem_io *io)
{
	return io->applied || io->seen.state == IDEM_STORED || io->seen.state == IDEM_DOUBT ||
	       (io->seen.state == IDEM_LOCKED && idem_tag_same_owner(&io->seen.tag, &io->write.tag));
}

/* It is written all the same: those who wait find out by themselves. */
static void
report_untold(struct call *call, const char *error)
{
	char address[HOST_MAX + 16];

	idem_redis_address_text(&call->node->links[0].address, address, sizeof address);
	idem_redis_report(&call->store->hub, TROUBLE_HINTS,
	                  "%s: duplicates that wait ask once a second and are not woken: %s", address, error);
}

static void
applied(struct call *call, const redisReply *reply)
{
	call->io->applied = true;
	idem_redis_recovered(&call->store->hub, TROUBLE_FULL, "new keys are taken again");
	idem_redis_recovered(&call->store->hub, TROUBLE_REFUSED, "commands are carried out again");
	if (reply->elements > 2 && is_text(reply->element[2]))
		report_untold(call, reply->element[2]->str);
	settle(call, CALL_HELD);
}

static void
conflict(struct call *call, const redisReply *reply)
{
	struct idem_io *io = call->io;
	int rc = IDEM_OK;

	if (reply->elements > 2)
		rc = take_cell(call, reply);
	if (rc != IDEM_OK) {
		if (rc == IDEM_E_CORRUPT)
			report_cell(call, damaged);
		finish(call, rc);
		return;
	}
	if (io->seen.state == IDEM_LOCKED)
		idem_redis_hints_promise(&call->store->hints, &io->id);
	if (must_last(io))
		settle(call, CALL_HELD);
	else
		finish(call, IDEM_OK);
}

/* "idem/", a number, and a space. */
static bool
has_version(const char *text)
{
	size_t digits = begins(text, "idem/") ? strspn(text + 5, "0123456789") : 0;

	return digits > 0 && text[5 + digits] == ' ';
}

static void
foreign(struct call *call, const redisReply *reply)
{
	const char *there = reply->elements > 2 && is_text(reply->element[2]) ? reply->element[2]->str : "";

	if (begins(there, CELL_MAGIC)) {
		report_cell(call, damaged);
		finish(call, IDEM_E_CORRUPT);
	} else if (has_version(there)) {
		report_cell(call, "is a cell of another version of Idem: let all hosts have the same");
		finish(call, IDEM_E_VERSION);
	} else {
		report_cell(call, "is no cell: give the store a prefix of its own");
		finish(call, IDEM_E_CORRUPT);
	}
}

static void
step_done(struct call *call, struct link *link, const redisReply *reply)
{
	bool clock_changed;

	switch (reply->element[1]->integer) {
	case STEP_APPLIED:
		applied(call, reply);
		break;
	case STEP_REFUSED:
		conflict(call, reply);
		break;
	case STEP_FOREIGN:
		foreign(call, reply);
		break;
	default:
		clock_changed = !is_over(call); /* too late, and yet in time for us */
		finish(call, IDEM_E_UNAVAILABLE);
		if (clock_changed)
			idem_redis_link_break(link, "its clock has changed");
		break;
	}
}

static bool
is_ours(const struct call *call, const redisReply *reply)
{
	char serial[24];

	(void)snprintf(serial, sizeof serial, "%" PRIu64, call->serial);
	return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 && is_text(reply->element[0]) &&
	       strcmp(reply->element[0]->str, serial) == 0 && reply->element[1]->type == REDIS_REPLY_INTEGER;
}

static void
replied(struct command *command, const redisReply *reply)
{
	struct call *call = (struct call *)(void *)((char *)command - offsetof(struct call, command));
	struct link *link = call->sent_on;

	if (call->io == NULL) {
		settle(call, CALL_ANSWERED); /* nobody cares any more */
	} else if (reply == NULL) {
		finish(call, IDEM_E_INDOUBT);
	} else if (reply->type == REDIS_REPLY_ERROR) {
		refused(call, link, reply->str);
	} else if (is_ours(call, reply)) {
		step_done(call, link, reply);
	} else {
		finish(call, IDEM_E_INDOUBT);
		idem_redis_link_break(link, "its replies are not to our commands");
	}
}

/* ---- replicas ---- */

struct await {
	struct command command;
	struct redis_store *store;
	struct call *calls;
};

static void
conclude_all(struct call *calls, bool replicated)
{
	struct call *next;

	for (; calls != NULL; calls = next) {
		next = calls->next_unwaited;
		calls->attached = false;
		conclude(calls, replicated);
	}
}

static void
awaited(struct command *command, const redisReply *reply)
{
	struct await *await = (struct await *)(void *)((char *)command - offsetof(struct await, command));
	struct hub *hub = &await->store->hub;
	struct call *calls = await->calls;
	bool enough = reply != NULL && reply->type == REDIS_REPLY_INTEGER &&
	              reply->integer >= (long long)hub->uri.wait_replicas;

	free(await);
	if (enough)
		idem_redis_recovered(hub, TROUBLE_REPLICAS, "enough replicas have what is written");
	else if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
		idem_redis_report(
			hub, TROUBLE_REPLICAS,
			"%lld replicas have what was written, and wait_replicas wants %u: keys are refused",
			reply->integer, hub->uri.wait_replicas);
	else if (reply != NULL)
		idem_redis_report(hub, TROUBLE_RIGHTS, "WAIT: %s", reply->str != NULL ? reply->str : "?");
	conclude_all(calls, enough);
}

bool
idem_redis_calls_before_write(struct node *node, struct link *link)
{
	struct call **unwaited = &node->unwaited[idem_redis_node_place(node, link)];
	const struct redis_uri *uri = &node->store->hub.uri;
	char count[16], ms[24];
	struct idem_bytes words[] = {{"WAIT", 4}, {count, 0}, {ms, 0}};
	struct await *await;

	if (*unwaited == NULL)
		return true;
	words[1].len = (size_t)snprintf(count, sizeof count, "%u", uri->wait_replicas);
	words[2].len = (size_t)snprintf(ms, sizeof ms, "%" PRIu64, uri->wait_ms);
	await = calloc(1, sizeof *await);
	if (await == NULL)
		return false; /* there may be no other turn, and they are not to be held for ever */
	await->store = node->store;
	await->command.replied = awaited;
	await->calls = *unwaited;
	if (idem_redis_link_send(link, &await->command, 3, words) != IDEM_OK) {
		free(await);
		return false;
	}
	*unwaited = NULL;
	return true;
}

void
idem_redis_calls_link_down(struct node *node, struct link *link)
{
	struct call **unwaited = &node->unwaited[idem_redis_node_place(node, link)];
	struct call *calls = *unwaited;

	*unwaited = NULL;
	conclude_all(calls, false);
}

static void
attach(struct call *call, struct node *node, struct link *link)
{
	struct call **unwaited = &node->unwaited[idem_redis_node_place(node, link)];

	call->attached = true;
	call->next_unwaited = *unwaited;
	*unwaited = call;
}

/* ---- out ---- */

static struct idem_bytes
text_of(const char *text)
{
	return (struct idem_bytes){text, strlen(text)};
}

/* A claim that comes when its owner has given up would lock the key for nobody. */
static bool
has_an_end(const struct idem_io *io)
{
	return io->write.state == IDEM_LOCKED && !idem_tag_same_owner(&io->write.tag, &io->expect);
}

struct words {
	char serial[24], retain[24], until[24];
	char head[HEAD_LEN + 1], fingerprint[2 * IDEM_FINGERPRINT_LEN + 1], expect[TAG_TEXT_LEN + 1];
	struct idem_bytes all[12];
};

static void
write_words(const struct call *call, const struct link *link, struct words *words)
{
	const struct idem_io *io = call->io;
	bool makes = idem_tag_is_zero(&io->expect);
	const struct script *script = &call->store->scripts[makes ? SCRIPT_MAKE : SCRIPT_CHANGE];

	*words = (struct words){0};
	(void)snprintf(words->serial, sizeof words->serial, "%" PRIu64, call->serial);
	if (!makes)
		idem_redis_hex(io->expect.b, IDEM_TAG_LEN, words->expect);
	if (io->write.state != IDEM_ABSENT)
		idem_redis_cell_write(&io->write, words->head);
	(void)snprintf(words->retain, sizeof words->retain, "%" PRIu64,
	               idem_redis_retain_ms(io->write.retain_ms));
	if (io->want_payload)
		idem_redis_hex(io->write.fingerprint.b, IDEM_FINGERPRINT_LEN, words->fingerprint);
	if (link->clock_known && has_an_end(io))
		(void)snprintf(words->until, sizeof words->until, "%" PRId64,
		               (int64_t)call->until_ms + link->clock_ms);
	words->all[0] = text_of(call->by_text ? "EVAL" : "EVALSHA");
	words->all[1] = text_of(call->by_text ? script->text : script->sha);
	words->all[2] = text_of("1");
	words->all[3] = (struct idem_bytes){call->name, call->name_len};
	words->all[4] = text_of(words->serial);
	words->all[5] = text_of(words->expect);
	words->all[6] = text_of(words->head);
	words->all[7] = text_of(words->retain);
	words->all[8] = io->write.state != IDEM_ABSENT && io->write.payload.len > 0
	                        ? io->write.payload
	                        : (struct idem_bytes){"", 0};
	words->all[9] = text_of(words->fingerprint);
	words->all[10] = text_of(!makes && idem_rule_is_news(&io->write, &io->expect) ? "1" : "");
	words->all[11] = text_of(words->until);
}

static void
ignored(struct command *command, const redisReply *reply)
{
	(void)command;
	(void)reply; /* of ASKING: what follows it fails if it did */
}

static int
send_on(struct call *call, struct node *node, struct link *link)
{
	static const struct idem_bytes asking = {"ASKING", 6};
	struct words words;
	int rc = IDEM_OK;

	write_words(call, link, &words);
	call->command.replied = replied;
	call->asking.replied = ignored;
	if (call->ask != NULL)
		rc = idem_redis_link_send(link, &call->asking, 1, &asking);
	if (rc == IDEM_OK)
		rc = idem_redis_link_send(link, &call->command, sizeof words.all / sizeof *words.all,
		                          words.all);
	if (rc != IDEM_OK)
		return rc;
	call->ask = NULL;
	call->node = node;
	call->sent_on = link;
	call->end = CALL_UNSENT;
	if (call->store->hub.uri.wait_replicas > 0)
		attach(call, node, link);
	return IDEM_OK;
}

static int
dispatch(struct call *call)
{
	bool hope = false;
	struct node *node = call->ask != NULL ? call->ask : idem_redis_route(call->store, call, &hope);
	struct link *link = node != NULL ? idem_redis_node_link(node, &hope) : NULL;
	int rc;

	if (call->again++ > AGAIN_MAX || is_over(call))
		return IDEM_E_UNAVAILABLE;
	if (link != NULL) {
		rc = send_on(call, node, link);
		return rc == IDEM_OK ? IDEM_PENDING : rc;
	}
	if (!hope)
		return IDEM_E_UNAVAILABLE;
	call->again--;
	wait_for_link(call);
	return IDEM_PENDING;
}

/* From the loop, and each of them once. */
static void
look_again(struct idem_timer *timer)
{
	struct redis_store *store =
		(struct redis_store *)(void *)((char *)timer - offsetof(struct redis_store, turn));
	size_t count = 0;
	struct call *call;
	int rc;

	for (call = store->waiting; call != NULL; call = call->next_waiting)
		count++;
	while (count-- > 0 && (call = take_waiting(store)) != NULL) {
		rc = dispatch(call);
		if (rc != IDEM_PENDING)
			finish(call, rc);
	}
}

void
idem_redis_calls_go_on(struct redis_store *store)
{
	store->turn.fire = look_again;
	if (store->waiting != NULL && !store->turn.armed)
		store->hub.loop->ops->timer_start(store->hub.loop, &store->turn, 0);
}

/* ---- life ---- */

int
idem_redis_call_start(struct redis_store *store, struct idem_io *io)
{
	struct call *call;
	int rc;

	if (io->write.payload.len > IDEM_PAYLOAD_MAX)
		return IDEM_E_FULL;
	call = calloc(1, sizeof *call);
	if (call == NULL)
		return IDEM_E_NOMEM;
	call->store = store;
	call->io = io;
	call->serial = ++store->serial;
	call->until_ms = store->hub.loop->ops->now_ms(store->hub.loop) + store->hub.timeout_ms;
	call->name_len = idem_redis_cell_name(store->hub.uri.prefix, &io->id, call->name);
	enlist(call);
	rc = dispatch(call);
	if (rc == IDEM_PENDING)
		io->store_data = call;
	else
		free_call(call);
	return rc;
}

void
idem_redis_call_cancel(struct redis_store *store, struct idem_io *io)
{
	struct call *call = io->store_data;

	(void)store;
	io->store_data = NULL;
	call->io = NULL;
	if (call->waiting) {
		stop_waiting(call);
		free_call(call);
	}
}

void
idem_redis_calls_close(struct redis_store *store)
{
	struct call *call;

	for (call = store->calls; call != NULL; call = call->next)
		call->io = NULL;
	while ((call = take_waiting(store)) != NULL)
		free_call(call);
	store->hub.loop->ops->timer_stop(store->hub.loop, &store->turn);
}
