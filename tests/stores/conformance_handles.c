/* What every store promises to its many users: one truth, also in a race. */
#include <sys/wait.h>
#include <unistd.h>

#include "conformance_scene.h"
#include "race.h"

static void
what_is_stored_outlives_the_handle_that_stored_it(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), running = new_key(&scene);
	struct claim claim = win(&scene, &request), owner = win(&scene, &running);

	assert_int_equal(complete(&scene, &request, &claim, "answer"), IDEM_RECORDED);
	scene_close(&scene);
	scene = scene_open(state);
	assert_replays(&scene.actor, &request, bytes_of("answer"));
	assert_int_equal(ask(&scene, &running), IDEM_IN_PROGRESS);
	assert_int_equal(complete(&scene, &running, &owner, "from elsewhere"), IDEM_RECORDED);
	scene_close(&scene);
}

#define RACERS 4
#define RACE_KEYS 1000

static int
race_in_child(struct conformance *fixture, struct race *race)
{
	struct actor actor = {0};
	bool fine;

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return 1;
	actor.store = fixture->open(fixture, actor.loop);
	if (actor.store == NULL)
		return 1;
	fine = race_run(race, &actor);
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return fine ? 0 : 1;
}

static void
of_many_processes_exactly_one_executes_each_key(void **state)
{
	struct conformance *fixture = *state;
	struct race *race = race_make(fixture->next_key, RACE_KEYS, RACERS, LEASE * fixture->unit_ms);
	pid_t children[RACERS];

	fixture->next_key += RACE_KEYS;
	assert_non_null(race);
	for (int i = 0; i < RACERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0)
			_exit(race_in_child(fixture, race));
	}
	for (int i = 0; i < RACERS; i++) {
		int status;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(race_wrong(race), 0);
	race_free(race);
}

const struct promise conformance_handles[] = {
	PROMISE(what_is_stored_outlives_the_handle_that_stored_it),
	PROMISE(of_many_processes_exactly_one_executes_each_key),
	{NULL, NULL},
};
