/*
 * Watches.  A connection of its own listens, from the first watch on; all cells share one channel, and only
 * the ends of those that somebody waits for are told on it.
 *
 * While nobody listens yet, or nobody can (behind a pooler, which hands connections out for one transaction),
 * the cells that somebody was told to be locked are looked at now and then instead, all in one statement.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define LOOK_MS 250
/* A listener says something so often, that it knows whether it is still connected. */
#define PING_MS 5000
#define LOOKED_MAX 1024

/* A cell that is watched. */
struct ear {
	struct ear *next;
	struct idem_id id;
	struct idem_watch *watches;
	struct idem_tag tag; /* of the lock that somebody was told of; zero: none */
};

/* ---- ears ---- */

static struct ear **
place_of(struct hints *hints, const struct idem_id *id)
{
	struct ear **place = &hints->ears[id->b[IDEM_ID_LEN - 1] % EAR_BUCKETS];

	while (*place != NULL && memcmp((*place)->id.b, id->b, IDEM_ID_LEN) != 0)
		place = &(*place)->next;
	return place;
}

/* Those that are added meanwhile are not called; any may be taken away. */
static void
hint(struct hints *hints, struct ear *ear)
{
	struct idem_watch *watch = ear->watches;

	ear->tag = (struct idem_tag){{0}};
	while (watch != NULL) {
		hints->cursor = watch->next;
		watch->changed(watch);
		watch = hints->cursor;
	}
	hints->cursor = NULL;
}

/* The ears at hand, for whoever calls them one by one: each may go meanwhile. */
static size_t
collect(struct hints *hints)
{
	size_t count = 0;

	if (hints->looked_at == NULL)
		hints->looked_at = calloc(LOOKED_MAX, sizeof(struct ear *));
	for (size_t i = 0; i < EAR_BUCKETS && hints->looked_at != NULL; i++)
		for (struct ear *ear = hints->ears[i]; ear != NULL && count < LOOKED_MAX; ear = ear->next)
			if (!idem_tag_is_zero(&ear->tag))
				hints->looked_at[count++] = ear;
	hints->looked_count = count;
	return count;
}

static void
forget(struct hints *hints, const struct ear *ear)
{
	for (size_t i = 0; i < hints->looked_count; i++)
		if (hints->looked_at[i] == ear)
			hints->looked_at[i] = NULL;
}

/* ---- time ---- */

static void
start_timer(struct hints *hints)
{
	struct idem_loop *loop = hints->store->hub.loop;

	if (!hints->timer.armed && (hints->count > 0 || hints->listening))
		loop->ops->timer_start(loop, &hints->timer, hints->listening ? PING_MS : LOOK_MS);
}

static void
restart_timer(struct hints *hints)
{
	struct idem_loop *loop = hints->store->hub.loop;

	loop->ops->timer_stop(loop, &hints->timer);
	start_timer(hints);
}

/* ---- looking ---- */

/* The ones that are still locked by whom they were, by number. */
static void
keep_locked(struct hints *hints, const PGresult *result)
{
	uint8_t owner[IDEM_TAG_OWNER_LEN];
	int32_t number;

	for (int row = 0; row < PQntuples(result); row++) {
		struct ear *ear;

		if (!idem_postgres_get_int4(result, row, 0, &number) || number < 1 ||
		    (size_t)number > hints->looked_count ||
		    !idem_postgres_get_bytes(result, row, 1, owner, sizeof owner))
			continue;
		ear = hints->looked_at[number - 1];
		if (ear != NULL && memcmp(ear->tag.b, owner, sizeof owner) == 0)
			hints->looked_at[number - 1] = NULL;
	}
}

static void
hint_collected(struct hints *hints)
{
	for (size_t i = 0; i < hints->looked_count; i++)
		if (hints->looked_at[i] != NULL)
			hint(hints, hints->looked_at[i]);
	hints->looked_count = 0;
}

static void
looked(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	struct hints *hints = &((struct batch *)link->user_data)->store->hints;

	(void)statement;
	hints->looking = false;
	if (ending == ENDED_DONE) {
		keep_locked(hints, result);
		hint_collected(hints);
	}
	hints->looked_count = 0;
}

void
idem_postgres_hints_go(struct hints *hints, struct batch *batch)
{
	struct column columns[2] = {{0}};
	const Oid types[2] = {OID_BYTEA_ARRAY, OID_BYTEA_ARRAY};
	const char *values[2];
	int lengths[2];
	const struct parameters parameters = {2, types, values, lengths};

	if (!hints->due || hints->looking)
		return;
	hints->due = false;
	if (collect(hints) == 0)
		return;
	for (size_t i = 0; i < 2; i++)
		idem_postgres_column_begin(&columns[i], OID_BYTEA);
	for (size_t i = 0; i < hints->looked_count; i++) {
		const struct ear *ear = hints->looked_at[i];

		idem_postgres_column_put(&columns[0], ear->id.b, IDEM_ID_LEN / 2);
		idem_postgres_column_put(&columns[1], ear->id.b + IDEM_ID_LEN / 2, IDEM_ID_LEN / 2);
	}
	for (size_t i = 0; i < 2; i++) {
		values[i] = (const char *)columns[i].data;
		lengths[i] = (int)columns[i].len;
	}
	hints->look.ended = looked;
	if (!columns[0].failed && !columns[1].failed)
		hints->looking =
			idem_postgres_link_send(&batch->link, &hints->look, "SELECT * FROM %s.peek($1,$2)",
		                                &parameters) == IDEM_OK;
	for (size_t i = 0; i < 2; i++)
		idem_postgres_column_end(&columns[i], false);
}

static void
look_once(struct hints *hints)
{
	struct postgres_store *store = hints->store;

	hints->due = true;
	for (size_t i = 0; i < store->hub.uri.connections && hints->due; i++)
		if (idem_postgres_link_is_free(&store->batches[i].link))
			idem_postgres_hints_go(hints, &store->batches[i]);
}

/* ---- listening ---- */

static void
listens(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	struct hints *hints = link->user_data;
	char why[WHY_MAX];

	(void)statement;
	if (ending == ENDED_REFUSED) {
		idem_postgres_explain(link->hub, result, why, sizeof why);
		idem_postgres_link_break(link, why);
	}
	if (ending != ENDED_DONE)
		return;
	hints->listening = true;
	idem_postgres_recovered(link->hub, TROUBLE_HINTS, "%s: duplicates that wait are woken at once again",
	                        link->server);
	restart_timer(hints);
	look_once(hints); /* what was told before was told to nobody */
}

static void
pinged(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	(void)statement;
	(void)link;
	(void)ending;
	(void)result; /* that it came is enough */
}

static void
is_up(struct link *link)
{
	struct hints *hints = link->user_data;

	if (link->pooled) {
		hints->pooled = true;
		idem_postgres_report(
			link->hub, TROUBLE_HINTS,
			"%s: a pooler stands between, and nobody can LISTEN: duplicates that wait are "
			"woken %d ms later; connect to the server itself if that matters",
			link->server, LOOK_MS);
		idem_postgres_link_close(link);
		return;
	}
	hints->statement.ended = listens;
	/* One that is not sent breaks the link. */
	(void)(idem_postgres_link_send(link, &hints->statement, "LISTEN %s", NULL) == IDEM_OK);
}

static void
is_down(struct link *link, const char *why)
{
	struct hints *hints = link->user_data;

	hints->listening = false;
	restart_timer(hints);
	if (link->tried)
		idem_postgres_report(link->hub, TROUBLE_HINTS,
		                     "nobody can LISTEN, and duplicates that wait are woken later: %s", why);
}

static int
digit_of(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *found = c != '\0' ? strchr(digits, c) : NULL;

	return found != NULL ? (int)(found - digits) : -1;
}

static bool
read_id(const char *text, struct idem_id *ret)
{
	if (strlen(text) != (size_t)2 * IDEM_ID_LEN)
		return false;
	for (size_t i = 0; i < IDEM_ID_LEN; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret->b[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static void
notified(struct link *link, const PGnotify *notice)
{
	struct hints *hints = link->user_data;
	struct idem_id id;
	struct ear *ear;

	if (!read_id(notice->extra, &id))
		return; /* somebody else's */
	ear = *place_of(hints, &id);
	if (ear != NULL)
		hint(hints, ear);
}

static const struct link_user hints_user = {.up = is_up, .down = is_down, .notified = notified};

static void
ping(struct hints *hints)
{
	if (!idem_postgres_link_is_free(&hints->link))
		return;
	hints->statement.ended = pinged;
	(void)(idem_postgres_link_send(&hints->link, &hints->statement, "SELECT 1", NULL) == IDEM_OK);
}

static void
time_has_come(struct idem_timer *timer)
{
	struct hints *hints = (struct hints *)(void *)((char *)timer - offsetof(struct hints, timer));

	if (hints->listening)
		ping(hints);
	else
		look_once(hints);
	start_timer(hints);
}

/* ---- for the store ---- */

void
idem_postgres_hints_init(struct hints *hints, struct postgres_store *store)
{
	hints->store = store;
	hints->timer.fire = time_has_come;
	hints->timer.background = true;
	idem_postgres_link_init(&hints->link, &store->hub, &hints_user, hints);
}

void
idem_postgres_hints_close(struct hints *hints)
{
	struct idem_loop *loop = hints->store->hub.loop;
	struct ear *ear;

	loop->ops->timer_stop(loop, &hints->timer);
	idem_postgres_link_close(&hints->link);
	for (size_t i = 0; i < EAR_BUCKETS; i++)
		while ((ear = hints->ears[i]) != NULL) {
			hints->ears[i] = ear->next;
			free(ear);
		}
	free(hints->looked_at);
}

bool
idem_postgres_hints_wanted(struct hints *hints, const struct idem_id *id)
{
	return hints->count > 0 && *place_of(hints, id) != NULL;
}

void
idem_postgres_hints_promise(struct hints *hints, const struct idem_id *id, const struct idem_tag *tag)
{
	struct ear *ear = hints->count > 0 ? *place_of(hints, id) : NULL;

	if (ear != NULL)
		ear->tag = *tag;
}

int
idem_postgres_hints_watch(struct hints *hints, struct idem_watch *watch)
{
	struct ear **place = place_of(hints, &watch->id), *ear = *place;

	if (ear == NULL) {
		ear = calloc(1, sizeof *ear);
		if (ear == NULL)
			return IDEM_E_NOMEM;
		ear->id = watch->id;
		*place = ear;
		hints->count++;
	}
	watch->store_data = ear;
	watch->next = ear->watches;
	watch->link = &ear->watches;
	if (watch->next != NULL)
		watch->next->link = &watch->next;
	ear->watches = watch;
	if (hints->link.state == LINK_CLOSED && !hints->pooled)
		idem_postgres_link_open(&hints->link);
	start_timer(hints);
	return IDEM_OK;
}

void
idem_postgres_hints_unwatch(struct hints *hints, struct idem_watch *watch)
{
	struct ear *ear = watch->store_data, **place = place_of(hints, &watch->id);

	if (hints->cursor == watch)
		hints->cursor = watch->next;
	*watch->link = watch->next;
	if (watch->next != NULL)
		watch->next->link = watch->link;
	if (ear->watches != NULL)
		return;
	forget(hints, ear);
	*place = ear->next;
	hints->count--;
	free(ear);
}
