/* One user of a PostgreSQL store, and a server that has all kinds of trouble. */
#ifndef IDEM_TEST_POSTGRES_SCENE_H
#define IDEM_TEST_POSTGRES_SCENE_H

#include "../support/test.h"
#include "actor.h"
#include "postgres_world.h"

#define LEASE_MS 60000
#define TTL_MS 120000

struct postgres_scene {
	struct postgres_world world;
	struct actor actor;
	uint64_t next_key;
};

/* more: see postgres_server_start(). The store is opened by scene_open(). */
void scene_make(struct postgres_scene *scene, const char *const *more);
void scene_free(struct postgres_scene *scene);

/* At the server's socket, with these options, from "&" on. */
void scene_open(struct postgres_scene *scene, const char *options);
/* With this URI. */
void scene_open_uri(struct postgres_scene *scene, const char *uri);
void scene_close(struct postgres_scene *scene);

struct request scene_key(struct postgres_scene *scene);
/* A claim of a new key: its verdict, or its status. */
int scene_claim(struct postgres_scene *scene);
/* Until claims are taken: for how long that was, in ms. Fails the test if it takes too long. */
uint64_t scene_recover(struct postgres_scene *scene);
/* Until the store complains of this. Fails the test if it does not. */
void scene_await_report(struct postgres_scene *scene, const char *text);
void scene_run(struct postgres_scene *scene, int64_t ms);
uint64_t scene_now_ms(const struct postgres_scene *scene);

#endif
