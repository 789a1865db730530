/* The PostgreSQL server is gone, stopped, or held up: each request gets its error in time, those who run the
 * server are told, connections are not left behind, and all goes on within a second of its return. */
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "postgres_scene.h"
#include "redis_server.h"

#define TIMEOUT_MS 400
/* For a busy machine. */
#define SLACK_MS 600
#define RECOVERS_WITHIN_MS 1000

static void
assert_reported(const struct postgres_scene *scene, const char *text)
{
	if (strstr(scene->world.report, text) == NULL)
		fail_msg("it said\n%s, and not %s", scene->world.report, text);
}

static void
assert_recovers(struct postgres_scene *scene)
{
	assert_true(scene_recover(scene) < RECOVERS_WITHIN_MS + SLACK_MS);
}

/* A new key's; it ends in time. */
static int
claim_in_time(struct postgres_scene *scene, uint64_t within_ms)
{
	uint64_t began_ms = scene_now_ms(scene);
	int verdict = scene_claim(scene);

	assert_true(scene_now_ms(scene) - began_ms <= within_ms + SLACK_MS);
	return verdict;
}

static void
assert_refuses(struct postgres_scene *scene)
{
	assert_true(claim_in_time(scene, TIMEOUT_MS) < 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(claim_in_time(scene, 0), IDEM_E_UNAVAILABLE);
}

static struct claim
win(struct postgres_scene *scene, const struct request *request)
{
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, request, &claim), IDEM_EXECUTE);
	return claim;
}

static void
begin(struct postgres_scene *scene, const char *options)
{
	scene_make(scene, NULL);
	scene->world.timeout_ms = TIMEOUT_MS;
	scene_open(scene, options);
}

static size_t
descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	size_t count = 0;

	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	(void)closedir(directory);
	return count;
}

/* ---- gone ---- */

static void
a_server_that_was_killed_is_used_again_when_it_is_back(void **state)
{
	struct postgres_scene scene;
	struct request request;
	struct claim claim;
	size_t before;

	(void)state;
	begin(&scene, "");
	assert_recovers(&scene);
	before = descriptors();
	for (int i = 0; i < 3; i++) {
		request = scene_key(&scene);
		claim = win(&scene, &request);
		postgres_server_end(&scene.world.server, SIGQUIT);
		scene_await_report(&scene, "cannot use the server: ");
		assert_refuses(&scene);
		postgres_server_start_again(&scene.world.server);
		assert_recovers(&scene);
		assert_int_equal(actor_complete(&scene.actor, &request, &claim, bytes_of("the answer")),
		                 IDEM_RECORDED);
	}
	assert_reported(&scene, "the store works again");
	scene_run(&scene, 500); /* the other connection comes up too */
	assert_true(descriptors() <= before + 1);
	assert_string_equal(
		postgres_server_say(&scene.world.server,
	                            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'gateway'"),
		"2");
	scene_close(&scene);
	postgres_server_await(&scene.world.server,
	                      "SELECT count(*) FROM pg_stat_activity WHERE usename = 'gateway'", "0");
	scene_free(&scene);
}

static void
connections_that_an_administrator_ends_are_made_anew(void **state)
{
	struct postgres_scene scene;

	(void)state;
	begin(&scene, "");
	for (int i = 0; i < 10; i++) {
		assert_recovers(&scene);
		(void)postgres_server_say(&scene.world.server,
		                          "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
		                          "WHERE usename = 'gateway'");
	}
	assert_recovers(&scene);
	scene_free(&scene);
}

static void
where_no_server_is_requests_are_refused_at_once(void **state)
{
	struct postgres_scene scene;
	char uri[64];

	(void)state;
	scene_make(&scene, NULL);
	scene.world.timeout_ms = TIMEOUT_MS;
	(void)snprintf(uri, sizeof uri, "postgres://gateway@127.0.0.1:%u/postgres", free_port());
	scene_open_uri(&scene, uri);
	scene_await_report(&scene, "Connection refused");
	assert_refuses(&scene);
	scene_free(&scene);
}

/* ---- stopped ---- */

static void
a_stopped_server_holds_nobody_longer_than_the_timeout(void **state)
{
	struct postgres_scene scene;
	struct request request;
	size_t before;

	(void)state;
	begin(&scene, "&connections=2");
	assert_recovers(&scene);
	before = descriptors();
	postgres_server_signal_all(&scene.world.server, SIGSTOP);
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_E_INDOUBT);
	for (int i = 0; i < 8; i++)
		assert_true(claim_in_time(&scene, TIMEOUT_MS) < 0);
	assert_reported(&scene, "no connection in time");
	/* A connection that is ended, and the one that asks the server to end what it does, and a bell, for
	 * each. */
	assert_true(descriptors() <= before + 6);
	postgres_server_signal_all(&scene.world.server, SIGCONT);
	assert_recovers(&scene);
	/* It came too late, and must not lock the key for nobody. */
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_EXECUTE);
	postgres_server_await(&scene.world.server,
	                      "SELECT count(*) <= 2 FROM pg_stat_activity WHERE usename = 'gateway'", "t");
	scene_free(&scene);
}

static void
a_completion_in_doubt_is_settled_when_the_server_goes_on(void **state)
{
	struct postgres_scene scene;
	struct request request;
	struct idem_tag fresh = actor_tag();
	struct claim claim, found;

	(void)state;
	begin(&scene, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	postgres_server_signal_all(&scene.world.server, SIGSTOP);
	assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, IDEM_COMPLETE,
	                                    bytes_of("the answer"), &fresh),
	                 IDEM_E_INDOUBT);
	postgres_server_signal_all(&scene.world.server, SIGCONT);
	assert_recovers(&scene);
	assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, IDEM_COMPLETE,
	                                    bytes_of("the answer"), &fresh),
	                 IDEM_RECORDED);
	assert_int_equal(actor_claim(&scene.actor, &request, &found), IDEM_REPLAY);
	claim_free(&found);
	scene_free(&scene);
}

/* ---- held up ---- */

static PGconn *
hold_all_cells(const struct postgres_scene *scene)
{
	char conninfo[256];
	PGconn *other;

	(void)snprintf(conninfo, sizeof conninfo, "host=%s port=%u user=owner dbname=postgres",
	               scene->world.server.directory, scene->world.server.port);
	other = PQconnectdb(conninfo);
	PQclear(PQexec(other, "BEGIN"));
	PQclear(PQexec(other, "SELECT * FROM idem.cells FOR UPDATE"));
	assert_int_equal(PQtransactionStatus(other), PQTRANS_INTRANS);
	return other;
}

static void
a_cell_that_somebody_holds_delays_its_own_request_alone_and_leaves_no_backend_behind(void **state)
{
	struct postgres_scene scene;
	struct request request;
	struct claim claim;
	PGconn *other;

	(void)state;
	begin(&scene, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	other = hold_all_cells(&scene);
	for (int i = 0; i < 3; i++) {
		int rc = actor_complete(&scene.actor, &request, &claim, bytes_of("the answer"));

		assert_true(rc == IDEM_E_INDOUBT || rc == IDEM_E_UNAVAILABLE);
		assert_int_equal(claim_in_time(&scene, TIMEOUT_MS), IDEM_EXECUTE);
	}
	postgres_server_await(&scene.world.server,
	                      "SELECT count(*) FROM pg_stat_activity WHERE usename = 'gateway' "
	                      "AND wait_event_type = 'Lock'",
	                      "0");
	PQfinish(other);
	assert_int_equal(actor_complete(&scene.actor, &request, &claim, bytes_of("the answer")),
	                 IDEM_RECORDED);
	scene_free(&scene);
}

/* ---- woken ---- */

static bool woken;

static void
wake(struct idem_watch *watch)
{
	(void)watch;
	woken = true;
}

static void
who_waits_is_woken_though_the_connection_that_listens_was_ended(void **state)
{
	struct postgres_scene scene;
	struct idem_watch watch = {.changed = wake};
	struct idem_store *store;
	struct actor other = {0};
	struct request request;
	struct claim claim;

	(void)state;
	begin(&scene, "");
	store = scene.actor.store;
	other.store = postgres_world_open(&scene.world, scene.actor.loop);
	other.loop = scene.actor.loop;
	for (int i = 0; i < 3; i++) {
		request = scene_key(&scene);
		claim = win(&scene, &request);
		watch.id = request.id;
		assert_ok(store->ops->watch(store, &watch));
		scene_run(&scene, 300);
		assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_IN_PROGRESS);
		woken = false;
		if (i > 0)
			assert_string_equal(
				postgres_server_say(&scene.world.server,
			                            "SELECT count(pg_terminate_backend(pid)) > 0 FROM "
			                            "pg_stat_activity WHERE query LIKE 'LISTEN%%' OR "
			                            "query = 'SELECT 1'"),
				"t");
		assert_int_equal(actor_complete(&other, &request, &claim, bytes_of("the answer")),
		                 IDEM_RECORDED);
		assert_ok(idem_poll_loop_run(scene.actor.loop, &woken, RECOVERS_WITHIN_MS));
		store->ops->unwatch(store, &watch);
	}
	idem_store_close(other.store);
	scene_free(&scene);
}

static void
who_waits_is_woken_at_once(void **state)
{
	struct postgres_scene scene;
	struct idem_watch watch = {.changed = wake};
	struct idem_store *store;
	struct actor other = {0};
	uint64_t began_ms, took_ms = UINT64_MAX;

	(void)state;
	begin(&scene, "");
	store = scene.actor.store;
	other.store = postgres_world_open(&scene.world, scene.actor.loop);
	other.loop = scene.actor.loop;
	for (int i = 0; i < 10; i++) {
		struct request request = scene_key(&scene);
		struct claim claim = win(&scene, &request);

		watch.id = request.id;
		assert_ok(store->ops->watch(store, &watch));
		scene_run(&scene, 100);
		assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_IN_PROGRESS);
		woken = false;
		assert_int_equal(actor_complete(&other, &request, &claim, bytes_of("the answer")),
		                 IDEM_RECORDED);
		began_ms = scene_now_ms(&scene);
		assert_ok(idem_poll_loop_run(scene.actor.loop, &woken, RECOVERS_WITHIN_MS));
		if (scene_now_ms(&scene) - began_ms < took_ms)
			took_ms = scene_now_ms(&scene) - began_ms;
		store->ops->unwatch(store, &watch);
	}
	assert_true(took_ms <= 5);
	idem_store_close(other.store);
	scene_free(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_was_killed_is_used_again_when_it_is_back),
		cmocka_unit_test(connections_that_an_administrator_ends_are_made_anew),
		cmocka_unit_test(where_no_server_is_requests_are_refused_at_once),
		cmocka_unit_test(a_stopped_server_holds_nobody_longer_than_the_timeout),
		cmocka_unit_test(a_completion_in_doubt_is_settled_when_the_server_goes_on),
		cmocka_unit_test(
			a_cell_that_somebody_holds_delays_its_own_request_alone_and_leaves_no_backend_behind),
		cmocka_unit_test(who_waits_is_woken_though_the_connection_that_listens_was_ended),
		cmocka_unit_test(who_waits_is_woken_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
