/* What every store promises about answers: whole, and only for those whom they are for. */
#include <stdlib.h>

#include "conformance_scene.h"

static void
complete_with(struct scene *scene, struct actor *reader, size_t len)
{
	struct request request = new_key(scene), other = changed(&request);
	uint64_t number = scene->fixture->next_key;
	struct claim claim = win(scene, &request), found;
	void *bytes = payload_make(number, len);

	assert_int_equal(actor_complete(&scene->actor, &request, &claim, (struct idem_bytes){bytes, len}),
	                 IDEM_RECORDED);
	free(bytes);
	assert_int_equal(actor_claim(reader, &request, &found), IDEM_REPLAY);
	assert_true(payload_is(found.found.payload, number, len));
	claim_free(&found);
	assert_int_equal(actor_claim(reader, &other, &found), IDEM_MISMATCH);
	assert_null(found.payload);
}

static void
answers_of_every_size_come_back_byte_for_byte(void **state)
{
	static const size_t sizes[] = {0, 1, 59, 60, 61, 119, 120, 121, 4095, 4096, 65536, 5 << 20};
	struct scene scene = scene_open(state);
	struct actor reader = {scene.fixture->open(scene.fixture, scene.loop), scene.loop};

	assert_non_null(reader.store);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i] <= scene.fixture->payload_max)
			complete_with(&scene, &reader, sizes[i]);
	idem_store_close(reader.store);
	scene_close(&scene);
}

static void
only_who_wants_the_answer_and_brings_its_request_gets_it(void **state)
{
	struct scene scene = scene_open(state);
	struct request request = new_key(&scene), other = changed(&request);
	struct claim claim = win(&scene, &request);
	struct idem_io io;

	assert_int_equal(complete(&scene, &request, &claim, "secret"), IDEM_RECORDED);
	io = look(&scene, &request, false);
	assert_int_equal(io.seen.state, IDEM_STORED);
	assert_null(io.seen.payload.data);
	look_end(&scene, &io);
	io = look(&scene, &other, true);
	assert_int_equal(io.seen.state, IDEM_STORED);
	assert_memory_equal(&io.seen.fingerprint, &request.fingerprint, sizeof request.fingerprint);
	assert_null(io.seen.payload.data);
	look_end(&scene, &io);
	io = look(&scene, &request, true);
	assert_int_equal(io.seen.payload.len, 6);
	assert_memory_equal(io.seen.payload.data, "secret", 6);
	look_end(&scene, &io);
	scene_close(&scene);
}

const struct promise conformance_payloads[] = {
	PROMISE(answers_of_every_size_come_back_byte_for_byte),
	PROMISE(only_who_wants_the_answer_and_brings_its_request_gets_it),
	{NULL, NULL},
};
