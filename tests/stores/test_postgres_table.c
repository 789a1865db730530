/* The table of the PostgreSQL store under a steady load: what changes stays on its page, what is over leaves,
 * and requests that race are executed once, however transactions are isolated. */
#include <sys/wait.h>
#include <unistd.h>

#include "crowd.h"
#include "postgres_scene.h"
#include "race.h"

#define ROUNDS 4
#define USERS 4
#define RACE_KEYS 60

static long
number(const struct postgres_scene *scene, const char *expression)
{
	const char *answer = postgres_server_say(&scene->world.server, "SELECT (%s)::bigint", expression);

	assert_non_null(answer);
	return strtol(answer, NULL, 10);
}

/* A request with a short life: claimed, renewed and completed. */
static void
execute(struct postgres_scene *scene, uint64_t ttl_ms)
{
	struct request request = actor_request(scene->next_key++, 2000, ttl_ms);
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, &request, &claim), IDEM_EXECUTE);
	assert_int_equal(actor_renew(&scene->actor, &request, &claim), IDEM_RECORDED);
	assert_int_equal(
		actor_complete(&scene->actor, &request, &claim, bytes_of("the answer of two hundred bytes")),
		IDEM_RECORDED);
}

static void
changes_stay_on_their_page(void **state)
{
	struct postgres_scene scene;

	(void)state;
	scene_make(&scene, NULL);
	scene_open(&scene, "");
	for (int i = 0; i < 200; i++)
		execute(&scene, 3600000);
	scene_close(&scene); /* a backend tells what it did when it ends */
	postgres_server_await(&scene.world.server,
	                      "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'cells'", "400");
	assert_true(number(&scene, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'cells'") >
	            380);
	scene_free(&scene);
}

static void
what_is_over_leaves_and_the_table_does_not_grow(void **state)
{
	struct postgres_scene scene;
	long bytes = 0;

	(void)state;
	scene_make(&scene, NULL);
	scene_open(&scene, "");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 200; i++)
			execute(&scene, 1);
		while (number(&scene, "SELECT count(*) FROM idem.cells") > 0)
			scene_run(&scene, 100);
		(void)postgres_server_say(&scene.world.server, "VACUUM idem.cells");
		if (round == 0)
			bytes = number(&scene, "SELECT pg_total_relation_size('idem.cells')");
	}
	assert_true(number(&scene, "SELECT pg_total_relation_size('idem.cells')") <= 2 * bytes);
	scene_free(&scene);
}

static void
a_cell_that_lives_longer_than_it_was_to_is_not_swept(void **state)
{
	struct postgres_scene scene;
	struct request request;
	struct claim claim;

	(void)state;
	scene_make(&scene, NULL);
	scene_open(&scene, "");
	request = actor_request(1, 500, 1);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	request.policy.ttl_ms = 3600000;
	assert_int_equal(actor_renew(&scene.actor, &request, &claim), IDEM_RECORDED);
	postgres_server_await(&scene.world.server, "SELECT idem.sweep(10)", "1");
	assert_int_equal(number(&scene, "SELECT idem.sweep(10)"),
	                 0); /* it looks again when its time is over */
	assert_int_equal(actor_complete(&scene.actor, &request, &claim, bytes_of("the answer")),
	                 IDEM_RECORDED);
	scene_free(&scene);
}

static void
never(struct idem_watch *watch)
{
	(void)watch;
}

/* Its row is there still, with the mark of those who waited for it. */
static void
a_cell_whose_time_is_over_is_claimed_anew_though_somebody_waited_for_it(void **state)
{
	struct idem_watch watch = {.changed = never};
	struct postgres_scene scene;
	struct request request;

	(void)state;
	scene_make(&scene, NULL);
	scene_open(&scene, "");
	request = actor_request(1, 300, 1);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_EXECUTE);
	watch.id = request.id;
	assert_ok(scene.actor.store->ops->watch(scene.actor.store, &watch));
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_IN_PROGRESS);
	assert_int_equal(number(&scene, "SELECT count(*) FROM idem.cells WHERE waited"), 1);
	postgres_world_advance(&scene.world, 350);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_EXECUTE);
	assert_int_equal(number(&scene, "SELECT count(*) FROM idem.cells WHERE NOT waited"), 1);
	scene.actor.store->ops->unwatch(scene.actor.store, &watch);
	scene_free(&scene);
}

static int
play(struct postgres_scene *scene, struct race *race)
{
	struct actor actor = {0};
	bool fine;

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return 1;
	actor.store = postgres_world_open(&scene->world, actor.loop);
	fine = actor.store != NULL && race_run(race, &actor);
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return fine ? 0 : 1;
}

static void
race_with(struct postgres_scene *scene, uint64_t first_key)
{
	struct race *race = race_make(first_key, RACE_KEYS, USERS, 60000);
	pid_t users[USERS];
	int status;

	assert_non_null(race);
	for (int i = 0; i < USERS; i++) {
		users[i] = fork();
		assert_true(users[i] >= 0);
		if (users[i] == 0)
			_exit(play(scene, race));
	}
	for (int i = 0; i < USERS; i++) {
		assert_int_equal(waitpid(users[i], &status, 0), users[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(race_wrong(race), 0);
	race_free(race);
}

static void
requests_that_race_are_executed_once_in_every_isolation(void **state)
{
	static const char *const isolations[] = {"repeatable read", "serializable", "read committed"};
	struct postgres_scene scene;

	(void)state;
	scene_make(&scene, NULL);
	scene.world.timeout_ms = 10000;
	for (size_t i = 0; i < sizeof isolations / sizeof *isolations; i++) {
		(void)postgres_server_say(&scene.world.server,
		                          "ALTER ROLE gateway SET default_transaction_isolation = '%s'",
		                          isolations[i]);
		race_with(&scene, 1000 * (i + 1));
	}
	(void)postgres_server_say(&scene.world.server,
	                          "ALTER ROLE gateway SET default_transaction_isolation = 'serializable'");
	scene_open(&scene, "");
	scene_await_report(&scene, "default_transaction_isolation is \"serializable\"");
	scene_free(&scene);
}

/* With a time zone of its own for the role: nothing is compared without one. */
static void
the_time_zone_of_a_session_changes_nothing(void **state)
{
	struct postgres_scene scene;
	struct request request;
	struct claim claim;

	(void)state;
	scene_make(&scene, NULL);
	(void)postgres_server_say(&scene.world.server,
	                          "ALTER ROLE gateway SET timezone = 'Pacific/Auckland'");
	scene_open(&scene, "");
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	(void)postgres_server_say(&scene.world.server,
	                          "ALTER ROLE gateway SET timezone = 'America/Los_Angeles'");
	scene_close(&scene);
	scene_open(&scene, "");
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_IN_PROGRESS);
	assert_int_equal(actor_complete(&scene.actor, &request, &claim, bytes_of("the answer")),
	                 IDEM_RECORDED);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_REPLAY);
	scene_free(&scene);
}

static void
many_requests_at_once_share_commits(void **state)
{
	struct postgres_scene scene;
	struct crowd crowd = {0};
	long before, commits;

	(void)state;
	scene_make(&scene, NULL);
	scene.world.timeout_ms = 10000;
	scene.next_key = 5000; /* not one of the crowd's */
	scene_open(&scene, "");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	before = number(&scene, "SELECT txid_current()");
	crowd.actor = scene.actor;
	crowd.stop_at = 1200;
	assert_true(crowd_run(&crowd, CROWD_KEYS));
	if (crowd.refused + crowd.unknown > 0)
		fail_msg("%u refused, %u unknown: %s", crowd.refused, crowd.unknown, scene.world.report);
	commits = number(&scene, "SELECT txid_current()") - before;
	assert_true(commits < 1200); /* of 2400 steps, by a crowd of 24 */
	scene_free(&scene);
}

static void
people_can_read_what_is_kept(void **state)
{
	static const struct idem_field fields[] = {
		{{"Content-Type", 12}, {"text/plain", 10}},
		{{"X-Charge", 8}, {"ch_1", 4}},
	};
	const struct idem_response response = {
		.status = 201,
		.reason = {"201 Created", 11},
		.body_kept = true,
		.fields = fields,
		.field_count = 2,
		.body = {"paid", 4},
	};
	const struct postgres_server *server;
	struct postgres_scene scene;
	struct request request;
	struct claim claim;
	char record[256];
	size_t head = idem_response_head_len(&response);

	(void)state;
	scene_make(&scene, NULL);
	server = &scene.world.server;
	scene_open(&scene, "");
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	assert_string_equal(postgres_server_say(server,
	                                        "SELECT state || ' ' || attempt || ' ' || "
	                                        "(lease_ends > now())::text FROM idem.cells_readable"),
	                    "locked 1 true");
	idem_response_encode_head(&response, record);
	memcpy(record + head, "paid", 4);
	assert_int_equal(
		actor_complete(&scene.actor, &request, &claim, (struct idem_bytes){record, head + 4}),
		IDEM_RECORDED);
	assert_string_equal(
		postgres_server_say(server, "SELECT state || ' ' || status || ' ' || headers::text || ' ' || "
	                                    "convert_from(body, 'UTF8') FROM idem.cells_readable"),
		"stored 201 [[\"Content-Type\", \"text/plain\"], [\"X-Charge\", \"ch_1\"]] paid");
	scene_free(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_stay_on_their_page),
		cmocka_unit_test(what_is_over_leaves_and_the_table_does_not_grow),
		cmocka_unit_test(a_cell_that_lives_longer_than_it_was_to_is_not_swept),
		cmocka_unit_test(a_cell_whose_time_is_over_is_claimed_anew_though_somebody_waited_for_it),
		cmocka_unit_test(requests_that_race_are_executed_once_in_every_isolation),
		cmocka_unit_test(the_time_zone_of_a_session_changes_nothing),
		cmocka_unit_test(many_requests_at_once_share_commits),
		cmocka_unit_test(people_can_read_what_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
