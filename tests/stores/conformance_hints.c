/* What every store promises to those who wait for a cell: a hint from the loop, whoever changed it. */
#include <sys/wait.h>
#include <unistd.h>

#include "conformance_scene.h"

#define SOON_MS 10000 /* only a test that fails waits so long */

struct ear {
	struct idem_watch watch;
	bool heard;
};

static void
has_changed(struct idem_watch *watch)
{
	((struct ear *)watch)->heard = true;
}

static void
listen_to(struct ear *ear, struct scene *scene, const struct request *request)
{
	*ear = (struct ear){.watch = {.id = request->id, .changed = has_changed}};
	assert_ok(scene->actor.store->ops->watch(scene->actor.store, &ear->watch));
	assert_false(ear->heard);
}

static void
assert_hears(struct scene *scene, struct ear *ear)
{
	assert_ok(idem_poll_loop_run(scene->loop, &ear->heard, SOON_MS));
	scene->actor.store->ops->unwatch(scene->actor.store, &ear->watch);
}

static void
each_end_of_an_execution_is_heard(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_RELEASE, IDEM_GIVE_UP, IDEM_COMPLETE};
	struct scene scene = scene_open(state);
	struct actor other = {scene.fixture->open(scene.fixture, scene.loop), scene.loop};

	assert_non_null(other.store);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct request request = new_key(&scene);
		struct claim claim = win(&scene, &request);
		struct ear ear;

		listen_to(&ear, &scene, &request);
		assert_int_equal(ask(&scene, &request), IDEM_IN_PROGRESS);
		assert_int_equal(actor_settle(&other, &request, &claim, verbs[i], bytes_of("x")),
		                 IDEM_RECORDED);
		assert_hears(&scene, &ear);
	}
	idem_store_close(other.store);
	scene_close(&scene);
}

static int
complete_in_child(struct scene *scene, const struct request *request, const struct claim *claim)
{
	struct actor actor = {0};

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return 1;
	actor.store = scene->fixture->open(scene->fixture, actor.loop);
	if (actor.store == NULL)
		return 1;
	if (actor_complete(&actor, request, claim, bytes_of("from afar")) != IDEM_RECORDED)
		return 1;
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return 0;
}

static void
another_process_is_heard(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);
	struct ear ear;
	int status;
	pid_t child;

	listen_to(&ear, &scene, &request);
	assert_int_equal(ask(&scene, &request), IDEM_IN_PROGRESS);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(complete_in_child(&scene, &request, &claim));
	assert_hears(&scene, &ear);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_replays(&scene.actor, &request, bytes_of("from afar"));
	scene_close(&scene);
}

/* Hints come in order: once one of another key is heard, all that was on its way before it has come. */
static void
hear_all_that_is_on_its_way(struct scene *scene)
{
	struct request request = new_key(scene);
	struct claim claim = win(scene, &request);
	struct ear ear;

	listen_to(&ear, scene, &request);
	assert_int_equal(ask(scene, &request), IDEM_IN_PROGRESS);
	assert_int_equal(complete(scene, &request, &claim, "x"), IDEM_RECORDED);
	assert_hears(scene, &ear);
}

static void
a_renewal_is_no_change(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene);
	struct claim claim = win(&scene, &request);
	struct ear ear;

	listen_to(&ear, &scene, &request);
	assert_int_equal(ask(&scene, &request), IDEM_IN_PROGRESS);
	/* A store may say "look again" of its own accord when it begins to listen. */
	hear_all_that_is_on_its_way(&scene);
	ear.heard = false;
	for (int i = 0; i < 3; i++)
		assert_int_equal(actor_renew(&scene.actor, &request, &claim), IDEM_RECORDED);
	hear_all_that_is_on_its_way(&scene);
	assert_false(ear.heard);
	assert_int_equal(complete(&scene, &request, &claim, "x"), IDEM_RECORDED);
	assert_hears(&scene, &ear);
	scene_close(&scene);
}

const struct promise conformance_hints[] = {
	PROMISE(each_end_of_an_execution_is_heard),
	PROMISE(another_process_is_heard),
	PROMISE(a_renewal_is_no_change),
	{NULL, NULL},
};
