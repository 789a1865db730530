/* Where the cells of a memory store lie: evenly, and where nobody can foretell. */
#include "../../src/stores/memory/layout.h"
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES ((size_t)4 << 20)

static int
make(void **state)
{
	static struct memory_world world;

	*state = &world;
	return memory_world_make(&world, REGION_BYTES) ? 0 : -1;
}

static int
unmake(void **state)
{
	memory_world_free(*state);
	return 0;
}

/* Its bucket's number among all of the store. */
static size_t
place_of(struct idem_store *store, uint64_t number)
{
	const struct memory_store *memory = (struct memory_store *)store;
	struct request request = actor_request(number, 1000, 1000);

	return (size_t)(idem_memory_place(memory, &request.id).bucket - memory->buckets);
}

static void
keys_are_spread_over_all_shards_and_buckets(void **state)
{
	struct idem_store *store = memory_world_open(*state, NULL);
	size_t per_shard, buckets;
	uint32_t *counts, of_shard[SHARD_COUNT] = {0};

	assert_non_null(store);
	per_shard = ((struct memory_store *)store)->region->buckets_per_shard;
	buckets = per_shard * SHARD_COUNT;
	counts = calloc(buckets, sizeof *counts);
	assert_non_null(counts);
	for (uint64_t number = 0; number < buckets; number++) {
		size_t place = place_of(store, number);

		/* One for each on average: with chance alone, a bucket of twenty comes once in 10^14 stores.
		 */
		assert_in_range(++counts[place], 1, 19);
		of_shard[place / per_shard]++;
	}
	for (size_t i = 0; i < SHARD_COUNT; i++)
		assert_in_range(of_shard[i], per_shard / 2, per_shard * 2);
	free(counts);
	idem_store_close(store);
}

/* Keys that meet in one bucket of a store tell nothing of any other store. */
static void
where_a_key_lies_differs_from_store_to_store(void **state)
{
	enum { KEYS = 1000 };
	struct idem_store *store = memory_world_open(*state, NULL);
	static size_t places[KEYS];
	unsigned same = 0;

	assert_non_null(store);
	for (uint64_t number = 0; number < KEYS; number++)
		places[number] = place_of(store, number);
	assert_true(memory_world_format(*state));
	for (uint64_t number = 0; number < KEYS; number++)
		same += place_of(store, number) == places[number];
	assert_in_range(same, 0, KEYS / 20);
	idem_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(keys_are_spread_over_all_shards_and_buckets),
		TEST(where_a_key_lies_differs_from_store_to_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
