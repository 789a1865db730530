/* What every store promises to those who did not hear its answer and ask again. */
#include "conformance_scene.h"

static void
a_claim_made_twice_with_one_tag_is_one_claim(void **state)
{
	struct scene scene = scene_open(state);
	struct request cautious = new_key(&scene), request = daring(&cautious);
	struct claim claim = win(&scene, &cautious), second;

	assert_int_equal(actor_claim_again(&scene.actor, &cautious, &claim), IDEM_EXECUTE);
	assert_int_equal(claim.attempt, 1);
	assert_int_equal(settle(&scene, &cautious, &claim, IDEM_GIVE_UP), IDEM_RECORDED);
	second = win(&scene, &request);
	assert_int_equal(actor_claim_again(&scene.actor, &request, &second), IDEM_EXECUTE);
	assert_int_equal(second.attempt, 2);
	assert_int_equal(complete(&scene, &request, &second, "once"), IDEM_RECORDED);
	scene_close(&scene);
}

static void
a_settlement_made_twice_with_one_tag_is_recorded_once(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_GIVE_UP};
	struct scene scene = scene_open(state);

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct request request = new_key(&scene);
		struct claim claim = win(&scene, &request);
		struct idem_tag fresh = actor_tag();

		for (int again = 0; again < 2; again++)
			assert_int_equal(actor_settle_again(&scene.actor, &request, &claim, verbs[i],
			                                    bytes_of("once"), &fresh),
			                 IDEM_RECORDED);
	}
	scene_close(&scene);
}

static void
an_owner_who_did_not_hear_of_its_own_renewal_is_still_the_owner(void **state)
{
	static const enum idem_verb verbs[] = {IDEM_COMPLETE, IDEM_RELEASE, IDEM_GIVE_UP, IDEM_RENEW};
	struct scene scene = scene_open(state);

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		struct request request = new_key(&scene);
		struct claim claim = win(&scene, &request), unheard = claim;

		assert_int_equal(actor_renew(&scene.actor, &request, &unheard), IDEM_RECORDED);
		assert_int_equal(settle(&scene, &request, &claim, verbs[i]), IDEM_RECORDED);
	}
	scene_close(&scene);
}

const struct promise conformance_lost_answers[] = {
	PROMISE(a_claim_made_twice_with_one_tag_is_one_claim),
	PROMISE(a_settlement_made_twice_with_one_tag_is_recorded_once),
	PROMISE(an_owner_who_did_not_hear_of_its_own_renewal_is_still_the_owner),
	{NULL, NULL},
};
