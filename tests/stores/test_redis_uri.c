/* Every form of the URI of a Redis store: taken as it is meant, or refused with a sentence that says what is
 * wrong and what would be right, and no password. */
#include "../support/test.h"

#include "../../src/stores/redis/layout.h"

static struct redis_uri
parsed(const char *text)
{
	struct redis_uri uri;
	char why[512] = "";

	if (idem_redis_uri_parse(&uri, text, why, sizeof why) != IDEM_OK)
		fail_msg("%s: %s", text, why);
	assert_string_equal(why, "");
	return uri;
}

static int
check(const char *uri, uint64_t timeout_ms, char *why, size_t cap)
{
	const struct idem_redis_options options = {.uri = uri, .timeout_ms = timeout_ms};

	return idem_redis_check(&options, why, cap);
}

static void
assert_taken(const char *uri)
{
	char why[512] = "x";

	if (check(uri, 0, why, sizeof why) != IDEM_OK)
		fail_msg("%s: %s", uri, why);
	assert_string_equal(why, "");
}

static void
assert_refused(const char *uri, const char *what)
{
	char why[512] = "";

	if (check(uri, 0, why, sizeof why) != IDEM_E_INVALID)
		fail_msg("%s was taken", uri);
	if (strncmp(why, what, strlen(what)) != 0 || strlen(why) < strlen(what) + 8)
		fail_msg("%s: it said\n%s, and not\n%s", uri, why, what);
	assert_null(strstr(why, "swordfish"));
}

/* ---- where ---- */

static void
a_scheme_says_how_to_find_the_server_and_whether_by_tls(void **state)
{
	static const struct {
		const char *scheme;
		const char *rest;
		enum plan plan;
		bool tls;
	} forms[] = {
		{"redis", "://h", PLAN_SINGLE, false},
		{"rediss", "://h", PLAN_SINGLE, true},
		{"redis+sentinel", "://h/m", PLAN_SENTINEL, false},
		{"rediss+sentinel", "://h/m", PLAN_SENTINEL, true},
		{"redis+cluster", "://h", PLAN_CLUSTER, false},
		{"rediss+cluster", "://h", PLAN_CLUSTER, true},
		{"valkey", "://h", PLAN_SINGLE, false},
		{"valkeys", "://h", PLAN_SINGLE, true},
		{"valkey+sentinel", "://h/m", PLAN_SENTINEL, false},
		{"valkeys+sentinel", "://h/m", PLAN_SENTINEL, true},
		{"valkey+cluster", "://h", PLAN_CLUSTER, false},
		{"valkeys+cluster", "://h", PLAN_CLUSTER, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		char text[64];
		struct redis_uri uri;

		(void)snprintf(text, sizeof text, "%s%s", forms[i].scheme, forms[i].rest);
		uri = parsed(text);
		assert_int_equal(uri.plan, forms[i].plan);
		assert_int_equal(uri.tls, forms[i].tls);
		assert_int_equal(uri.addresses[0].port, forms[i].plan == PLAN_SENTINEL ? 26379 : 6379);
		assert_string_equal(uri.prefix, "idem:");
		assert_int_equal(uri.connections, 2);
		assert_int_equal(uri.wait_replicas, 0);
		assert_null(uri.password);
		idem_redis_uri_free(&uri);
		assert_taken(text);
	}
	assert_refused("", "no known scheme");
	assert_refused("h", "no known scheme");
	assert_refused("redis:h", "no known scheme");
	assert_refused("http://h", "no known scheme");
	assert_refused("redis+unix:/h", "no known scheme");
	assert_refused(" redis://h", "no known scheme");
}

static void
assert_address(const char *text, const char *host, unsigned port)
{
	struct redis_uri uri = parsed(text);

	assert_int_equal(uri.count, 1);
	assert_string_equal(uri.addresses[0].host, host);
	assert_int_equal(uri.addresses[0].port, port);
	idem_redis_uri_free(&uri);
}

static void
a_host_is_a_name_or_an_address_and_may_have_a_port(void **state)
{
	char text[400], name[HOST_MAX + 2];

	(void)state;
	assert_address("redis://h", "h", 6379);
	assert_address("redis://h/", "h", 6379);
	assert_address("redis://h:1", "h", 1);
	assert_address("redis://127.0.0.1:65535", "127.0.0.1", 65535);
	assert_address("redis://[::1]", "::1", 6379);
	assert_address("redis://[fe80::1%eth0]:7000/1", "fe80::1%eth0", 7000);
	memset(name, 'a', sizeof name);
	name[HOST_MAX] = '\0';
	(void)snprintf(text, sizeof text, "redis://%s", name);
	assert_address(text, name, 6379);
	(void)snprintf(text, sizeof text, "redis://a%s", name);
	assert_refused(text, "no good host");
	assert_refused("redis://", "no good host");
	assert_refused("redis:///0", "no good host");
	assert_refused("redis://:6379", "no good host");
	assert_refused("redis://h:", "no good host");
	assert_refused("redis://h:0", "no good host");
	assert_refused("redis://h:65536", "no good host");
	assert_refused("redis://h:18446744073709551617", "no good host");
	assert_refused("redis://h:-1", "no good host");
	assert_refused("redis://h:6379x", "no good host");
	assert_refused("redis://::1", "no good host");
	assert_refused("redis://[::1", "no good host");
	assert_refused("redis://[]", "no good host");
	assert_refused("redis://[::1]6379", "no good host");
	assert_refused("redis://a,b", "several hosts");
}

static void
sentinels_and_clusters_have_several_hosts(void **state)
{
	struct redis_uri uri = parsed("redis+sentinel://:p@a,b:1,[::1]:2/my%2fname/3");

	(void)state;
	assert_int_equal(uri.count, 3);
	assert_string_equal(uri.addresses[0].host, "a");
	assert_int_equal(uri.addresses[0].port, 26379);
	assert_int_equal(uri.addresses[1].port, 1);
	assert_string_equal(uri.addresses[2].host, "::1");
	assert_string_equal(uri.master, "my/name");
	assert_int_equal(uri.database, 3);
	idem_redis_uri_free(&uri);
	assert_taken("redis+sentinel://a/m/");
	assert_taken("redis+cluster://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p");
	assert_taken("redis+cluster://a/");
	assert_refused("redis+cluster://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "too many hosts");
	assert_refused("redis+cluster://a,", "no good host");
	assert_refused("redis+cluster://a,,b", "no good host");
	assert_refused("redis+cluster://a/0", "a database");
	assert_refused("redis+cluster://a?db=0", "a database");
	assert_refused("redis+sentinel://a", "no name");
	assert_refused("redis+sentinel://a/", "no name");
	assert_refused("redis+sentinel://a//0", "no name");
	assert_refused("redis+sentinel://a/m/x", "no good database");
	assert_refused("redis+sentinel://a/%zz", "no name");
}

static void
a_socket_is_a_path(void **state)
{
	char text[200], path[109];

	(void)state;
	assert_address("unix:/a", "/a", 0);
	assert_address("unix:///a/b", "/a/b", 0);
	assert_address("unix:/a%20b%3fc", "/a b?c", 0);
	memset(path, 'a', sizeof path);
	path[0] = '/';
	path[107] = '\0';
	(void)snprintf(text, sizeof text, "unix:%s", path);
	assert_address(text, path, 0);
	(void)snprintf(text, sizeof text, "unix:%sa", path);
	assert_refused(text, "a path that is too long");
	assert_refused("unix:", "no path");
	assert_refused("unix:a", "no path");
	assert_refused("unix://a/b", "no path");
	assert_refused("unix:/a%00b", "no path");
	assert_refused("unix:/a?ca=/b", "ca, cert or key");
	assert_refused("unix:/a?sentinel_password=swordfish", "a sentinel_password");
}

static void
a_database_is_a_number_and_there_is_one(void **state)
{
	struct redis_uri uri = parsed("redis://h/15");

	(void)state;
	assert_int_equal(uri.database, 15);
	idem_redis_uri_free(&uri);
	uri = parsed("unix:/a?db=7");
	assert_int_equal(uri.database, 7);
	idem_redis_uri_free(&uri);
	assert_refused("redis://h/x", "no good database");
	assert_refused("redis://h/-1", "no good database");
	assert_refused("redis://h/1/2", "no good database");
	assert_refused("redis://h/1000001", "no good database");
	assert_refused("redis://h/99999999999999999999", "no good database");
	assert_refused("redis://h?db=", "no good database");
	assert_refused("redis://h/1?db=1", "two databases");
	assert_refused("redis://h?db=1&db=2", "db given twice");
}

/* ---- who ---- */

static void
assert_credentials(const char *text, const char *user, const char *password)
{
	struct redis_uri uri = parsed(text);

	if (user == NULL)
		assert_null(uri.user);
	else
		assert_string_equal(uri.user, user);
	assert_string_equal(uri.password, password);
	idem_redis_uri_free(&uri);
}

static void
a_user_and_a_password_are_percent_encoded(void **state)
{
	(void)state;
	assert_credentials("redis://u:p@h", "u", "p");
	assert_credentials("redis://:p@h", NULL, "p");
	assert_credentials("redis://u:@h", "u", "");
	assert_credentials("redis://u%3a%40%2F%25:p%3A%3f%26%E2%82%AC@h", "u:@/%", "p:?&\xe2\x82\xac");
	assert_credentials("redis://u:p:q@h", "u", "p:q");
	assert_credentials("redis://u:p@q@h", "u", "p@q");
	assert_credentials("redis://u:p+q@h", "u", "p+q");
	assert_credentials("unix:/a?user=u%26&password=p%3D=%25", "u&", "p==%");
	assert_credentials("unix:/a?password=p", NULL, "p");
	assert_refused("redis://u@h", "a user without a password");
	assert_refused("redis://@h", "a user without a password");
	assert_refused("unix:/a?user=u", "a user without a password");
	assert_refused("redis://u:swordfish%@h", "no good user or password");
	assert_refused("redis://u:swordfish%4@h", "no good user or password");
	assert_refused("redis://u:swordfish%4g@h", "no good user or password");
	assert_refused("redis://u:swordfish%00@h", "no good user or password");
	assert_refused("redis://u%:swordfish@h", "no good user or password");
	assert_refused("redis://u:swordfish/x@h", "no good host");
	assert_refused("redis://u:swordfish?x@h", "no good host");
	assert_refused("redis://u:swordfish@h?user=v", "user given twice");
	assert_refused("redis://u:swordfish@h?password=swordfish", "password given twice");
	assert_refused("redis://h?password=swordfish&password=swordfish", "password given twice");
	assert_refused("redis://h?user=&password=swordfish", "user without a value");
}

static void
sentinels_have_a_user_and_a_password_of_their_own(void **state)
{
	struct redis_uri uri = parsed("redis+sentinel://u:p@h/m?sentinel_user=s&sentinel_password=t%25");

	(void)state;
	assert_string_equal(uri.user, "u");
	assert_string_equal(uri.sentinel_user, "s");
	assert_string_equal(uri.sentinel_password, "t%");
	idem_redis_uri_free(&uri);
	assert_taken("redis+sentinel://h/m?sentinel_password=t");
	assert_refused("redis+sentinel://h/m?sentinel_user=s", "a sentinel_user without a sentinel_password");
	assert_refused("redis://h?sentinel_password=swordfish", "a sentinel_password");
	assert_refused("redis+cluster://h?sentinel_user=u&sentinel_password=swordfish",
	               "a sentinel_password");
	assert_refused("redis+sentinel://h/m?sentinel_password=swordfish&sentinel_password=x",
	               "sentinel_password given twice");
}

/* ---- options ---- */

static void
an_option_is_known_and_given_once(void **state)
{
	(void)state;
	assert_refused("redis://h?", "no good option");
	assert_refused("redis://h?prefix", "no good option");
	assert_refused("redis://h?prefix=a&", "no good option");
	assert_refused("redis://h?&prefix=a", "no good option");
	assert_refused("redis://h?prefix=%", "no good option");
	assert_refused("redis://h?=a", "an unknown option");
	assert_refused("redis://h?Prefix=a", "an unknown option");
	assert_refused("redis://h?timeout=1", "an unknown option");
	assert_refused("redis://h?passwd=swordfish", "an unknown option");
	assert_refused("redis://h?password=a&swordfish=b", "an unknown option");
	assert_refused("redis://h?password=a&swordfish", "no good option");
	assert_refused("redis://h?prefix=a&prefix=a", "prefix given twice");
	assert_refused("redis://h?connections=1&connections=1", "connections given twice");
	assert_refused("redis://h?wait_replicas=1,5&wait_replicas=1,5", "wait_replicas given twice");
}

static void
a_prefix_has_bytes_but_not_too_many(void **state)
{
	char text[200], prefix[PREFIX_MAX + 1];
	struct redis_uri uri = parsed("redis://h?prefix=%7bshop%7d:");

	(void)state;
	assert_string_equal(uri.prefix, "{shop}:");
	idem_redis_uri_free(&uri);
	memset(prefix, 'a', sizeof prefix);
	prefix[PREFIX_MAX] = '\0';
	(void)snprintf(text, sizeof text, "redis://h?prefix=%s", prefix);
	assert_taken(text);
	(void)snprintf(text, sizeof text, "redis://h?prefix=%sa", prefix);
	assert_refused(text, "no good prefix");
	assert_refused("redis://h?prefix=", "no good prefix");
}

static void
connections_are_few(void **state)
{
	struct redis_uri uri = parsed("redis://h?connections=16");

	(void)state;
	assert_int_equal(uri.connections, 16);
	idem_redis_uri_free(&uri);
	assert_taken("redis://h?connections=1");
	assert_refused("redis://h?connections=0", "no good connections");
	assert_refused("redis://h?connections=17", "no good connections");
	assert_refused("redis://h?connections=x", "no good connections");
	assert_refused("redis://h?connections=", "no good connections");
}

static void
replicas_are_waited_for_in_less_than_the_timeout(void **state)
{
	struct redis_uri uri = parsed("redis://h?wait_replicas=100,60000");
	char why[512] = "";

	(void)state;
	assert_int_equal(uri.wait_replicas, 100);
	assert_int_equal(uri.wait_ms, 60000);
	idem_redis_uri_free(&uri);
	assert_refused("redis://h?wait_replicas=", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=1", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=1,", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=,5", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=0,5", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=1,0", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=101,5", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=1,60001", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas=1,5,6", "no good wait_replicas");
	assert_refused("redis://h?wait_replicas= 1,5", "no good wait_replicas");
	assert_taken("redis://h?wait_replicas=1,999");
	assert_refused("redis://h?wait_replicas=1,1000",
	               "wait_replicas waits for 1000 ms, and the store's timeout is 1000 ms: make ");
	assert_int_equal(check("redis://h?wait_replicas=1,500", 500, why, sizeof why), IDEM_E_INVALID);
	assert_int_equal(check("redis://h?wait_replicas=1,500", 501, why, sizeof why), IDEM_OK);
}

static void
what_tls_needs_is_read_when_the_uri_is(void **state)
{
	(void)state;
	assert_taken("rediss://h");
	assert_refused("redis://h?ca=/a", "ca, cert or key");
	assert_refused("rediss://h?cert=/a", "one of cert and key");
	assert_refused("rediss://h?key=/a", "one of cert and key");
	assert_refused("rediss://h?ca=", "ca without a value");
	assert_refused("rediss://h?ca=/a&ca=/a", "ca given twice");
	assert_refused("rediss://h?ca=/nowhere", "cannot use the certificates in ca=/nowhere: ");
	assert_refused("rediss://h?cert=/nowhere&key=/nowhere",
	               "cannot use the certificate in cert=/nowhere: ");
}

/* ---- the call ---- */

static void
what_is_missing_is_said(void **state)
{
	const struct idem_redis_options options = {.uri = "redis://h"};
	struct idem_store *store = NULL;
	char why[512];

	(void)state;
	assert_int_equal(check(NULL, 0, why, sizeof why), IDEM_E_INVALID);
	assert_string_equal(why, "a Redis store needs a URI");
	assert_int_equal(idem_redis_open(&options, &store, why, sizeof why), IDEM_E_INVALID);
	assert_string_equal(why, "a Redis store needs a loop");
	assert_null(store);
}

static void
a_sentence_ends_where_its_room_does(void **state)
{
	char why[9] = "xxxxxxxx";

	(void)state;
	assert_int_equal(check("redis://", 0, why, 8), IDEM_E_INVALID);
	assert_string_equal(why, "no good");
	assert_int_equal(why[8], '\0');
	assert_int_equal(check("redis://", 0, NULL, 0), IDEM_E_INVALID);
	assert_int_equal(check("redis://h", 0, NULL, 0), IDEM_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_scheme_says_how_to_find_the_server_and_whether_by_tls),
		cmocka_unit_test(a_host_is_a_name_or_an_address_and_may_have_a_port),
		cmocka_unit_test(sentinels_and_clusters_have_several_hosts),
		cmocka_unit_test(a_socket_is_a_path),
		cmocka_unit_test(a_database_is_a_number_and_there_is_one),
		cmocka_unit_test(a_user_and_a_password_are_percent_encoded),
		cmocka_unit_test(sentinels_have_a_user_and_a_password_of_their_own),
		cmocka_unit_test(an_option_is_known_and_given_once),
		cmocka_unit_test(a_prefix_has_bytes_but_not_too_many),
		cmocka_unit_test(connections_are_few),
		cmocka_unit_test(replicas_are_waited_for_in_less_than_the_timeout),
		cmocka_unit_test(what_tls_needs_is_read_when_the_uri_is),
		cmocka_unit_test(what_is_missing_is_said),
		cmocka_unit_test(a_sentence_ends_where_its_room_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
