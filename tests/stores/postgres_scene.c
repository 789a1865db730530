/* One user of a PostgreSQL store, and a server that has all kinds of trouble. */
#include "postgres_scene.h"

#define PATIENCE_MS 10000
#define TURN_MS 10

void
scene_make(struct postgres_scene *scene, const char *const *more)
{
	memset(scene, 0, sizeof *scene);
	postgres_world_make(&scene->world, more);
	assert_ok(idem_poll_loop_new(&scene->actor.loop));
}

void
scene_open_uri(struct postgres_scene *scene, const char *uri)
{
	if (uri != scene->world.uri)
		(void)snprintf(scene->world.uri, sizeof scene->world.uri, "%s", uri);
	scene->actor.store = postgres_world_open(&scene->world, scene->actor.loop);
	if (scene->actor.store == NULL)
		fail_msg("%s: %s", uri, scene->world.why);
}

void
scene_open(struct postgres_scene *scene, const char *options)
{
	(void)snprintf(scene->world.uri, sizeof scene->world.uri,
	               "postgres://gateway@/postgres?host=%s&port=%u%s", scene->world.server.directory,
	               scene->world.server.port, options);
	scene_open_uri(scene, scene->world.uri);
}

void
scene_close(struct postgres_scene *scene)
{
	idem_store_close(scene->actor.store);
	scene->actor.store = NULL;
}

void
scene_free(struct postgres_scene *scene)
{
	scene_close(scene);
	idem_poll_loop_free(scene->actor.loop);
	postgres_world_free(&scene->world);
}

struct request
scene_key(struct postgres_scene *scene)
{
	return actor_request(scene->next_key++, LEASE_MS, TTL_MS);
}

int
scene_claim(struct postgres_scene *scene)
{
	struct request request = scene_key(scene);

	return actor_claim(&scene->actor, &request, NULL);
}

uint64_t
scene_now_ms(const struct postgres_scene *scene)
{
	return scene->actor.loop->ops->now_ms(scene->actor.loop);
}

void
scene_run(struct postgres_scene *scene, int64_t ms)
{
	(void)(idem_poll_loop_run(scene->actor.loop, NULL, ms) == IDEM_OK);
}

uint64_t
scene_recover(struct postgres_scene *scene)
{
	uint64_t began_ms = scene_now_ms(scene);

	for (;;) {
		uint64_t since_ms = scene_now_ms(scene) - began_ms;

		if (scene_claim(scene) == IDEM_EXECUTE)
			return since_ms;
		if (since_ms > PATIENCE_MS)
			fail_msg("the store does not recover:\n%s", scene->world.report);
		scene_run(scene, TURN_MS);
	}
}

void
scene_await_report(struct postgres_scene *scene, const char *text)
{
	uint64_t until_ms = scene_now_ms(scene) + PATIENCE_MS;

	while (strstr(scene->world.report, text) == NULL) {
		if (scene_now_ms(scene) > until_ms)
			fail_msg("it said\n%s, and not %s", scene->world.report, text);
		scene_run(scene, TURN_MS);
	}
}
