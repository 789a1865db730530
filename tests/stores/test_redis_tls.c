/* The Redis store over TLS: whom it trusts, who it is, and connections that break at any byte. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hasty_loop.h"
#include "proxy.h"
#include "redis_scene.h"

#define TIMEOUT_MS 1000
#define TIMES 250
#define PATIENCE_MS 10000
#define PAYLOAD_LEN ((size_t)1 << 20)

/* ---- certificates ---- */

static char files[64];

static void
run(const char *format, ...)
{
	char command[1024];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(command, sizeof command, format, arguments);
	va_end(arguments);
	if (system(command) != 0)
		fail_msg("%s", command);
}

#define NEW_KEY "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "

static void
make_ca(const char *name)
{
	run("cd %s && " NEW_KEY "-subj /CN=%s -keyout %s.key -out %s.crt 2>log", files, name, name, name);
}

static void
make_certificate(const char *ca, const char *name, const char *of)
{
	run("cd %s && " NEW_KEY "-CA %s.crt -CAkey %s.key -subj /CN=%s -addext subjectAltName=%s "
	    "-addext basicConstraints=critical,CA:FALSE -keyout %s.key -out %s.crt 2>log",
	    files, ca, ca, name, of, name, name);
}

static int
make_files(void **state)
{
	(void)state;
	(void)snprintf(files, sizeof files, "/tmp/idem-test-tls-XXXXXX");
	assert_non_null(mkdtemp(files));
	make_ca("ca");
	make_ca("stranger");
	make_certificate("ca", "server", "IP:127.0.0.1,DNS:localhost");
	make_certificate("ca", "elsewhere", "IP:127.0.0.2,DNS:elsewhere.example");
	make_certificate("ca", "client", "DNS:client");
	make_certificate("stranger", "intruder", "DNS:client");
	run("cd %s && openssl pkey -in client.key -aes128 -passout pass:swordfish -out locked.key", files);
	return 0;
}

static int
remove_files(void **state)
{
	(void)state;
	run("rm -r %s", files);
	return 0;
}

/* ---- the scene ---- */

/* A server with that certificate; clients: "yes" if they need one too. */
static void
begin(struct redis_scene *scene, const char *certificate, const char *clients)
{
	static char crt[96], key[96], ca[96];
	const char *const more[] = {
		"--tls-cert-file", crt, "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients",
		clients,           NULL};

	(void)snprintf(crt, sizeof crt, "%s/%s.crt", files, certificate);
	(void)snprintf(key, sizeof key, "%s/%s.key", files, certificate);
	(void)snprintf(ca, sizeof ca, "%s/ca.crt", files);
	memset(scene, 0, sizeof *scene);
	scene->world.server.tls = true;
	scene->world.timeout_ms = TIMEOUT_MS;
	redis_server_start(&scene->world.server, more);
	assert_ok(idem_poll_loop_new(&scene->actor.loop));
}

/* Options with FILES for where the files are. */
static const char *
with_files(const char *options)
{
	static char text[512];
	size_t len = 0;

	for (const char *at = options; *at != '\0'; at++) {
		if (strncmp(at, "FILES", 5) == 0) {
			len += (size_t)snprintf(text + len, sizeof text - len, "%s", files);
			at += 4;
		} else {
			text[len++] = *at;
		}
	}
	text[len] = '\0';
	return text;
}

static void
open_at(struct redis_scene *scene, const char *host, unsigned port, const char *options)
{
	char uri[512];

	(void)snprintf(uri, sizeof uri, "rediss://%s:%u%s", host, port, with_files(options));
	scene_open_uri(scene, uri);
}

static void
assert_works(struct redis_scene *scene, const char *host, const char *options)
{
	open_at(scene, host, scene->world.server.port, options);
	assert_int_equal(scene_claim(scene), IDEM_EXECUTE);
	scene_close(scene);
}

static void
assert_refused(struct redis_scene *scene, const char *host, const char *options, const char *why)
{
	scene->world.report[0] = '\0';
	open_at(scene, host, scene->world.server.port, options);
	assert_int_equal(scene_claim(scene), IDEM_E_UNAVAILABLE);
	if (strstr(scene->world.report, why) == NULL || strstr(scene->world.report, host) == NULL)
		fail_msg("it said\n%s, and not of %s: %s", scene->world.report, host, why);
	scene_close(scene);
}

/* ---- whom it trusts ---- */

static void
a_server_of_the_right_name_and_authority_is_trusted(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, "server", "no");
	assert_works(&scene, "127.0.0.1", "?ca=FILES/ca.crt");
	assert_works(&scene, "localhost", "?ca=FILES/ca.crt");
	scene_free(&scene);
}

static void
a_server_of_another_authority_is_not(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, "server", "no");
	assert_refused(&scene, "127.0.0.1", "?ca=FILES/stranger.crt",
	               "its certificate is not to be trusted: self-signed certificate");
	assert_refused(&scene, "127.0.0.1", "", "its certificate is not to be trusted");
	scene_free(&scene);
}

static void
a_server_of_another_name_is_not(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, "elsewhere", "no");
	assert_refused(&scene, "127.0.0.1", "?ca=FILES/ca.crt",
	               "its certificate is not to be trusted: IP address mismatch");
	assert_refused(&scene, "localhost", "?ca=FILES/ca.crt",
	               "its certificate is not to be trusted: hostname mismatch");
	scene_free(&scene);
}

static void
plain_text_and_tls_do_not_go_together(void **state)
{
	struct redis_scene scene, plain;
	char uri[64];

	(void)state;
	begin(&scene, "server", "no");
	(void)snprintf(uri, sizeof uri, "redis://127.0.0.1:%u", scene.world.server.port);
	scene_open_uri(&scene, uri);
	assert_int_equal(scene_claim(&scene), IDEM_E_UNAVAILABLE);
	assert_non_null(strstr(scene.world.report, "cannot use the server 127.0.0.1:"));
	scene_free(&scene);
	scene_make(&plain, NULL);
	plain.world.timeout_ms = TIMEOUT_MS;
	assert_refused(&plain, "127.0.0.1", "?ca=FILES/ca.crt", "TLS");
	scene_free(&plain);
}

/* ---- who it is ---- */

static void
a_server_that_wants_to_know_its_clients_is_shown_a_certificate(void **state)
{
	struct redis_scene scene;

	(void)state;
	begin(&scene, "server", "yes");
	assert_works(&scene, "127.0.0.1", "?ca=FILES/ca.crt&cert=FILES/client.crt&key=FILES/client.key");
	assert_refused(&scene, "127.0.0.1", "?ca=FILES/ca.crt", "TLS: ");
	assert_refused(&scene, "127.0.0.1", "?ca=FILES/ca.crt&cert=FILES/intruder.crt&key=FILES/intruder.key",
	               "TLS: ");
	scene_free(&scene);
}

static void
assert_unusable(const char *options, const char *why)
{
	char uri[512], text[512];
	const struct idem_redis_options check = {.uri = uri};

	(void)snprintf(uri, sizeof uri, "rediss://h%s", with_files(options));
	assert_int_equal(idem_redis_check(&check, text, sizeof text), IDEM_E_INVALID);
	if (strstr(text, why) == NULL || strstr(text, files) == NULL)
		fail_msg("it said\n%s, and not %s", text, why);
}

/* A key with a passphrase would have to be asked for on the terminal. */
static void
files_that_cannot_be_used_are_named_and_nobody_is_asked(void **state)
{
	int in = dup(STDIN_FILENO), ends[2];

	(void)state;
	assert_unusable("?ca=FILES/client.key", "cannot use the certificates in ca=");
	assert_unusable("?cert=FILES/client.key&key=FILES/client.key", "cannot use the certificate in cert=");
	assert_unusable("?cert=FILES/client.crt&key=FILES/client.crt", "cannot use the private key in key=");
	assert_unusable("?cert=FILES/client.crt&key=FILES/server.key", "cannot use the private key in key=");
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "swordfish\n", 10), 10);
	assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	(void)setsid(); /* no terminal: OpenSSL would read the standard input */
	assert_unusable("?cert=FILES/client.crt&key=FILES/locked.key", "cannot use the private key in key=");
	assert_int_equal(dup2(in, STDIN_FILENO), STDIN_FILENO);
	(void)close(in);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

/* ---- what breaks ---- */

static void
much_goes_out_and_comes_back_whole(void **state)
{
	struct redis_scene scene;
	struct request request;
	struct claim claim;
	void *payload = payload_make(7, PAYLOAD_LEN);

	(void)state;
	begin(&scene, "server", "no");
	open_at(&scene, "127.0.0.1", scene.world.server.port, "?ca=FILES/ca.crt");
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	assert_int_equal(
		actor_complete(&scene.actor, &request, &claim, (struct idem_bytes){payload, PAYLOAD_LEN}),
		IDEM_RECORDED);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_REPLAY);
	assert_true(payload_is(claim.found.payload, 7, PAYLOAD_LEN));
	claim_free(&claim);
	free(payload);
	scene_free(&scene);
}

/* The host may not ignore SIGPIPE, and a library has no say in it: the test would end here. */
static void
writing_to_a_server_that_is_gone_kills_nobody(void **state)
{
	struct redis_scene scene;
	struct request request;
	struct claim claim;
	void *payload = payload_make(7, PAYLOAD_LEN);

	(void)state;
	assert_true(signal(SIGPIPE, SIG_DFL) == SIG_DFL);
	begin(&scene, "server", "no");
	open_at(&scene, "127.0.0.1", scene.world.server.port, "?ca=FILES/ca.crt&connections=1");
	request = scene_key(&scene);
	assert_int_equal(actor_claim(&scene.actor, &request, &claim), IDEM_EXECUTE);
	redis_server_end(&scene.world.server, SIGKILL);
	assert_int_equal(
		actor_complete(&scene.actor, &request, &claim, (struct idem_bytes){payload, PAYLOAD_LEN}),
		IDEM_E_INDOUBT);
	free(payload);
	scene_free(&scene);
}

static void
a_server_that_stops_in_the_handshake_holds_nobody_for_long(void **state)
{
	struct redis_scene scene;
	uint64_t began_ms;

	(void)state;
	begin(&scene, "server", "no");
	redis_server_signal(&scene.world.server, SIGSTOP);
	began_ms = scene_now_ms(&scene);
	assert_refused(&scene, "127.0.0.1", "?ca=FILES/ca.crt", "no TLS in time");
	assert_true(scene_now_ms(&scene) - began_ms < 2 * TIMEOUT_MS);
	redis_server_signal(&scene.world.server, SIGCONT);
	assert_works(&scene, "127.0.0.1", "?ca=FILES/ca.crt");
	scene_free(&scene);
}

/* ---- cut ---- */

static int
claim_until_answered(struct redis_scene *scene, const struct request *request)
{
	struct claim claim = {.fresh = actor_tag()};
	int verdict = actor_claim_again(&scene->actor, request, &claim);

	for (int i = 0; verdict < 0; i++) {
		if (verdict != IDEM_E_UNAVAILABLE)
			assert_int_equal(verdict, IDEM_E_INDOUBT);
		assert_true(i < 100);
		scene_run(scene, 1);
		verdict = actor_claim_again(&scene->actor, request, &claim);
	}
	return verdict;
}

static void
a_handshake_that_was_cut_off_is_begun_anew(void **state)
{
	/* The handshake is shorter; what follows it are the same bytes as without TLS. */
	static const unsigned every_byte_of[] = {500, 1200}, step = 61;
	struct redis_scene scene;
	struct hasty_loop hasty;
	struct idem_loop *loop;
	struct proxy *proxy;

	(void)state;
	begin(&scene, "server", "no");
	loop = scene.actor.loop;
	hasty_loop_init(&hasty, loop, TIMES);
	scene.world.timeout_ms = TIMEOUT_MS * TIMES;
	proxy = proxy_make(loop, NULL, NULL, scene.world.server.port);
	for (int way = PROXY_TO_SERVER; way <= PROXY_TO_CLIENT; way++) {
		uint64_t after = 0;
		bool cut = true;

		while (cut) {
			struct request request = scene_key(&scene);

			scene.actor.loop = &hasty.base;
			open_at(&scene, "127.0.0.1", proxy_port(proxy), "?ca=FILES/ca.crt&connections=1");
			scene.actor.loop = loop;
			proxy_cut(proxy, (enum proxy_way)way, after);
			assert_int_equal(claim_until_answered(&scene, &request), IDEM_EXECUTE);
			cut = proxy_has_cut(proxy);
			proxy_spare(proxy);
			assert_int_equal(claim_until_answered(&scene, &request), IDEM_IN_PROGRESS);
			scene_close(&scene);
			after += after < every_byte_of[way] ? 1 : step;
		}
		assert_true(after > 800);
	}
	proxy_free(proxy);
	scene_free(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_of_the_right_name_and_authority_is_trusted),
		cmocka_unit_test(a_server_of_another_authority_is_not),
		cmocka_unit_test(a_server_of_another_name_is_not),
		cmocka_unit_test(plain_text_and_tls_do_not_go_together),
		cmocka_unit_test(a_server_that_wants_to_know_its_clients_is_shown_a_certificate),
		cmocka_unit_test(files_that_cannot_be_used_are_named_and_nobody_is_asked),
		cmocka_unit_test(much_goes_out_and_comes_back_whole),
		cmocka_unit_test(writing_to_a_server_that_is_gone_kills_nobody),
		cmocka_unit_test(a_server_that_stops_in_the_handshake_holds_nobody_for_long),
		cmocka_unit_test(a_handshake_that_was_cut_off_is_begun_anew),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
