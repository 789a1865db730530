/* What stands at a cell's key in Redis: as those who run the server see it, and what others may have put
 * there, which is an error that names the key and never an answer. */
#include <hiredis/hiredis.h>

#include "redis_scene.h"

#define HEAD_LEN 176

struct cells {
	struct redis_scene scene;
	redisContext *context;
	struct request request;
	char name[80];
	char *value;
	size_t len;
};

/* ---- what an operator does ---- */

static redisReply *
command(struct cells *cells, const char *format, ...)
{
	redisReply *reply;
	va_list arguments;

	va_start(arguments, format);
	reply = redisvCommand(cells->context, format, arguments);
	va_end(arguments);
	assert_non_null(reply);
	if (reply->type == REDIS_REPLY_ERROR)
		fail_msg("%s", reply->str);
	return reply;
}

static void
put(struct cells *cells, const void *value, size_t len)
{
	freeReplyObject(command(cells, "SET %s %b PX 60000", cells->name, value, len));
}

static void
take(struct cells *cells)
{
	redisReply *reply = command(cells, "GET %s", cells->name);

	assert_int_equal(reply->type, REDIS_REPLY_STRING);
	free(cells->value);
	cells->len = (size_t)reply->len;
	cells->value = malloc(cells->len + 1);
	assert_non_null(cells->value);
	memcpy(cells->value, reply->str, cells->len + 1);
	freeReplyObject(reply);
}

static long long
number(struct cells *cells, const char *word)
{
	redisReply *reply = command(cells, "%s %s", word, cells->name);
	long long value = reply->integer;

	freeReplyObject(reply);
	return value;
}

static void
empty(struct cells *cells)
{
	freeReplyObject(command(cells, "DEL %s", cells->name));
}

/* ---- the cell ---- */

static void
name_key(struct cells *cells, const char *prefix)
{
	size_t len = (size_t)snprintf(cells->name, sizeof cells->name, "%s", prefix);

	for (size_t i = 0; i < IDEM_ID_LEN; i++)
		len += (size_t)snprintf(cells->name + len, sizeof cells->name - len, "%s%02x",
		                        i == IDEM_ID_LEN / 2 ? ":" : "", cells->request.id.b[i]);
}

static struct cells *
cells_make(const char *options, const char *prefix)
{
	struct cells *cells = calloc(1, sizeof *cells);

	assert_non_null(cells);
	scene_make(&cells->scene, NULL);
	scene_open(&cells->scene, options);
	cells->context = redisConnectUnix(cells->scene.world.server.socket);
	assert_true(cells->context != NULL && cells->context->err == 0);
	cells->request = scene_key(&cells->scene);
	name_key(cells, prefix);
	return cells;
}

static void
cells_free(struct cells *cells)
{
	free(cells->value);
	redisFree(cells->context);
	scene_free(&cells->scene);
	free(cells);
}

/* The report about a kind of trouble comes once a minute: each store has its first. */
static void
open_anew(struct cells *cells)
{
	scene_close(&cells->scene);
	cells->scene.world.report[0] = '\0';
	scene_open_uri(&cells->scene, cells->scene.world.uri);
}

static int
ask(struct cells *cells)
{
	struct claim claim;
	int verdict = actor_claim(&cells->scene.actor, &cells->request, &claim);

	claim_free(&claim);
	return verdict;
}

static struct claim
win(struct cells *cells)
{
	struct claim claim;

	assert_int_equal(actor_claim(&cells->scene.actor, &cells->request, &claim), IDEM_EXECUTE);
	return claim;
}

static int
settle(struct cells *cells, const struct claim *claim, enum idem_verb verb)
{
	return actor_settle(&cells->scene.actor, &cells->request, claim, verb,
	                    bytes_of(verb == IDEM_COMPLETE ? "the answer" : ""));
}

static void
assert_reported(const struct cells *cells, const char *text)
{
	const char *report = cells->scene.world.report;

	if (strstr(report, text) == NULL || strstr(report, cells->name) == NULL ||
	    strstr(report, cells->scene.world.server.socket) == NULL)
		fail_msg("it said\n%s, and not of %s: %s", report, cells->name, text);
}

/* ---- as operators see it ---- */

static void
assert_looks_like(struct cells *cells, const char *state, const char *attempt, const char *payload)
{
	char head[HEAD_LEN + 1];

	take(cells);
	assert_int_equal(cells->len, HEAD_LEN + strlen(payload));
	assert_memory_equal(cells->value, "idem/1 ", 7);
	assert_int_equal(strspn(cells->value + 7, "0123456789abcdef"), 32);
	assert_int_equal(cells->value[39], ' ');
	assert_memory_equal(cells->value + 40, state, 6);
	(void)snprintf(head, sizeof head, " %s attempt=%s lease=%015d retain=",
	               "6161616161616161616161616161616161616161616161616161616161616161", attempt,
	               strcmp(state, "locked") == 0 ? LEASE_MS : 0);
	assert_memory_equal(cells->value + 46, head, strlen(head));
	assert_int_equal(cells->value[HEAD_LEN - 1], '\n');
	assert_memory_equal(cells->value + HEAD_LEN, payload, strlen(payload));
}

static void
assert_kept_for(struct cells *cells, long long ms)
{
	long long left = number(cells, "PTTL");

	assert_true(left > ms - 5000 && left <= ms);
}

static void
a_cell_is_a_line_of_text_and_its_payload_and_always_has_an_end(void **state)
{
	struct cells *cells = cells_make("", "idem:");
	struct claim claim = win(cells);

	(void)state;
	assert_looks_like(cells, "locked", "0000000001", "");
	assert_kept_for(cells, LEASE_MS + TTL_MS);
	assert_int_equal(actor_renew(&cells->scene.actor, &cells->request, &claim), IDEM_RECORDED);
	assert_looks_like(cells, "locked", "0000000001", "");
	assert_kept_for(cells, LEASE_MS + TTL_MS);
	assert_int_equal(settle(cells, &claim, IDEM_COMPLETE), IDEM_RECORDED);
	assert_looks_like(cells, "stored", "0000000001", "the answer");
	assert_kept_for(cells, TTL_MS);
	cells_free(cells);
}

static void
doubt_is_a_cell_and_a_release_leaves_none(void **state)
{
	struct cells *cells = cells_make("?prefix=shop%3a", "shop:");
	struct claim claim = win(cells);

	(void)state;
	assert_int_equal(settle(cells, &claim, IDEM_RELEASE), IDEM_RECORDED);
	assert_int_equal(number(cells, "EXISTS"), 0);
	claim = win(cells);
	assert_int_equal(settle(cells, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	assert_looks_like(cells, "doubt ", "0000000001", "");
	assert_kept_for(cells, TTL_MS);
	cells_free(cells);
}

static void
what_an_operator_deletes_is_forgotten_and_its_owner_told(void **state)
{
	struct cells *cells = cells_make("", "idem:");
	struct claim claim = win(cells);

	(void)state;
	empty(cells);
	assert_int_equal(settle(cells, &claim, IDEM_COMPLETE), IDEM_LOST);
	assert_int_equal(ask(cells), IDEM_EXECUTE);
	cells_free(cells);
}

/* Nobody knows any more how old it is. */
static void
a_lock_that_somebody_made_last_for_ever_is_not_trusted_and_an_answer_is(void **state)
{
	struct cells *cells = cells_make("", "idem:");
	struct claim claim = win(cells);

	(void)state;
	assert_int_equal(number(cells, "PERSIST"), 1);
	assert_int_equal(ask(cells), IDEM_IN_DOUBT);
	assert_int_equal(settle(cells, &claim, IDEM_COMPLETE), IDEM_RECORDED);
	assert_int_equal(number(cells, "PERSIST"), 1);
	assert_int_equal(ask(cells), IDEM_REPLAY);
	cells_free(cells);
}

/* ---- what others put there ---- */

static void
of_another_type_is_an_error_that_names_the_key(void **state)
{
	static const char *const makers[] = {"RPUSH %s a", "SADD %s a", "HSET %s a b", "ZADD %s 1 a",
	                                     "XADD %s * a b"};
	struct cells *cells = cells_make("", "idem:");

	(void)state;
	for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
		empty(cells);
		freeReplyObject(command(cells, makers[i], cells->name));
		open_anew(cells);
		assert_int_equal(ask(cells), IDEM_E_CORRUPT);
		assert_reported(cells, "of another type: give the store a prefix of its own");
		assert_int_equal(number(cells, "EXISTS"), 1);
	}
	cells_free(cells);
}

static void
assert_error(struct cells *cells, const char *value, size_t len, int status, const char *sentence)
{
	struct claim nobodys = {.owner = actor_tag(), .attempt = 1};

	put(cells, value, len);
	open_anew(cells);
	assert_int_equal(ask(cells), status);
	assert_reported(cells, sentence);
	assert_int_equal(settle(cells, &nobodys, IDEM_COMPLETE), status);
	assert_int_equal(settle(cells, &nobodys, IDEM_RELEASE), status);
	take(cells);
	assert_int_equal(cells->len, len);
}

static void
a_string_of_another_program_is_an_error_that_names_the_key(void **state)
{
	static const char *const values[] = {"",       "x",       "idem",    "idem/",
	                                     "idem/1", "idem/x ", "idem/12", "session=1"};
	struct cells *cells = cells_make("", "idem:");
	char zeros[400] = "";

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		assert_error(cells, values[i], strlen(values[i]), IDEM_E_CORRUPT,
		             "is no cell: give the store a prefix of its own");
	assert_error(cells, zeros, sizeof zeros, IDEM_E_CORRUPT, "is no cell");
	cells_free(cells);
}

static void
a_cell_of_another_version_is_an_error_of_its_own(void **state)
{
	struct cells *cells = cells_make("", "idem:");

	(void)state;
	assert_error(cells, "idem/2 anything", 15, IDEM_E_VERSION, "of another version of Idem");
	assert_error(cells, "idem/12 anything", 16, IDEM_E_VERSION, "of another version of Idem");
	cells_free(cells);
}

static char *
make_answer(struct cells *cells)
{
	struct claim claim = win(cells);
	char *value;

	assert_int_equal(settle(cells, &claim, IDEM_COMPLETE), IDEM_RECORDED);
	assert_int_equal(ask(cells), IDEM_REPLAY);
	take(cells);
	value = cells->value;
	cells->value = NULL;
	return value;
}

static void
half_a_cell_is_never_an_answer_and_never_free(void **state)
{
	struct cells *cells = cells_make("", "idem:");
	char *value = make_answer(cells);

	(void)state;
	assert_error(cells, value, 7, IDEM_E_CORRUPT, "is a damaged cell");
	assert_error(cells, value, HEAD_LEN - 1, IDEM_E_CORRUPT, "is a damaged cell");
	for (size_t len = 0; len < HEAD_LEN; len++) {
		put(cells, value, len);
		assert_int_equal(ask(cells), IDEM_E_CORRUPT);
	}
	put(cells, value, HEAD_LEN + 10);
	assert_int_equal(ask(cells), IDEM_REPLAY);
	free(value);
	cells_free(cells);
}

/* With bytes that stand nowhere in a head. */
static void
a_damaged_head_is_never_an_answer(void **state)
{
	static const char strange[] = {'~', '\0', '\xff'};
	struct cells *cells = cells_make("", "idem:");
	char *value = make_answer(cells);

	(void)state;
	for (size_t i = 0; i < sizeof strange; i++)
		for (size_t at = 0; at < HEAD_LEN; at++) {
			char good = value[at];

			value[at] = strange[i];
			put(cells, value, HEAD_LEN + 10);
			assert_true(ask(cells) < 0);
			value[at] = good;
		}
	open_anew(cells);
	value[HEAD_LEN - 1] = ' ';
	put(cells, value, HEAD_LEN + 10);
	assert_int_equal(ask(cells), IDEM_E_CORRUPT);
	assert_reported(cells, "is a damaged cell: look at it, and delete it");
	free(value);
	cells_free(cells);
}

static void
numbers_that_no_cell_has_are_never_believed(void **state)
{
	struct cells *cells = cells_make("", "idem:");
	char *value = make_answer(cells);

	(void)state;
	memcpy(strstr(value, "attempt=") + 8, "4294967296", 10);
	put(cells, value, HEAD_LEN + 10);
	assert_int_equal(ask(cells), IDEM_E_CORRUPT);
	memcpy(strstr(value, "attempt=") + 8, "0000000000", 10);
	put(cells, value, HEAD_LEN + 10);
	assert_int_equal(ask(cells), IDEM_E_CORRUPT);
	free(value);
	cells_free(cells);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cell_is_a_line_of_text_and_its_payload_and_always_has_an_end),
		cmocka_unit_test(doubt_is_a_cell_and_a_release_leaves_none),
		cmocka_unit_test(what_an_operator_deletes_is_forgotten_and_its_owner_told),
		cmocka_unit_test(a_lock_that_somebody_made_last_for_ever_is_not_trusted_and_an_answer_is),
		cmocka_unit_test(of_another_type_is_an_error_that_names_the_key),
		cmocka_unit_test(a_string_of_another_program_is_an_error_that_names_the_key),
		cmocka_unit_test(a_cell_of_another_version_is_an_error_of_its_own),
		cmocka_unit_test(half_a_cell_is_never_an_answer_and_never_free),
		cmocka_unit_test(a_damaged_head_is_never_an_answer),
		cmocka_unit_test(numbers_that_no_cell_has_are_never_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
