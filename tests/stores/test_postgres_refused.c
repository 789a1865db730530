/* What cannot work is said in a sentence that names the thing and the cure, and no password: in a URI, in a
 * database, on a server. */
#include "postgres_scene.h"

#include "../../src/stores/postgres/layout.h"

#define TIMEOUT_MS 400

/* ---- URIs ---- */

static int
check(const char *uri, char *why, size_t cap)
{
	const struct idem_postgres_options options = {.uri = uri};

	return idem_postgres_check(&options, why, cap);
}

static void
assert_parsed(const char *text, const char *conninfo, const char *schema, unsigned connections)
{
	struct postgres_uri uri;
	char why[512] = "";

	if (idem_postgres_uri_parse(&uri, text, why, sizeof why) != IDEM_OK)
		fail_msg("%s: %s", text, why);
	assert_string_equal(why, "");
	assert_string_equal(uri.conninfo, conninfo);
	assert_string_equal(uri.schema, schema);
	assert_int_equal(uri.connections, connections);
	idem_postgres_uri_free(&uri);
	assert_ok(check(text, why, sizeof why));
}

static void
assert_refused(const char *uri, const char *what)
{
	char why[512] = "";

	if (check(uri, why, sizeof why) != IDEM_E_INVALID)
		fail_msg("%s was taken", uri);
	if (strstr(why, what) == NULL || strlen(why) < strlen(what) + 8)
		fail_msg("%s: it said\n%s, and not\n%s", uri, why, what);
	assert_null(strstr(why, "swordfish"));
}

static void
our_options_are_taken_out_of_the_uri_and_the_rest_is_libpqs(void **state)
{
	(void)state;
	assert_parsed("postgres://", "postgres://", "idem", 2);
	assert_parsed("postgresql://u:p@h:1/d", "postgresql://u:p@h:1/d", "idem", 2);
	assert_parsed("postgres://h?connections=16", "postgres://h", "idem", 16);
	assert_parsed("postgres://h?schema=a_1&connections=1", "postgres://h", "a_1", 1);
	assert_parsed("postgres://h/d?sslmode=require&schema=x", "postgres://h/d?sslmode=require", "x", 2);
	assert_parsed("postgres://h/d?schema=x&sslmode=require", "postgres://h/d?sslmode=require", "x", 2);
}

static void
several_hosts_and_a_service_are_libpqs(void **state)
{
	(void)state;
	assert_parsed("postgres://a:1,b:2,c/d?target_session_attrs=primary&connections=3",
	              "postgres://a:1,b:2,c/d?target_session_attrs=primary", "idem", 3);
	assert_parsed("postgres://?service=billing", "postgres://?service=billing", "idem", 2);
	assert_parsed("postgres://%2Frun%2Fpg/d", "postgres://%2Frun%2Fpg/d", "idem", 2);
	assert_parsed("postgres:///d?host=/run/pg&port=5433", "postgres:///d?host=/run/pg&port=5433", "idem",
	              2);
}

static void
a_uri_that_makes_no_sense_is_refused(void **state)
{
	(void)state;
	assert_refused("", "no known scheme");
	assert_refused("host=h password=swordfish", "no known scheme");
	assert_refused("postgres:h", "no known scheme");
	assert_refused("mysql://u:swordfish@h", "no known scheme");
	assert_refused("postgres://u:swordfish@h?color=red", "invalid URI query parameter: \"color\"");
	assert_refused("postgres://u:swordfish%zz@h", "\"%\" as %25");
	assert_refused("postgres://u:swordfish@[::1", "something that libpq does not understand");
	assert_refused("postgres://u:swordfish@h?connections=0", "no good connections");
	assert_refused("postgres://h?connections=17", "a number from 1 to 16");
	assert_refused("postgres://h?connections=99999999999999999999", "no good connections");
	assert_refused("postgres://h?connections=", "no good connections");
	assert_refused("postgres://h?connections=-1", "no good connections");
	assert_refused("postgres://h?schema=", "no good schema");
	assert_refused("postgres://h?schema=Idem", "small letters");
	assert_refused("postgres://h?schema=1a", "no good schema");
	assert_refused("postgres://h?schema=a;drop", "no good schema");
	assert_refused("postgres://h?schema=a&schema=b", "an option twice");
	assert_refused("postgres://h?replication=database", "replication");
	assert_refused("postgres://h?sslrootcert=/nowhere/ca", "no good sslrootcert");
	assert_refused("postgres://h?sslkey=/nowhere/key", "no good sslkey");
}

static void
a_store_needs_a_uri_and_a_loop(void **state)
{
	struct idem_postgres_options options = {.uri = "postgres://h"};
	struct idem_store *store = NULL;
	char why[512] = "";

	(void)state;
	assert_int_equal(idem_postgres_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	assert_non_null(strstr(why, "a loop"));
	options.uri = NULL;
	assert_int_equal(idem_postgres_check(&options, why, sizeof why), IDEM_E_INVALID);
	assert_non_null(strstr(why, "a URI"));
	assert_null(store);
}

/* ---- databases ---- */

static struct postgres_scene scene;

static int
make(void **state)
{
	(void)state;
	scene_make(&scene, NULL);
	return 0;
}

static int
free_all(void **state)
{
	(void)state;
	scene_free(&scene);
	return 0;
}

static void
assert_says(const char *uri, const char *sentence)
{
	scene.world.timeout_ms = TIMEOUT_MS;
	scene.world.report[0] = '\0';
	scene_open_uri(&scene, uri);
	scene_await_report(&scene, sentence);
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_null(strstr(scene.world.report, "swordfish"));
	scene_close(&scene);
}

static void
assert_says_as(const char *role, const char *options, const char *sentence)
{
	char uri[256];

	(void)snprintf(uri, sizeof uri, "postgres://%s@/postgres?host=%s&port=%u%s", role,
	               scene.world.server.directory, scene.world.server.port, options);
	assert_says(uri, sentence);
}

static void
a_schema_that_is_missing_or_another_is_named(void **state)
{
	const struct postgres_server *server = &scene.world.server;

	(void)state;
	assert_says_as("gateway", "&schema=nowhere",
	               "the schema \"nowhere\" is missing: make it with schema.sql");
	(void)postgres_server_say(server, "CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO gateway");
	assert_says_as("gateway", "&schema=other",
	               "the schema \"other\" lacks a function: make it with schema.sql");
	assert_true(postgres_server_make_schema(server, "newer", "gateway"));
	(void)postgres_server_say(
		server, "CREATE OR REPLACE FUNCTION newer.schema_version() RETURNS integer LANGUAGE sql "
			"AS 'SELECT 2'");
	assert_says_as("gateway", "&schema=newer",
	               "the schema \"newer\" has version 2, and this is made for version 1");
}

static void
a_schema_of_another_name_works_like_the_first(void **state)
{
	(void)state;
	assert_true(postgres_server_make_schema(&scene.world.server, "second", "gateway"));
	scene_open(&scene, "&schema=second");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	assert_string_equal(postgres_server_say(&scene.world.server, "SELECT count(*) FROM second.cells"),
	                    "1");
	scene_close(&scene);
}

static void
rights_that_are_missing_are_named(void **state)
{
	(void)state;
	(void)postgres_server_say(&scene.world.server, "CREATE ROLE stranger LOGIN");
	assert_says_as("stranger", "",
	               "the role may not use the schema \"idem\": run schema.sql with -v gateway=ROLE");
}

static void
the_role_of_a_gateway_may_do_nothing_but_call_the_functions(void **state)
{
	static const char *const forbidden[] = {
		"SELECT * FROM idem.cells",   "SELECT * FROM idem.cells_readable",
		"DELETE FROM idem.cells",     "CREATE TABLE idem.mine (a int)",
		"DROP FUNCTION idem.greet()",
	};

	(void)state;
	for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
		const char *answer =
			postgres_server_say(&scene.world.server, "SET ROLE gateway; %s", forbidden[i]);

		if (strstr(answer, "permission denied") == NULL && strstr(answer, "must be owner") == NULL)
			fail_msg("%s: %s", forbidden[i], answer);
	}
}

static void
who_does_not_get_in_is_told_why(void **state)
{
	const struct postgres_server *server = &scene.world.server;
	char path[128], uri[256];
	FILE *file;

	(void)state;
	assert_says_as("nobody", "", "role \"nobody\" does not exist");
	(void)snprintf(path, sizeof path, "%s/data/pg_hba.conf", server->directory);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fputs("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n", file);
	assert_int_equal(fclose(file), 0);
	(void)postgres_server_say(server, "ALTER ROLE gateway PASSWORD 'right'");
	assert_string_equal(postgres_server_say(server, "SELECT pg_reload_conf()"), "t");
	(void)snprintf(uri, sizeof uri, "postgres://gateway:swordfish@127.0.0.1:%u/postgres", server->port);
	assert_says(uri, "password authentication failed for user \"gateway\"");
	(void)snprintf(uri, sizeof uri, "postgres://gateway:right@127.0.0.1:%u/nowhere", server->port);
	assert_says(uri, "database \"nowhere\" does not exist");
	(void)snprintf(uri, sizeof uri, "postgres://gateway:right@127.0.0.1:%u/postgres?sslmode=require",
	               server->port);
	assert_says(uri, "server does not support SSL");
	(void)snprintf(uri, sizeof uri, "postgres://gateway:right@127.0.0.1:%u/postgres", server->port);
	scene_open_uri(&scene, uri);
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	scene_close(&scene);
}

static void
a_server_that_may_lose_what_it_acknowledged_is_reported(void **state)
{
	(void)state;
	(void)postgres_server_say(&scene.world.server, "ALTER ROLE gateway SET synchronous_commit = off");
	scene.world.report[0] = '\0';
	scene_open(&scene, "");
	assert_int_equal(scene_claim(&scene), IDEM_EXECUTE);
	scene_await_report(&scene,
	                   "synchronous_commit is off: what is acknowledged is lost when the server fails");
	scene_close(&scene);
	(void)postgres_server_say(&scene.world.server, "ALTER ROLE gateway RESET synchronous_commit");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_options_are_taken_out_of_the_uri_and_the_rest_is_libpqs),
		cmocka_unit_test(several_hosts_and_a_service_are_libpqs),
		cmocka_unit_test(a_uri_that_makes_no_sense_is_refused),
		cmocka_unit_test(a_store_needs_a_uri_and_a_loop),
		cmocka_unit_test(a_schema_that_is_missing_or_another_is_named),
		cmocka_unit_test(a_schema_of_another_name_works_like_the_first),
		cmocka_unit_test(rights_that_are_missing_are_named),
		cmocka_unit_test(the_role_of_a_gateway_may_do_nothing_but_call_the_functions),
		cmocka_unit_test(a_server_that_may_lose_what_it_acknowledged_is_reported),
		cmocka_unit_test(who_does_not_get_in_is_told_why),
	};

	return cmocka_run_group_tests(tests, make, free_all);
}
