/* Runs all that every store promises. */
#include "conformance_scene.h"

static const struct promise *const lists[] = {
	conformance_transitions, conformance_lost_answers, conformance_payloads,
	conformance_times,       conformance_handles,      conformance_hints,
};

int
conformance_run(struct conformance *fixture)
{
	struct CMUnitTest tests[64] = {0};
	size_t count = 0;

	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (const struct promise *promise = lists[i]; promise->test != NULL; promise++) {
			if (count == sizeof tests / sizeof *tests) {
				(void)fprintf(stderr, "there are more promises than room for them\n");
				return 1;
			}
			tests[count++] = (struct CMUnitTest){
				.name = promise->name,
				.test_func = promise->test,
				.initial_state = fixture,
			};
		}
	return _cmocka_run_group_tests(fixture->name, tests, count, NULL, NULL);
}
