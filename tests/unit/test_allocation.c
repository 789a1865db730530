/* Each allocation fails once: every call says IDEM_E_NOMEM or works, and nothing leaks (the sanitizer looks).
 */
#include <jansson.h>

#include "sim.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);

static long countdown = -1; /* the allocation that fails; negative: none */

static bool
fails_now(void)
{
	return countdown >= 0 && countdown-- == 0;
}

void *
__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
	return fails_now() ? NULL : __real_realloc(old, size);
}

static struct idem_fingerprint right; /* the one of a run without failures */

static int
fingerprint_json(void)
{
	struct idem_pointer *ignore = NULL;
	struct idem_body_rules rules = {.mode = IDEM_BODY_JSON, .keep_json = true, .json_max = 1000};
	struct idem_fingerprint fingerprint = {{0}};
	struct idem_body *body = NULL;
	static const char first[] = "{\"a\":[1,2.5,\"x\"],", second[] = "\"b\":{\"c\":null}}";
	int rc = idem_pointer_parse(bytes_of("/b/c"), &ignore);

	rules.ignore = &ignore;
	rules.ignore_count = 1;
	if (rc == IDEM_OK)
		rc = idem_body_new(&rules, &body);
	if (rc == IDEM_OK)
		rc = idem_body_add(body, first, sizeof first - 1);
	if (rc == IDEM_OK)
		rc = idem_body_add(body, second, sizeof second - 1);
	if (rc == IDEM_OK)
		rc = idem_body_finish(body);
	if (rc == IDEM_OK)
		rc = idem_fingerprint_make(bytes_of("POST /"), body, &fingerprint);
	idem_body_free(body);
	idem_pointer_free(ignore);
	if (rc == IDEM_OK && right.b[0] == 0)
		right = fingerprint;
	if (rc == IDEM_OK)
		assert_memory_equal(&fingerprint, &right, sizeof right);
	return rc;
}

static int
render_problem(void)
{
	struct idem_problem problem = {.code = IDEM_PROBLEM_KEY_REUSED};
	char *text = NULL;
	size_t len;
	int rc = idem_problem_render(&problem, &text, &len);

	free(text);
	return rc;
}

static int
make_guard(void)
{
	struct idem_guard_env env = {.store_timeout_ms = 1};
	struct idem_guard_request request = {.policy = {1, 1, false}};
	struct idem_guard *guard = NULL;
	int rc = idem_guard_new(&env, &request, NULL, NULL, &guard);

	idem_guard_free(guard);
	assert_int_equal(env.busy, 0);
	return rc;
}

static int
make_loop(void)
{
	struct idem_loop *loop = NULL;
	struct idem_fd watch = {.fd = 0};
	int rc = idem_poll_loop_new(&loop);

	if (rc == IDEM_OK)
		rc = loop->ops->fd_watch(loop, &watch, IDEM_READABLE);
	idem_poll_loop_free(loop);
	return rc;
}

/* Fails the first, the second, ... allocation, until all of them have been met. */
static void
fail_each(int (*work)(void))
{
	long n = 0, failures = 0;

	for (;; n++) {
		int rc;

		countdown = n;
		rc = work();
		if (countdown >= 0) {
			countdown = -1;
			assert_ok(rc);
			break;
		}
		countdown = -1;
		if (rc != IDEM_E_NOMEM && rc != IDEM_OK)
			fail_msg("allocation %ld: %s", n, idem_strerror(rc));
		failures += rc == IDEM_E_NOMEM;
		assert_in_range(n, 0, 1000);
	}
	assert_true(n > 0 && failures > 0);
}

static void
fingerprints_say_so(void **state)
{
	(void)state;
	assert_ok(fingerprint_json());
	fail_each(fingerprint_json);
}

static void
problems_say_so(void **state)
{
	(void)state;
	fail_each(render_problem);
}

static void
guards_and_loops_say_so(void **state)
{
	(void)state;
	fail_each(make_guard);
	fail_each(make_loop);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(fingerprints_say_so),
		cmocka_unit_test(problems_say_so),
		cmocka_unit_test(guards_and_loops_say_so),
	};

	json_set_alloc_funcs(malloc, free);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
