/* One user of a Redis store, and a server that has all kinds of trouble. */
#ifndef IDEM_TEST_REDIS_SCENE_H
#define IDEM_TEST_REDIS_SCENE_H

#include "../support/test.h"
#include "actor.h"
#include "redis_world.h"

#define LEASE_MS 60000
#define TTL_MS 120000

struct redis_scene {
	struct redis_world world;
	struct actor actor;
	uint64_t next_key;
};

/* more: see redis_server_start(). The store is opened by scene_open(). */
void scene_make(struct redis_scene *scene, const char *const *more);
void scene_free(struct redis_scene *scene);

/* With these options, from "?" on. */
void scene_open(struct redis_scene *scene, const char *options);
/* With this URI. */
void scene_open_uri(struct redis_scene *scene, const char *uri);
void scene_close(struct redis_scene *scene);

struct request scene_key(struct redis_scene *scene);
/* A claim of a new key: its verdict, or its status. */
int scene_claim(struct redis_scene *scene);
/* Until claims are taken: for how long that was, in ms. Fails the test if it takes too long. */
uint64_t scene_recover(struct redis_scene *scene);
/* Until the store complains of this. Fails the test if it does not. */
void scene_await_report(struct redis_scene *scene, const char *text);
void scene_run(struct redis_scene *scene, int64_t ms);
uint64_t scene_now_ms(const struct redis_scene *scene);

#endif
