/* The Redis store, while its users are killed: what they had sent half, and what they were not told. */
#include <hiredis/hiredis.h>

#include "../support/test.h"
#include "kills.h"
#include "redis_world.h"

#define TIMEOUT_MS 20000

static struct redis_world world;

static struct idem_store *
open_store(void *data, struct idem_loop *loop)
{
	const struct idem_redis_options options = {.uri = world.uri, .loop = loop, .timeout_ms = TIMEOUT_MS};
	struct idem_store *store = NULL;
	char why[512];

	(void)data;
	if (idem_redis_open(&options, &store, why, sizeof why) != IDEM_OK)
		(void)fprintf(stderr, "%s\n", why);
	return store;
}

/* Each key is a whole cell, and ends some time. */
static const char look_at_all[] =
	"for _, key in ipairs(redis.call('KEYS', '*')) do\n"
	"  local head = redis.call('GETRANGE', key, 0, 175)\n"
	"  if not string.match(key, '^idem:%x+:%x+$') or redis.call('PTTL', key) < 0 or\n"
	"     not string.match(head, '^idem/1 %x+ [a-z ]+ %x+ attempt=%d+ lease=%d+ retain=%d+\\n$') then\n"
	"    return key .. ' ' .. redis.call('PTTL', key) .. ' ' .. head\n"
	"  end\n"
	"end\n"
	"return ''\n";

static int
verify(struct idem_store *store, char *buf, size_t cap)
{
	redisContext *context = redisConnectUnix(world.server.socket);
	redisReply *reply;

	(void)store;
	assert_true(context != NULL && context->err == 0);
	reply = redisCommand(context, "EVAL %s 0", look_at_all);
	assert_non_null(reply);
	(void)snprintf(buf, cap, "%s", reply->str);
	freeReplyObject(reply);
	redisFree(context);
	return buf[0] == '\0' ? IDEM_OK : IDEM_E_CORRUPT;
}

static void
no_kill_damages_the_store_or_changes_an_answer(void **state)
{
	const struct kills kills = {.open = open_store, .verify = verify, .instants_us = 40000};

	(void)state;
	redis_world_make(&world, NULL);
	kills_run(&kills);
	redis_world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_kill_damages_the_store_or_changes_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
