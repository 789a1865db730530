/*
 * Watches: a subscription to a channel for each cell that is watched, on a connection of its own, which is
 * made when the first watch is.
 *
 * A SUBSCRIBE takes effect some time after it was sent.  Whoever asked for the cell in between may have
 * missed its end, and gets a hint when it has taken effect; so do all when the connection was lost.
 */
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* A cell that is watched. */
struct ear {
	struct ear *next;
	struct idem_id id;
	struct idem_watch *watches;
	uint64_t number; /* of its SUBSCRIBE; 0: not sent on this connection */
	bool owed;       /* a hint, when the subscription is in effect */
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

static bool
in_effect(const struct hints *hints, const struct ear *ear)
{
	return ear->number > 0 && ear->number <= hints->acknowledged;
}

/* Those that are added meanwhile are not called; any may be taken away. */
static void
hint(struct hints *hints, struct ear *ear)
{
	struct idem_watch *watch = ear->watches;

	ear->owed = false;
	while (watch != NULL) {
		hints->cursor = watch->next;
		watch->changed(watch);
		watch = hints->cursor;
	}
	hints->cursor = NULL;
}

/* ---- the connection ---- */

static int
send_word(struct hints *hints, const char *word, const struct ear *ear)
{
	char name[NAME_MAX_LEN + 1];
	size_t len = idem_redis_cell_name(hints->store->hub.uri.prefix, &ear->id, name);
	const struct idem_bytes words[] = {{word, strlen(word)}, {name, len}};

	return idem_redis_link_listen(&hints->link, 2, words);
}

static void
subscribe(struct hints *hints, struct ear *ear)
{
	if (hints->link.state != LINK_UP)
		return; /* when it is */
	if (send_word(hints, "SUBSCRIBE", ear) == IDEM_OK)
		ear->number = ++hints->subscribed;
	else
		idem_redis_link_break(&hints->link, "out of memory"); /* and all begin anew */
}

static void
for_each(struct hints *hints, void (*act)(struct hints *hints, struct ear *ear))
{
	for (size_t i = 0; i < EAR_BUCKETS; i++)
		for (struct ear *ear = hints->ears[i]; ear != NULL; ear = ear->next)
			act(hints, ear);
}

static void
is_up(struct link *link)
{
	struct hints *hints = link->user_data;

	hints->subscribed = hints->acknowledged = 0;
	idem_redis_recovered(link->hub, TROUBLE_HINTS, "duplicates that wait are woken again");
	for_each(hints, subscribe);
}

static void
lose(struct hints *hints, struct ear *ear)
{
	(void)hints;
	ear->number = 0;
	ear->owed = true;
}

static void
is_down(struct link *link, const char *why)
{
	struct hints *hints = link->user_data;

	if (link->tried)
		idem_redis_report(link->hub, TROUBLE_HINTS,
		                  "duplicates that wait ask once a second and are not woken: %s", why);
	for_each(hints, lose);
	idem_redis_hints_move(hints);
}

static int
digit_of(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *found = c != '\0' ? strchr(digits, c) : NULL;

	return found != NULL ? (int)(found - digits) : -1;
}

/* The id in a channel's name. */
static bool
read_name(const struct hints *hints, const char *name, size_t len, struct idem_id *ret)
{
	size_t prefix = strlen(hints->store->hub.uri.prefix), at = prefix;

	if (len != prefix + 2 * IDEM_ID_LEN + 1)
		return false;
	for (size_t i = 0; i < IDEM_ID_LEN; i++, at += 2) {
		int high, low;

		at += i == IDEM_ID_LEN / 2; /* the colon */
		high = digit_of(name[at]);
		low = digit_of(name[at + 1]);
		if (high < 0 || low < 0)
			return false;
		ret->b[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* They take effect in the order in which they were sent; this one may be of an ear that is no more. */
static void
acknowledged(struct hints *hints, struct ear *ear)
{
	hints->acknowledged++;
	if (ear != NULL && ear->owed && in_effect(hints, ear))
		hint(hints, ear);
}

static void
pushed(struct link *link, const redisReply *reply)
{
	struct hints *hints = link->user_data;
	struct ear *ear;
	struct idem_id id;

	if (reply->type == REDIS_REPLY_ERROR) {
		idem_redis_report(
			link->hub, TROUBLE_HINTS,
			"duplicates that wait ask once a second and are not woken: %s: grant the user &%s* "
			"+subscribe +unsubscribe +ping",
			reply->str, link->hub->uri.prefix);
		return;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
	    reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_STRING ||
	    !read_name(hints, reply->element[1]->str, reply->element[1]->len, &id))
		return; /* an answer to PING */
	ear = *place_of(hints, &id);
	if (strcmp(reply->element[0]->str, "subscribe") == 0)
		acknowledged(hints, ear);
	else if (strcmp(reply->element[0]->str, "message") == 0 && ear != NULL)
		hint(hints, ear);
}

static const struct link_user hints_user = {.up = is_up, .down = is_down, .pushed = pushed};

/* ---- for the store ---- */

void
idem_redis_hints_init(struct hints *hints, struct redis_store *store)
{
	hints->store = store;
	idem_redis_link_init(&hints->link, &store->hub, LINK_FOR_HINTS, &hints_user, hints);
}

void
idem_redis_hints_close(struct hints *hints)
{
	struct ear *ear;

	idem_redis_link_close(&hints->link);
	for (size_t i = 0; i < EAR_BUCKETS; i++)
		while ((ear = hints->ears[i]) != NULL) {
			hints->ears[i] = ear->next;
			free(ear);
		}
}

void
idem_redis_hints_move(struct hints *hints)
{
	const struct address *address = idem_redis_route_for_hints(hints->store);

	if (address == NULL || hints->count == 0)
		return;
	if (hints->link.state != LINK_IDLE) {
		if (idem_redis_address_same(&hints->link.address, address) ||
		    (hints->store->hub.uri.plan == PLAN_CLUSTER && hints->link.state == LINK_UP))
			return;
		idem_redis_link_close(&hints->link);
		for_each(hints, lose);
	}
	idem_redis_link_open(&hints->link, address);
}

void
idem_redis_hints_promise(struct hints *hints, const struct idem_id *id)
{
	struct ear *ear = hints->count > 0 ? *place_of(hints, id) : NULL;

	if (ear != NULL && !in_effect(hints, ear))
		ear->owed = true;
}

int
idem_redis_hints_watch(struct hints *hints, struct idem_watch *watch)
{
	struct ear **place = place_of(hints, &watch->id), *ear = *place;

	if (ear == NULL) {
		ear = calloc(1, sizeof *ear);
		if (ear == NULL)
			return IDEM_E_NOMEM;
		ear->id = watch->id;
		*place = ear;
		hints->count++;
		subscribe(hints, ear);
	}
	watch->store_data = ear;
	watch->next = ear->watches;
	watch->link = &ear->watches;
	if (watch->next != NULL)
		watch->next->link = &watch->next;
	ear->watches = watch;
	idem_redis_hints_move(hints);
	return IDEM_OK;
}

void
idem_redis_hints_unwatch(struct hints *hints, struct idem_watch *watch)
{
	struct ear *ear = watch->store_data, **place = place_of(hints, &watch->id);

	if (hints->cursor == watch)
		hints->cursor = watch->next;
	*watch->link = watch->next;
	if (watch->next != NULL)
		watch->next->link = watch->link;
	if (ear->watches != NULL)
		return;
	/* One that is not sent is a hint too many, later. */
	if (ear->number > 0)
		(void)(send_word(hints, "UNSUBSCRIBE", ear) == IDEM_OK);
	*place = ear->next;
	hints->count--;
	free(ear);
}
