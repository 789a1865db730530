/*
 * The connection to a Redis server is cut behind each byte of each operation, in each direction: every answer
 * comes once, what is asked again is recognised as one's own, and there is one execution.
 *
 * The store's own clock runs fast, so that it connects again soon.
 */
#include "../support/test.h"
#include "actor.h"
#include "hasty_loop.h"
#include "proxy.h"
#include "redis_world.h"

#define TIMES 250
#define TIMEOUT_MS (3000 * TIMES)
#define PATIENCE_MS 10000
#define LEASE_MS 3600000
#define TTL_MS 7200000
#define TRIES_MAX 100

struct scene {
	struct redis_world world;
	struct redis_server second; /* a replica, or a Sentinel */
	char path[96];              /* of the proxy's socket */
	const char *options;
	const char *form; /* of the store's URI, with the proxy's port; NULL: its path */
	struct idem_loop *loop;
	struct hasty_loop hasty;
	struct proxy *proxy;
	struct actor actor; /* behind the proxy */
	struct actor other; /* not behind it */
	uint64_t next_key, begun, answered, unknown;
	struct request request;
	struct claim claim;
	struct idem_watch watch;
	bool changed;
};

struct deed {
	void (*before)(struct scene *scene);
	void (*during)(struct scene *scene); /* the connection is cut in it */
	void (*after)(struct scene *scene);
	uint64_t bytes[2]; /* it takes at least so many, to the server and back */
	unsigned step;     /* 0: every byte; else every so manieth of those behind the first few */
};

/* ---- one who asks until there is an answer ---- */

struct question {
	struct idem_io io;
	struct scene *scene;
	bool answered;
};

static void
answered(struct idem_io *io)
{
	struct question *question = (struct question *)(void *)io;

	question->answered = true;
	question->scene->answered++;
}

/* Asked for by another one, who expects what cannot be there. */
static void
assert_not_written(struct question *question)
{
	struct actor *other = &question->scene->other;
	const struct idem_cell *cell = &question->io.write;
	struct idem_io look = {.id = question->io.id, .expect = actor_tag(), .write = {.tag = actor_tag()}};

	assert_ok(actor_cas(other, &look));
	if (cell->state == IDEM_ABSENT)
		assert_int_not_equal(look.seen.state, IDEM_ABSENT);
	else if (look.seen.state != IDEM_ABSENT)
		assert_memory_not_equal(&look.seen.tag, &cell->tag, sizeof cell->tag);
	other->store->ops->release(other->store, &look);
}

/* What is refused may not have been written; what is in doubt may be asked again as it was. */
static void
ask_once(struct question *question)
{
	struct actor *actor = &question->scene->actor;

	question->answered = false;
	question->io.done = answered;
	if (actor->store->ops->cas(actor->store, &question->io) == IDEM_OK) {
		assert_int_equal(question->io.status, IDEM_E_UNAVAILABLE); /* there is no connection */
		(void)(idem_poll_loop_run(actor->loop, NULL, 1) == IDEM_OK);
		return;
	}
	question->scene->begun++;
	assert_ok(idem_poll_loop_run(actor->loop, &question->answered, PATIENCE_MS));
	question->scene->unknown += question->io.status == IDEM_E_INDOUBT;
}

static void
ask_until_answered(struct question *question)
{
	struct actor *actor = &question->scene->actor;
	bool in_doubt = false;

	for (int i = 0; i < TRIES_MAX; i++) {
		ask_once(question);
		if (question->io.status == IDEM_OK)
			return;
		in_doubt |= question->io.status == IDEM_E_INDOUBT;
		if (!in_doubt) {
			assert_int_equal(question->io.status, IDEM_E_UNAVAILABLE);
			assert_not_written(question);
		}
		actor->store->ops->release(actor->store, &question->io);
	}
	fail_msg("no answer after %d attempts: %s", TRIES_MAX, question->scene->world.report);
}

static struct idem_op
op_of(struct scene *scene, enum idem_verb verb)
{
	return (struct idem_op){
		.verb = verb,
		.policy = scene->request.policy,
		.id = scene->request.id,
		.fingerprint = scene->request.fingerprint,
		.fresh = actor_tag(),
		.owner = scene->claim.owner,
		.attempt = scene->claim.attempt,
		.payload = verb == IDEM_COMPLETE ? bytes_of("the answer") : bytes_of(""),
	};
}

/* The verdict. */
static int
act(struct scene *scene, enum idem_verb verb)
{
	struct idem_op op = op_of(scene, verb);
	struct question question = {.scene = scene};
	bool asked = false;

	while (idem_step(&op, asked ? &question.io : NULL, &question.io)) {
		asked = true;
		ask_until_answered(&question);
	}
	assert_ok(op.status);
	if (verb == IDEM_CLAIM || verb == IDEM_RENEW) {
		scene->claim.owner = op.won;
		scene->claim.attempt = op.attempt != 0 ? op.attempt : scene->claim.attempt;
	}
	if (op.verdict == IDEM_REPLAY) {
		assert_int_equal(op.found.payload.len, 10);
		assert_memory_equal(op.found.payload.data, "the answer", 10);
	}
	scene->actor.store->ops->release(scene->actor.store, &question.io);
	return (int)op.verdict;
}

/* ---- another one, whose connection is never cut ---- */

static int
claim_by_other(struct scene *scene)
{
	struct claim claim;
	int verdict = actor_claim(&scene->other, &scene->request, &claim);

	if (verdict == IDEM_REPLAY) {
		assert_int_equal(claim.found.payload.len, 10);
		assert_memory_equal(claim.found.payload.data, "the answer", 10);
	}
	claim_free(&claim);
	return verdict;
}

/* ---- the scene ---- */

static void
open_store(struct scene *scene)
{
	if (scene->form != NULL)
		(void)snprintf(scene->world.uri, sizeof scene->world.uri, scene->form,
		               proxy_port(scene->proxy));
	else
		(void)snprintf(scene->world.uri, sizeof scene->world.uri, "unix:%s?connections=1%s",
		               scene->path, scene->options);
	scene->world.timeout_ms = TIMEOUT_MS;
	scene->actor.store = redis_world_open(&scene->world, &scene->hasty.base);
	assert_non_null(scene->actor.store);
}

static void
close_store(struct scene *scene)
{
	idem_store_close(scene->actor.store);
	scene->actor.store = NULL;
}

static void
changed(struct idem_watch *watch)
{
	struct scene *scene = (struct scene *)(void *)((char *)watch - offsetof(struct scene, watch));

	scene->changed = true;
}

/* A server, and nobody yet who uses it. */
static struct scene *
scene_make_server(const char *options, const char *const *more)
{
	struct scene *scene = calloc(1, sizeof *scene);

	assert_non_null(scene);
	scene->options = options;
	redis_world_make(&scene->world, more);
	assert_ok(idem_poll_loop_new(&scene->loop));
	hasty_loop_init(&scene->hasty, scene->loop, TIMES);
	scene->other.loop = scene->actor.loop = scene->loop;
	return scene;
}

static void
scene_put_proxy(struct scene *scene, const char *path, const char *server_path, unsigned server_port)
{
	scene->proxy = proxy_make(scene->loop, path, server_path, server_port);
}

static void
open_other(struct scene *scene, const char *form, unsigned port)
{
	if (form != NULL)
		(void)snprintf(scene->world.uri, sizeof scene->world.uri, form, port);
	else
		(void)snprintf(scene->world.uri, sizeof scene->world.uri, "unix:%s%s%s",
		               scene->world.server.socket, *scene->options != '\0' ? "?" : "",
		               *scene->options != '\0' ? scene->options + 1 : "");
	scene->world.timeout_ms = 3000;
	scene->other.store = redis_world_open(&scene->world, scene->loop);
	assert_non_null(scene->other.store);
}

static struct scene *
scene_make(const char *options, const char *const *more)
{
	struct scene *scene = scene_make_server(options, more);

	(void)snprintf(scene->path, sizeof scene->path, "%s/proxy", scene->world.server.directory);
	scene_put_proxy(scene, scene->path, scene->world.server.socket, 0);
	open_other(scene, NULL, 0);
	open_store(scene);
	return scene;
}

static void
scene_free(struct scene *scene)
{
	assert_int_equal(scene->answered, scene->begun);
	close_store(scene);
	idem_store_close(scene->other.store);
	proxy_free(scene->proxy);
	idem_poll_loop_free(scene->loop);
	redis_world_free(&scene->world);
	if (scene->second.pid != 0)
		redis_server_free(&scene->second);
	free(scene);
}

static void
new_key(struct scene *scene)
{
	scene->request = actor_request(scene->next_key++, LEASE_MS, TTL_MS);
	scene->claim = (struct claim){.attempt = 1};
	scene->watch.id = scene->request.id;
	scene->watch.changed = changed;
}

static void
cut_everywhere(struct scene *scene, const struct deed *deed)
{
	static const uint64_t first_few = 256;

	for (int way = PROXY_TO_SERVER; way <= PROXY_TO_CLIENT; way++) {
		uint64_t after = 0, unknown = scene->unknown;
		bool cut = true;

		while (cut) {
			new_key(scene);
			deed->before(scene);
			proxy_cut(scene->proxy, (enum proxy_way)way, after);
			deed->during(scene);
			cut = proxy_has_cut(scene->proxy);
			proxy_spare(scene->proxy);
			deed->after(scene);
			after += deed->step == 0 || after < first_few ? 1 : deed->step;
		}
		assert_true(after > deed->bytes[way]);
		/* A step may pass over all bytes of the answer. */
		assert_true(scene->unknown > unknown || deed->step > 0);
		assert_int_equal(scene->answered, scene->begun);
	}
}

/* ---- deeds ---- */

static void
nothing(struct scene *scene)
{
	(void)scene;
}

static void
claim(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_CLAIM), IDEM_EXECUTE);
}

static void
others_wait_until_it_is_completed(struct scene *scene)
{
	assert_int_equal(scene->claim.attempt, 1);
	assert_int_equal(claim_by_other(scene), IDEM_IN_PROGRESS);
	assert_int_equal(act(scene, IDEM_COMPLETE), IDEM_RECORDED);
	assert_int_equal(claim_by_other(scene), IDEM_REPLAY);
}

static const struct deed claims = {nothing, claim, others_wait_until_it_is_completed, {400, 18}, 0};

static void
renew(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_RENEW), IDEM_RECORDED);
}

static const struct deed renewals = {claim, renew, others_wait_until_it_is_completed, {400, 18}, 0};

static void
complete(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_COMPLETE), IDEM_RECORDED);
}

static void
others_get_the_answer(struct scene *scene)
{
	assert_int_equal(claim_by_other(scene), IDEM_REPLAY);
}

static const struct deed completions = {claim, complete, others_get_the_answer, {400, 18}, 0};

static void
release(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_RELEASE), IDEM_RECORDED);
}

static void
others_may_execute(struct scene *scene)
{
	assert_int_equal(claim_by_other(scene), IDEM_EXECUTE);
}

static const struct deed releases = {claim, release, others_may_execute, {240, 18}, 0};

static void
give_up(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_GIVE_UP), IDEM_RECORDED);
}

static void
others_are_told_of_the_doubt(struct scene *scene)
{
	assert_int_equal(claim_by_other(scene), IDEM_IN_DOUBT);
}

static const struct deed surrenders = {claim, give_up, others_are_told_of_the_doubt, {400, 18}, 0};

static void
claim_and_complete(struct scene *scene)
{
	claim(scene);
	complete(scene);
}

static void
replay(struct scene *scene)
{
	assert_int_equal(act(scene, IDEM_CLAIM), IDEM_REPLAY);
}

static const struct deed replays = {claim_and_complete, replay, others_get_the_answer, {400, 220}, 0};

/* ---- watches ---- */

static void
other_claims(struct scene *scene)
{
	assert_int_equal(actor_claim(&scene->other, &scene->request, &scene->claim), IDEM_EXECUTE);
}

static void
wait_for_hint(struct scene *scene)
{
	assert_ok(idem_poll_loop_run(scene->loop, &scene->changed, PATIENCE_MS));
	scene->changed = false;
}

/* Watches first, then asks: the end of what was found is told. */
static void
wait_for_other(struct scene *scene)
{
	struct idem_store *store = scene->actor.store;
	struct claim theirs = scene->claim;
	int verdict;

	scene->changed = false;
	assert_ok(store->ops->watch(store, &scene->watch));
	assert_int_equal(act(scene, IDEM_CLAIM), IDEM_IN_PROGRESS);
	assert_int_equal(actor_complete(&scene->other, &scene->request, &theirs, bytes_of("the answer")),
	                 IDEM_RECORDED);
	do {
		wait_for_hint(scene);
		verdict = act(scene, IDEM_CLAIM);
	} while (verdict == IDEM_IN_PROGRESS);
	assert_int_equal(verdict, IDEM_REPLAY);
	store->ops->unwatch(store, &scene->watch);
}

static const struct deed watches = {other_claims, wait_for_other, others_get_the_answer, {1000, 600}, 0};

/* ---- both connections, from their beginning ---- */

static void
close_and_let_other_claim(struct scene *scene)
{
	close_store(scene);
	other_claims(scene);
}

static void
open_and_wait_for_other(struct scene *scene)
{
	open_store(scene);
	wait_for_other(scene);
}

static const struct deed beginnings = {
	close_and_let_other_claim, open_and_wait_for_other, others_get_the_answer, {1100, 10000}, 31};

static void
close_only(struct scene *scene)
{
	close_store(scene);
}

static void
open_and_claim(struct scene *scene)
{
	open_store(scene);
	claim(scene);
}

static const struct deed openings = {
	close_only, open_and_claim, others_wait_until_it_is_completed, {60, 1000}, 31};

/* ---- tests ---- */

static void
cut(const struct deed *deed)
{
	struct scene *scene = scene_make("", NULL);

	cut_everywhere(scene, deed);
	scene_free(scene);
}

static void
a_claim_that_is_asked_again_is_ones_own(void **state)
{
	(void)state;
	cut(&claims);
}

static void
a_renewal_that_is_asked_again_keeps_the_lock(void **state)
{
	(void)state;
	cut(&renewals);
}

static void
a_completion_whose_acknowledgement_was_lost_is_settled(void **state)
{
	(void)state;
	cut(&completions);
}

static void
a_release_that_is_asked_again_sets_the_key_free(void **state)
{
	(void)state;
	cut(&releases);
}

static void
a_doubt_that_is_told_again_stays_one(void **state)
{
	(void)state;
	cut(&surrenders);
}

static void
an_answer_comes_whole_or_not_at_all(void **state)
{
	(void)state;
	cut(&replays);
}

static void
who_waits_is_woken_though_the_connection_was_lost(void **state)
{
	(void)state;
	cut(&watches);
}

static void
a_greeting_that_was_cut_off_is_begun_anew(void **state)
{
	static const char *const more[] = {"--requirepass", "open sesame", NULL};
	struct scene *scene;

	(void)state;
	scene = scene_make("&password=open%20sesame&db=3", more);
	cut_everywhere(scene, &beginnings);
	scene_free(scene);
}

/* An acknowledgement is then two replies: the server's own, and how many replicas have it. */
static void
what_replicas_must_have_is_counted_on_only_when_they_do(void **state)
{
	struct scene *scene = scene_make("&wait_replicas=1,1000", NULL);
	char port[8];
	const char *const more[] = {"--replicaof", "127.0.0.1", port, NULL};

	(void)state;
	(void)snprintf(port, sizeof port, "%u", scene->world.server.port);
	redis_server_start(&scene->second, more);
	redis_server_await(&scene->world.server, "INFO replication", "state=online");
	cut_everywhere(scene, &claims);
	cut_everywhere(scene, &completions);
	scene_free(scene);
}

/* The whole cluster is one node, which says that it is where the proxy is. */
static void
a_cluster_is_found_though_the_connection_is_cut(void **state)
{
	char bus[8];
	const char *const more[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};
	struct scene *scene;
	const struct redis_server *server;

	(void)state;
	(void)snprintf(bus, sizeof bus, "%u", free_port());
	scene = scene_make_server("", more);
	server = &scene->world.server;
	assert_string_equal(redis_server_say(server, "CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
	redis_server_await(server, "CLUSTER INFO", "cluster_state:ok");
	scene_put_proxy(scene, NULL, server->socket, 0);
	assert_string_equal(
		redis_server_say(server, "CONFIG SET cluster-announce-port %u", proxy_port(scene->proxy)),
		"OK");
	open_other(scene, "redis+cluster://127.0.0.1:%u", server->port);
	scene->form = "redis+cluster://127.0.0.1:%u?connections=1";
	open_store(scene);
	cut_everywhere(scene, &claims);
	cut_everywhere(scene, &openings);
	scene_free(scene);
}

/* The proxy is before the Sentinel. */
static void
sentinels_are_asked_until_they_answer(void **state)
{
	static const char *const more[] = {"--sentinel", NULL};
	struct scene *scene = scene_make_server("", NULL);

	(void)state;
	redis_server_start(&scene->second, more);
	assert_string_equal(redis_server_say(&scene->second, "SENTINEL MONITOR shop 127.0.0.1 %u 1",
	                                     scene->world.server.port),
	                    "OK");
	scene_put_proxy(scene, NULL, NULL, scene->second.port);
	open_other(scene, "redis://127.0.0.1:%u", scene->world.server.port);
	scene->form = "redis+sentinel://127.0.0.1:%u/shop?connections=1";
	open_store(scene);
	cut_everywhere(scene, &openings);
	scene_free(scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_claim_that_is_asked_again_is_ones_own),
		cmocka_unit_test(a_renewal_that_is_asked_again_keeps_the_lock),
		cmocka_unit_test(a_completion_whose_acknowledgement_was_lost_is_settled),
		cmocka_unit_test(a_release_that_is_asked_again_sets_the_key_free),
		cmocka_unit_test(a_doubt_that_is_told_again_stays_one),
		cmocka_unit_test(an_answer_comes_whole_or_not_at_all),
		cmocka_unit_test(who_waits_is_woken_though_the_connection_was_lost),
		cmocka_unit_test(a_greeting_that_was_cut_off_is_begun_anew),
		cmocka_unit_test(a_cluster_is_found_though_the_connection_is_cut),
		cmocka_unit_test(sentinels_are_asked_until_they_answer),
		cmocka_unit_test(what_replicas_must_have_is_counted_on_only_when_they_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
