/* Many users claim the same keys at once. */
#include "race.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HOUR_MS 3600000

struct note {
	uint32_t arrived;
	uint32_t executions;
	uint32_t strange; /* answers that nobody recorded */
};

struct race {
	uint64_t first_key;
	size_t keys;
	uint64_t lease_ms;
	uint32_t users;
	bool broken; /* somebody has left: nobody waits any more */
	struct note notes[];
};

static size_t
race_bytes(size_t keys)
{
	return sizeof(struct race) + keys * sizeof(struct note);
}

struct race *
race_make(uint64_t first_key, size_t keys, uint32_t users, uint64_t lease_ms)
{
	struct race *race =
		mmap(NULL, race_bytes(keys), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (race == MAP_FAILED)
		return NULL;
	race->first_key = first_key;
	race->keys = keys;
	race->users = users;
	race->lease_ms = lease_ms;
	return race;
}

void
race_free(struct race *race)
{
	(void)munmap(race, race_bytes(race->keys));
}

static void
count(uint32_t *word)
{
	(void)__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
}

static size_t
payload_len(uint64_t key)
{
	return (size_t)(key % 300);
}

static bool
execute(struct race *race, struct actor *actor, const struct request *request, const struct claim *claim,
        size_t i)
{
	uint64_t key = race->first_key + i;
	void *bytes = payload_make(key, payload_len(key));
	int verdict;

	count(&race->notes[i].executions);
	verdict = actor_complete(actor, request, claim, (struct idem_bytes){bytes, payload_len(key)});
	free(bytes);
	return verdict == IDEM_RECORDED;
}

static bool
claim_one(struct race *race, struct actor *actor, size_t i)
{
	uint64_t key = race->first_key + i;
	struct request request = actor_request(key, race->lease_ms, HOUR_MS);
	struct claim claim;
	int verdict = actor_claim(actor, &request, &claim);

	if (verdict == IDEM_EXECUTE)
		return execute(race, actor, &request, &claim, i);
	if (verdict == IDEM_REPLAY && !payload_is(claim.found.payload, key, payload_len(key)))
		count(&race->notes[i].strange);
	claim_free(&claim);
	return verdict == IDEM_REPLAY || verdict == IDEM_IN_PROGRESS;
}

static bool
all_are_here(struct race *race, size_t i)
{
	return __atomic_load_n(&race->notes[i].arrived, __ATOMIC_SEQ_CST) >= race->users ||
	       __atomic_load_n(&race->broken, __ATOMIC_SEQ_CST);
}

/* Who has a processor spins, so as to go on in the same moment as the last one to come. */
static void
meet(struct race *race, size_t i)
{
	count(&race->notes[i].arrived);
	for (unsigned spins = 1; !all_are_here(race, i); spins++)
		if (spins % 4096 == 0)
			(void)sched_yield();
}

bool
race_run(struct race *race, struct actor *actor)
{
	for (size_t i = 0; i < race->keys; i++) {
		meet(race, i);
		if (!claim_one(race, actor, i)) {
			__atomic_store_n(&race->broken, true, __ATOMIC_SEQ_CST);
			return false;
		}
	}
	return true;
}

struct runner {
	pthread_t thread;
	struct race *race;
	struct idem_store *(*open)(void *data, struct idem_loop *loop);
	void *data;
	bool fine;
};

static void *
run_in_thread(void *data)
{
	struct runner *runner = data;
	struct actor actor = {0};

	if (idem_poll_loop_new(&actor.loop) != IDEM_OK)
		return NULL;
	actor.store = runner->open(runner->data, actor.loop);
	if (actor.store != NULL)
		runner->fine = race_run(runner->race, &actor);
	else
		__atomic_store_n(&runner->race->broken, true, __ATOMIC_SEQ_CST);
	idem_store_close(actor.store);
	idem_poll_loop_free(actor.loop);
	return NULL;
}

bool
race_in_threads(struct race *race, struct idem_store *(*open)(void *data, struct idem_loop *loop), void *data)
{
	struct runner *runners = calloc(race->users, sizeof *runners);
	bool fine = runners != NULL;

	for (uint32_t i = 0; runners != NULL && i < race->users; i++) {
		runners[i] = (struct runner){.race = race, .open = open, .data = data};
		if (pthread_create(&runners[i].thread, NULL, run_in_thread, &runners[i]) != 0)
			abort(); /* those who have begun would wait for it */
	}
	for (uint32_t i = 0; runners != NULL && i < race->users; i++) {
		fine &= pthread_join(runners[i].thread, NULL) == 0;
		fine &= runners[i].fine;
	}
	free(runners);
	return fine;
}

size_t
race_wrong(const struct race *race)
{
	size_t wrong = 0;

	for (size_t i = 0; i < race->keys; i++)
		wrong += race->notes[i].executions != 1 || race->notes[i].strange != 0;
	return wrong;
}
