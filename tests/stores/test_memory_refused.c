/* Regions that are not what they should be are refused, each with its own error. */
#include <sys/mman.h>

#include "../../src/stores/memory/layout.h"
#include "../support/test.h"
#include "actor.h"
#include "memory_world.h"

#define REGION_BYTES (IDEM_MEMORY_MIN_BYTES + 8192)

static const struct idem_bytes name = {"orders", 6};

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

static int
open_region(struct memory_world *world, size_t len)
{
	struct idem_memory_options options = {.region = world->region, .len = len};
	struct idem_store *store = NULL;
	int rc = idem_memory_open(&options, &store);

	assert_int_equal(idem_memory_check(world->region, len), rc);
	if (rc != IDEM_OK)
		assert_null(store);
	idem_store_close(store);
	return rc;
}

static void
a_fresh_region_opens(void **state)
{
	assert_ok(open_region(*state, REGION_BYTES));
}

static void
what_was_never_formatted_is_refused(void **state)
{
	struct memory_world *world = *state;

	memset(world->region, 0, REGION_BYTES);
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
	memset(world->region, 'x', REGION_BYTES);
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
}

static void
a_header_cut_short_is_refused(void **state)
{
	assert_int_equal(open_region(*state, 0), IDEM_E_CORRUPT);
	assert_int_equal(open_region(*state, sizeof(struct region) - 1), IDEM_E_CORRUPT);
}

static void
another_length_is_refused(void **state)
{
	assert_int_equal(open_region(*state, REGION_BYTES - 4096), IDEM_E_INVALID);
	assert_int_equal(open_region(*state, REGION_BYTES + 4096), IDEM_E_INVALID);
}

static void
another_version_is_refused(void **state)
{
	struct memory_world *world = *state;

	((struct region *)world->region)->version++;
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_VERSION);
}

static void
a_damaged_geometry_is_refused(void **state)
{
	struct memory_world *world = *state;
	struct region *region = world->region;

	region->buckets_per_shard += 8;
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
	assert_true(memory_world_format(world));
	region->block_count++;
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
	assert_true(memory_world_format(world));
	region->blocks_at += 64;
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
	assert_true(memory_world_format(world));
	region->buckets_at = 0;
	assert_int_equal(open_region(world, REGION_BYTES), IDEM_E_CORRUPT);
}

static void
no_region_is_made_where_none_can_be(void **state)
{
	struct memory_world *world = *state;
	char *region = world->region;
	static const char long_name[64] = "0123456789012345678901234567890123456789012345678901234567890123";

	assert_int_equal(idem_memory_format(region + 64, REGION_BYTES - 4096, name), IDEM_E_INVALID);
	assert_int_equal(idem_memory_format(region, IDEM_MEMORY_MIN_BYTES - 1, name), IDEM_E_INVALID);
	assert_int_equal(idem_memory_format(region, ((size_t)1 << 38) + 1, name), IDEM_E_INVALID);
	assert_int_equal(idem_memory_format(region, REGION_BYTES, (struct idem_bytes){"", 0}),
	                 IDEM_E_INVALID);
	assert_int_equal(idem_memory_format(region, REGION_BYTES, (struct idem_bytes){long_name, 64}),
	                 IDEM_E_INVALID);
	assert_ok(idem_memory_format(region, REGION_BYTES, (struct idem_bytes){long_name, 63}));
}

static void
what_is_refused_is_left_as_it_was(void **state)
{
	static const size_t lens[] = {0, 4096, IDEM_MEMORY_MIN_BYTES - 1, ((size_t)1 << 38) + 1};
	struct memory_world *world = *state;
	struct request request = actor_request(1, 1000, 1000);
	struct actor actor = {.store = memory_world_open(world, NULL)};

	assert_non_null(actor.store);
	assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_EXECUTE);
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
		assert_int_equal(idem_memory_format(world->region, lens[i], name), IDEM_E_INVALID);
	assert_ok(open_region(world, REGION_BYTES));
	assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_IN_PROGRESS);
	idem_store_close(actor.store);
}

static void
a_store_without_a_loop_cannot_watch(void **state)
{
	struct idem_store *store = memory_world_open(*state, NULL);
	struct idem_watch watch = {0};

	assert_non_null(store);
	assert_int_equal(store->ops->watch(store, &watch), IDEM_E_INVALID);
	idem_store_close(store);
}

static void
a_lease_that_no_cell_can_hold_is_refused(void **state)
{
	struct request request = actor_request(1, (uint64_t)UINT32_MAX + 1, 1000);
	struct actor actor = {.store = memory_world_open(*state, NULL)};

	assert_non_null(actor.store);
	assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_E_INVALID);
	request.policy.lease_ms = UINT32_MAX;
	assert_int_equal(actor_claim(&actor, &request, NULL), IDEM_EXECUTE);
	idem_store_close(actor.store);
}

static void
another_store_has_no_usage_and_nothing_to_verify(void **state)
{
	static const struct idem_store_ops ops = {.name = "other"};
	struct idem_store other = {&ops};
	struct idem_memory_usage usage;
	char fault[16];

	(void)state;
	assert_int_equal(idem_memory_usage(&other, &usage), IDEM_E_INVALID);
	assert_int_equal(idem_memory_verify(&other, fault, sizeof fault), IDEM_E_INVALID);
}

/* ---- damage, done to a region with one answer in it ---- */

struct patient {
	struct shard *shard;
	struct bucket *bucket;
	union block *first, *second;
};

static void
lose_a_block(struct patient *patient)
{
	patient->second->next = 0;
	patient->second->second.u.payload_len = 0;
}

static void
share_a_block(struct patient *patient)
{
	patient->second->next = patient->first->first.second;
}

static void
count_wrongly(struct patient *patient)
{
	patient->shard->cells++;
}

static void
put_into_the_wrong_bucket(struct patient *patient)
{
	/* The highest bit of what places a cell, whatever the secret is. */
	patient->first->first.id.b[IDEM_ID_LEN / 2 + 7] ^= 0x80;
}

static void
claim_more_payload(struct patient *patient)
{
	patient->second->second.u.payload_len += BLOCK_PAYLOAD;
}

static void
hide_the_end(struct patient *patient)
{
	patient->bucket->until += 10000;
}

static void
hide_from_the_filter(struct patient *patient)
{
	patient->bucket->filter = 0;
}

static struct patient
find_patient(struct memory_store *store)
{
	struct patient patient = {.shard = store->region->shards};

	while (patient.shard->cells == 0)
		patient.shard++;
	patient.bucket = bucket_of(store, patient.shard, 0);
	while (patient.bucket->first == 0)
		patient.bucket++;
	patient.first = block_at(store, patient.bucket->first);
	patient.second = block_at(store, patient.first->first.second);
	return patient;
}

static void
the_checker_sees_damage(void **state)
{
	static void (*const damages[])(struct patient *) = {
		lose_a_block,       share_a_block, count_wrongly,        put_into_the_wrong_bucket,
		claim_more_payload, hide_the_end,  hide_from_the_filter,
	};
	struct request request = actor_request(1, 1000, 1000);

	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		struct actor actor;
		struct patient patient;
		struct claim claim;
		char fault[128] = "";

		assert_true(memory_world_format(*state));
		actor = (struct actor){.store = memory_world_open(*state, NULL)};
		assert_int_equal(actor_claim(&actor, &request, &claim), IDEM_EXECUTE);
		assert_int_equal(actor_complete(&actor, &request, &claim, name), IDEM_RECORDED);
		assert_ok(idem_memory_verify(actor.store, fault, sizeof fault));
		patient = find_patient((struct memory_store *)actor.store);
		damages[i](&patient);
		assert_int_equal(idem_memory_verify(actor.store, fault, sizeof fault), IDEM_E_CORRUPT);
		assert_true(strlen(fault) > 0);
		idem_store_close(actor.store);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_fresh_region_opens),
		TEST(what_was_never_formatted_is_refused),
		TEST(a_header_cut_short_is_refused),
		TEST(another_length_is_refused),
		TEST(another_version_is_refused),
		TEST(a_damaged_geometry_is_refused),
		TEST(no_region_is_made_where_none_can_be),
		TEST(what_is_refused_is_left_as_it_was),
		TEST(a_store_without_a_loop_cannot_watch),
		TEST(a_lease_that_no_cell_can_hold_is_refused),
		TEST(another_store_has_no_usage_and_nothing_to_verify),
		TEST(the_checker_sees_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
