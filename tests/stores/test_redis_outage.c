/* The Redis server is gone, stopped, full, or refuses: each request gets its error in time, those who run the
 * server are told, and all goes on within a second of its return. */
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "redis_scene.h"

#define TIMEOUT_MS 400
/* For a busy machine. */
#define SLACK_MS 600
#define RECOVERS_WITHIN_MS 1000

static void
assert_reported(const struct redis_scene *scene, const char *text)
{
	if (strstr(scene->world.report, text) == NULL)
		fail_msg("it said\n%s, and not %s", scene->world.report, text);
}

static void
assert_recovers(struct redis_scene *scene)
{
	assert_true(scene_recover(scene) < RECOVERS_WITHIN_MS);
}

/* A new key's; it ends in time. */
static int
claim_in_time(struct redis_scene *scene, uint64_t within_ms)
{
	uint64_t began_ms = scene_now_ms(scene);
	int verdict = scene_claim(scene);

	assert_true(scene_now_ms(scene) - began_ms <= within_ms + SLACK_MS);
	return verdict;
}

static void
assert_refuses(struct redis_scene *scene)
{
	assert_int_equal(claim_in_time(scene, 2 * TIMEOUT_MS), IDEM_E_UNAVAILABLE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(claim_in_time(scene, 0), IDEM_E_UNAVAILABLE);
}

static struct claim
win(struct redis_scene *scene, const struct request *request)
{
	struct claim claim;

	assert_int_equal(actor_claim(&scene->actor, request, &claim), IDEM_EXECUTE);
	return claim;
}

static int
settle(struct redis_scene *scene, const struct request *request, const struct claim *claim,
       enum idem_verb verb)
{
	return actor_settle(&scene->actor, request, claim, verb,
	                    bytes_of(verb == IDEM_COMPLETE ? "the answer" : ""));
}

static void
begin(struct redis_scene *scene, const char *const *more, const char *options)
{
	scene_make(scene, more);
	scene->world.timeout_ms = TIMEOUT_MS;
	scene_open(scene, options);
}

/* ---- gone ---- */

static void
a_server_that_was_killed_is_used_again_when_it_is_back(void **state)
{
	static const char *const more[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
	struct redis_scene scene;
	struct request request;
	struct claim claim;

	(void)state;
	begin(&scene, more, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	redis_server_end(&scene.world.server, SIGKILL);
	scene_await_report(&scene, "cannot use the server unix:/");
	assert_refuses(&scene);
	redis_server_start_again(&scene.world.server);
	assert_recovers(&scene);
	assert_reported(&scene, "the store works again");
	assert_int_equal(settle(&scene, &request, &claim, IDEM_COMPLETE), IDEM_RECORDED);
	scene_free(&scene);
}

/* As the header warns: the owner is told that it is none any more, and a retry is executed again. */
static void
a_server_that_has_forgotten_all_is_used_as_a_new_one(void **state)
{
	struct redis_scene scene;
	struct request request;
	struct claim claim;

	(void)state;
	begin(&scene, NULL, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	redis_server_end(&scene.world.server, SIGKILL);
	redis_server_start_again(&scene.world.server);
	assert_recovers(&scene);
	assert_int_equal(settle(&scene, &request, &claim, IDEM_COMPLETE), IDEM_LOST);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	scene_free(&scene);
}

/* Some are sent and unanswered when the server ends, others come after it. */
static void
a_crowd_gets_its_answers_though_the_server_is_killed_again_and_again(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, NULL, "?connections=3");
	for (int i = 0; i < 5; i++) {
		assert_recovers(&scene);
		redis_server_signal(&scene.world.server, SIGSTOP);
		(void)scene_claim(&scene); /* what is sent stays unanswered */
		redis_server_end(&scene.world.server, SIGKILL);
		redis_server_start_again(&scene.world.server);
	}
	assert_recovers(&scene);
	scene_free(&scene);
}

static void
refuses_at(const char *uri, const char *sentence)
{
	struct redis_scene scene;

	scene_make(&scene, NULL);
	scene.world.timeout_ms = TIMEOUT_MS;
	scene_open_uri(&scene, uri);
	assert_refuses(&scene);
	assert_reported(&scene, sentence);
	scene_free(&scene);
}

static void
where_no_server_is_requests_are_refused_at_once(void **state)
{
	char uri[64], sentence[128];
	unsigned port = free_port();

	(void)state;
	(void)snprintf(uri, sizeof uri, "redis://127.0.0.1:%u", port);
	(void)snprintf(sentence, sizeof sentence, "cannot use the server 127.0.0.1:%u: Connection refused",
	               port);
	refuses_at(uri, sentence);
	refuses_at("unix:/nowhere/redis",
	           "cannot use the server unix:/nowhere/redis: No such file or directory");
	refuses_at("redis://nowhere.invalid", "nowhere.invalid:6379: its name cannot be resolved: ");
}

/* ---- stopped ---- */

/* It is answered too late, and must not lock the key for nobody. */
static void
a_claim_that_a_stopped_server_reads_when_it_goes_on_is_not_carried_out(void **state)
{
	struct redis_scene scene;
	struct request request;

	(void)state;
	begin(&scene, NULL, "");
	assert_recovers(&scene);
	redis_server_signal(&scene.world.server, SIGSTOP);
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_E_INDOUBT);
	assert_true(claim_in_time(&scene, 2 * TIMEOUT_MS) < 0);
	redis_server_signal(&scene.world.server, SIGCONT);
	assert_recovers(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_EXECUTE);
	scene_free(&scene);
}

static void
a_stopped_server_holds_nobody_longer_than_the_timeout(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, NULL, "?connections=1");
	assert_recovers(&scene);
	redis_server_signal(&scene.world.server, SIGSTOP);
	assert_int_equal(claim_in_time(&scene, TIMEOUT_MS), IDEM_E_INDOUBT);
	for (int i = 0; i < 3; i++)
		assert_int_equal(claim_in_time(&scene, TIMEOUT_MS), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, "no answer in time");
	redis_server_signal(&scene.world.server, SIGCONT);
	assert_recovers(&scene);
	scene_free(&scene);
}

static void
a_completion_in_doubt_is_settled_when_the_server_goes_on(void **state)
{
	struct redis_scene scene;
	struct request request;
	struct idem_tag fresh = actor_tag();
	struct claim claim, found;

	(void)state;
	begin(&scene, NULL, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	redis_server_signal(&scene.world.server, SIGSTOP);
	assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, IDEM_COMPLETE,
	                                    bytes_of("the answer"), &fresh),
	                 IDEM_E_INDOUBT);
	redis_server_signal(&scene.world.server, SIGCONT);
	assert_recovers(&scene);
	assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, IDEM_COMPLETE,
	                                    bytes_of("the answer"), &fresh),
	                 IDEM_RECORDED);
	assert_int_equal(actor_claim(&scene.actor, &request, &found), IDEM_REPLAY);
	claim_free(&found);
	scene_free(&scene);
}

static bool answered;

static void
answer(struct idem_io *io)
{
	(void)io;
	answered = true;
}

/* The Sentinel takes its time, and then the server: each answers in time, and together they do not.  Nobody's
 * clock was set. */
static void
a_claim_that_waited_for_longer_than_the_timeout_is_not_sent(void **state)
{
	static const char *const more[] = {"--sentinel", NULL};
	struct redis_server sentinel = {0};
	struct redis_scene scene;
	struct request request;
	struct idem_io io = {.done = answer};
	char uri[64];

	(void)state;
	scene_make(&scene, NULL);
	redis_server_start(&sentinel, more);
	assert_string_equal(
		redis_server_say(&sentinel, "SENTINEL MONITOR shop 127.0.0.1 %u 1", scene.world.server.port),
		"OK");
	redis_server_signal(&sentinel, SIGSTOP);
	redis_server_signal(&scene.world.server, SIGSTOP);
	scene.world.timeout_ms = 2 * TIMEOUT_MS;
	(void)snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%u/shop", sentinel.port);
	scene_open_uri(&scene, uri);
	request = scene_key(&scene);
	io.id = request.id;
	io.write = (struct idem_cell){.tag = actor_tag(),
	                              .state = IDEM_LOCKED,
	                              .attempt = 1,
	                              .lease_ms = LEASE_MS,
	                              .retain_ms = TTL_MS};
	answered = false;
	assert_int_equal(scene.actor.store->ops->cas(scene.actor.store, &io), IDEM_PENDING);
	scene_run(&scene, TIMEOUT_MS * 3 / 2);
	redis_server_signal(&sentinel, SIGCONT);
	scene_run(&scene, TIMEOUT_MS * 3 / 2);
	assert_false(answered);
	redis_server_signal(&scene.world.server, SIGCONT);
	assert_ok(idem_poll_loop_run(scene.actor.loop, &answered, 10000));
	assert_int_equal(io.status, IDEM_E_UNAVAILABLE);
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_EXECUTE);
	assert_string_equal(scene.world.report, "");
	scene_free(&scene);
	redis_server_free(&sentinel);
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
who_waits_is_woken_by_a_server_that_came_back(void **state)
{
	struct redis_scene scene;
	struct idem_watch watch = {.changed = wake};
	struct idem_store *store;
	struct request request;

	(void)state;
	begin(&scene, NULL, "");
	store = scene.actor.store;
	request = scene_key(&scene);
	(void)win(&scene, &request);
	watch.id = request.id;
	assert_ok(store->ops->watch(store, &watch));
	assert_int_equal(actor_claim(&scene.actor, &request, NULL), IDEM_IN_PROGRESS);
	redis_server_await(&scene.world.server, "PUBSUB NUMPAT", "0");
	scene_run(&scene, 200); /* the subscription is in effect; that is a hint of its own */
	woken = false;
	redis_server_end(&scene.world.server, SIGKILL);
	redis_server_start_again(&scene.world.server);
	assert_ok(idem_poll_loop_run(scene.actor.loop, &woken, RECOVERS_WITHIN_MS));
	store->ops->unwatch(store, &watch);
	scene_free(&scene);
}

/* ---- full ---- */

static void
of_a_full_server_what_was_promised_is_still_kept(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_GIVE_UP};
	struct request requests[4];
	struct claim claims[4];
	struct redis_scene scene;

	(void)state;
	begin(&scene, NULL, "");
	for (int i = 0; i < 4; i++) {
		requests[i] = scene_key(&scene);
		claims[i] = win(&scene, &requests[i]);
	}
	(void)redis_server_say(&scene.world.server, "CONFIG SET maxmemory 1");
	assert_int_equal(scene_claim(&scene), IDEM_E_FULL);
	assert_reported(&scene, "new keys are refused: the server is at its maxmemory: raise it");
	(void)redis_server_say(&scene.world.server, "SCRIPT FLUSH");
	assert_int_equal(scene_claim(&scene), IDEM_E_FULL);
	assert_int_equal(actor_renew(&scene.actor, &requests[3], &claims[3]), IDEM_RECORDED);
	for (int i = 0; i < 3; i++)
		assert_int_equal(settle(&scene, &requests[i], &claims[i], verbs[i]), IDEM_RECORDED);
	assert_int_equal(actor_claim(&scene.actor, &requests[0], NULL), IDEM_REPLAY);
	assert_int_equal(actor_claim(&scene.actor, &requests[3], NULL), IDEM_IN_PROGRESS);
	(void)redis_server_say(&scene.world.server, "CONFIG SET maxmemory 0");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	assert_reported(&scene, "new keys are taken again");
	assert_null(strstr(scene.world.report, "cannot use the server"));
	scene_free(&scene);
}

static void
a_server_that_drops_keys_is_reported(void **state)
{
	static const char *const more[] = {"--maxmemory-policy", "allkeys-lru", NULL};
	struct redis_scene scene;

	(void)state;
	begin(&scene, more, "");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	assert_reported(&scene, "its maxmemory-policy allkeys-lru drops keys that are promised");
	assert_reported(&scene, "set it to noeviction");
	scene_free(&scene);
}

static void
a_server_without_room_for_connections_is_named(void **state)
{
	static const char *const more[] = {"--maxclients", "4", NULL};
	struct redis_scene scene;
	redisContext *others[4];

	(void)state;
	scene_make(&scene, more);
	for (int i = 0; i < 4; i++) {
		redisReply *reply;

		others[i] = redisConnectUnix(scene.world.server.socket);
		assert_non_null(others[i]);
		do {
			reply = redisCommand(others[i], "PING");
			if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
				assert_int_equal(redisReconnect(others[i]), REDIS_OK);
		} while (reply == NULL || reply->type == REDIS_REPLY_ERROR);
		freeReplyObject(reply);
	}
	scene.world.timeout_ms = TIMEOUT_MS;
	scene_open(&scene, "");
	assert_refuses(&scene);
	assert_reported(&scene, "max number of clients reached");
	for (int i = 0; i < 4; i++)
		redisFree(others[i]);
	assert_recovers(&scene);
	scene_free(&scene);
}

/* ---- not ready ---- */

static void
a_server_that_loads_its_data_is_waited_for(void **state)
{
	static const char *const more[] = {"--enable-debug-command",
	                                   "yes",
	                                   "--key-load-delay",
	                                   "2000",
	                                   "--loading-process-events-interval-bytes",
	                                   "1024",
	                                   NULL};
	struct redis_scene scene;

	(void)state;
	begin(&scene, more, "");
	assert_string_equal(redis_server_say(&scene.world.server, "DEBUG POPULATE 1000 filler 1000"), "OK");
	assert_string_equal(redis_server_say(&scene.world.server, "SAVE"), "OK");
	assert_recovers(&scene);
	redis_server_end(&scene.world.server, SIGKILL);
	scene_await_report(&scene, "cannot use the server");
	scene_close(&scene);
	redis_server_start_again_unready(&scene.world.server);
	scene.world.report[0] = '\0';
	scene_open(&scene, "");
	assert_int_equal(claim_in_time(&scene, 2 * TIMEOUT_MS), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, "it is still loading its data");
	redis_server_await(&scene.world.server, "PING", "PONG");
	assert_recovers(&scene);
	scene_free(&scene);
}

static void
a_replica_is_not_written_to(void **state)
{
	char port[8];
	const char *const more[] = {"--replicaof", "127.0.0.1", port, NULL};
	struct redis_scene scene;

	(void)state;
	(void)snprintf(port, sizeof port, "%u", free_port());
	begin(&scene, more, "");
	assert_refuses(&scene);
	assert_reported(&scene, "it is a replica: give the address of its master");
	(void)redis_server_say(&scene.world.server, "REPLICAOF NO ONE");
	assert_recovers(&scene);
	scene_free(&scene);
}

static void
a_master_that_becomes_a_replica_is_left(void **state)
{
	struct redis_scene scene;
	struct request request;
	struct claim claim;

	(void)state;
	begin(&scene, NULL, "");
	request = scene_key(&scene);
	claim = win(&scene, &request);
	(void)redis_server_say(&scene.world.server, "REPLICAOF 127.0.0.1 %u", free_port());
	assert_int_equal(settle(&scene, &request, &claim, IDEM_COMPLETE), IDEM_E_UNAVAILABLE);
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_refuses(&scene);
	assert_reported(&scene, "it is a replica now: give the address of its master");
	(void)redis_server_say(&scene.world.server, "REPLICAOF NO ONE");
	assert_recovers(&scene);
	assert_int_equal(settle(&scene, &request, &claim, IDEM_COMPLETE), IDEM_RECORDED);
	scene_free(&scene);
}

static void
what_the_server_refuses_for_a_while_is_told_and_taken_back(void **state)
{
	static const char *const more[] = {"--min-replicas-to-write", "1", NULL};
	struct redis_scene scene;

	(void)state;
	begin(&scene, more, "");
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, "NOREPLICAS Not enough good replicas to write");
	(void)redis_server_say(&scene.world.server, "CONFIG SET min-replicas-to-write 0");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	assert_reported(&scene, "commands are carried out again");
	scene_free(&scene);
}

/* ---- not allowed ---- */

static void
a_database_that_is_not_there_is_named(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, NULL, "?db=99");
	assert_refuses(&scene);
	assert_reported(&scene, "it refuses the database 99 of the URI: ERR DB index is out of range");
	scene_free(&scene);
}

static void
is_refused(const char *const *more, const char *options, const char *sentence)
{
	struct redis_scene scene;

	scene_make(&scene, more);
	scene.world.timeout_ms = TIMEOUT_MS;
	scene_open(&scene, options);
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, sentence);
	assert_null(strstr(scene.world.report, "sesame"));
	assert_null(strstr(scene.world.report, "swordfish"));
	assert_null(strstr(scene.world.report, "alice"));
	scene_free(&scene);
}

static void
whom_the_server_does_not_let_in_is_told_why_and_no_password(void **state)
{
	static const char *const secured[] = {"--requirepass", "sesame", NULL};
	static const char *const mute[] = {"--rename-command", "AUTH", "", NULL};

	(void)state;
	is_refused(secured, "", "it wants a password: give USER:PASSWORD@ in the URI");
	is_refused(secured, "?password=swordfish", "it does not take the password");
	is_refused(secured, "?user=alice&password=sesame", "it does not take the password");
	is_refused(NULL, "?password=swordfish", "it has no password, and the URI gives one");
	is_refused(mute, "?password=swordfish", "it refuses AUTH");
	is_refused(mute, "?user=alice&password=swordfish", "it refuses AUTH");
}

static void
a_right_that_is_missing_is_named(void **state)
{
	const char *rights;
	struct redis_scene scene;

	(void)state;
	scene_make(&scene, NULL);
	scene.world.timeout_ms = TIMEOUT_MS;
	(void)redis_server_say(&scene.world.server, "ACL SETUSER bob on >sesame +info");
	scene_open(&scene, "?user=bob&password=sesame");
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, "no permissions to run the 'evalsha' command");
	assert_reported(&scene, "grant the user ~idem:* &idem:* ");
	rights = strstr(scene.world.report, "~idem:*");
	(void)redis_server_say(&scene.world.server, "ACL SETUSER bob %.*s", (int)strcspn(rights, "\n"),
	                       rights);
	assert_recovers(&scene);
	assert_reported(&scene, "commands are carried out again");
	scene_free(&scene);
}

static void
who_may_not_listen_works_and_is_told(void **state)
{
	struct redis_scene scene;
	struct idem_watch watch = {.changed = wake};
	struct idem_store *store;
	struct request request;

	(void)state;
	scene_make(&scene, NULL);
	scene.world.timeout_ms = TIMEOUT_MS;
	(void)redis_server_say(&scene.world.server, "ACL SETUSER bob on >sesame ~idem:* resetchannels +@all");
	scene_open(&scene, "?user=bob&password=sesame");
	store = scene.actor.store;
	request = scene_key(&scene);
	watch.id = request.id;
	assert_ok(store->ops->watch(store, &watch));
	(void)win(&scene, &request);
	scene_await_report(&scene, "duplicates that wait ask once a second and are not woken: NOPERM");
	assert_reported(&scene, "grant the user &idem:* +subscribe");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	store->ops->unwatch(store, &watch);
	scene_free(&scene);
}

/* ---- not a Redis server ---- */

/* Says the same to everybody, at once. */
struct stranger {
	struct idem_fd listener;
	const char *words;
	int last; /* connection */
};

static void
be_strange(struct idem_fd *watch, unsigned readiness)
{
	struct stranger *stranger =
		(struct stranger *)(void *)((char *)watch - offsetof(struct stranger, listener));

	(void)readiness;
	if (stranger->last >= 0)
		(void)close(stranger->last);
	stranger->last = accept(watch->fd, NULL, NULL);
	assert_true(stranger->last >= 0);
	assert_true(send(stranger->last, stranger->words, strlen(stranger->words), MSG_NOSIGNAL) > 0);
}

static void
of_a_stranger_it_is_said(const char *words, const char *sentence)
{
	struct stranger stranger = {.words = words, .last = -1};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof address;
	struct redis_scene scene;
	struct idem_loop *loop;
	char uri[64];

	scene_make(&scene, NULL);
	loop = scene.actor.loop;
	stranger.listener.ready = be_strange;
	stranger.listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(stranger.listener.fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(stranger.listener.fd, 8), 0);
	assert_int_equal(getsockname(stranger.listener.fd, (struct sockaddr *)&address, &len), 0);
	assert_ok(loop->ops->fd_watch(loop, &stranger.listener, IDEM_READABLE));
	scene.world.timeout_ms = TIMEOUT_MS;
	(void)snprintf(uri, sizeof uri, "redis://127.0.0.1:%u?connections=1", ntohs(address.sin_port));
	scene_open_uri(&scene, uri);
	assert_int_equal(claim_in_time(&scene, 2 * TIMEOUT_MS), IDEM_E_UNAVAILABLE);
	assert_reported(&scene, sentence);
	assert_ok(loop->ops->fd_watch(loop, &stranger.listener, 0));
	(void)close(stranger.listener.fd);
	if (stranger.last >= 0)
		(void)close(stranger.last);
	scene_free(&scene);
}

static void
a_server_that_is_none_is_told_from_one(void **state)
{
	(void)state;
	of_a_stranger_it_is_said("HTTP/1.1 400 Bad Request\r\n\r\n",
	                         "no Redis server: its reply makes no sense");
	of_a_stranger_it_is_said("220 mail.example ESMTP\r\n", "no Redis server: its reply makes no sense");
	of_a_stranger_it_is_said("+OK\r\n", "it does not answer INFO as Redis does");
	of_a_stranger_it_is_said("*-1\r\n", "it does not answer INFO as Redis does");
	of_a_stranger_it_is_said("$-1\r\n", "it does not answer INFO as Redis does");
	of_a_stranger_it_is_said("$0\r\n\r\n", "it is no Redis of version 7.0 or newer");
	of_a_stranger_it_is_said("$21\r\nredis_version:6.2.14\n\r\n",
	                         "it is no Redis of version 7.0 or newer");
	of_a_stranger_it_is_said("$999999999999\r\n", "");
	of_a_stranger_it_is_said("*2147483647\r\n", "out of memory");
	of_a_stranger_it_is_said("-ERR unknown command\r\n", "ERR unknown command");
	of_a_stranger_it_is_said("$", "no answer in time");
	/* One that answers more than it was asked. */
	of_a_stranger_it_is_said("$20\r\nredis_version:7.2.0\n\r\n+OK\r\n", "a reply that nobody asked for");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_was_killed_is_used_again_when_it_is_back),
		cmocka_unit_test(a_server_that_has_forgotten_all_is_used_as_a_new_one),
		cmocka_unit_test(a_crowd_gets_its_answers_though_the_server_is_killed_again_and_again),
		cmocka_unit_test(where_no_server_is_requests_are_refused_at_once),
		cmocka_unit_test(a_claim_that_a_stopped_server_reads_when_it_goes_on_is_not_carried_out),
		cmocka_unit_test(a_stopped_server_holds_nobody_longer_than_the_timeout),
		cmocka_unit_test(a_completion_in_doubt_is_settled_when_the_server_goes_on),
		cmocka_unit_test(a_claim_that_waited_for_longer_than_the_timeout_is_not_sent),
		cmocka_unit_test(who_waits_is_woken_by_a_server_that_came_back),
		cmocka_unit_test(of_a_full_server_what_was_promised_is_still_kept),
		cmocka_unit_test(a_server_that_drops_keys_is_reported),
		cmocka_unit_test(a_server_without_room_for_connections_is_named),
		cmocka_unit_test(a_server_that_loads_its_data_is_waited_for),
		cmocka_unit_test(a_replica_is_not_written_to),
		cmocka_unit_test(a_master_that_becomes_a_replica_is_left),
		cmocka_unit_test(what_the_server_refuses_for_a_while_is_told_and_taken_back),
		cmocka_unit_test(a_database_that_is_not_there_is_named),
		cmocka_unit_test(whom_the_server_does_not_let_in_is_told_why_and_no_password),
		cmocka_unit_test(a_right_that_is_missing_is_named),
		cmocka_unit_test(who_may_not_listen_works_and_is_told),
		cmocka_unit_test(a_server_that_is_none_is_told_from_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
