/*
 * A small payment API for the demo.  It knows nothing of idempotency keys: each
 * POST /charges that reaches it takes money from the one account there is.
 *
 *   GET  /account            {"balance":10000,"charges":0}
 *   POST /charges            {"amount":1000} -> 201 {"id":"ch_...","amount":1000,"balance":9000}
 *   X-Demo-Fault: slow=S     the charge is made at once, and answered after S seconds
 *   X-Demo-Fault: lose       the charge is made, and the connection closed without an answer
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <microhttpd.h>
#include <openssl/rand.h>

#define BODY_MAX 4096

struct account {
	pthread_mutex_t lock;
	int64_t balance;
	int64_t charges;
};

/* One request, while its body arrives. */
struct upload {
	size_t len;
	bool too_long;
	char body[BODY_MAX];
};

struct charge {
	char id[20];
	int64_t amount, balance;
};

/* Answers with a JSON value, which it takes over, or with 500 if there is none. */
static enum MHD_Result
answer(struct MHD_Connection *connection, unsigned status, json_t *json, const char *location)
{
	char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
	struct MHD_Response *response;
	enum MHD_Result result;

	json_decref(json);
	if (text == NULL)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		free(text);
		return MHD_NO;
	}
	result = MHD_add_response_header(response, "Content-Type", "application/json");
	if (result == MHD_YES && location != NULL)
		result = MHD_add_response_header(response, "Location", location);
	if (result == MHD_YES)
		result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result
refuse(struct MHD_Connection *connection, unsigned status, const char *why)
{
	return answer(connection, status, json_pack("{s:s}", "error", why), NULL);
}

static bool
new_id(char id[20])
{
	unsigned char random[8];
	char *p = id;

	if (RAND_bytes(random, sizeof random) != 1)
		return false;
	p += sprintf(p, "ch_");
	for (size_t i = 0; i < sizeof random; i++)
		p += sprintf(p, "%02x", random[i]);
	return true;
}

/* Takes the money.  False: there is not enough of it. */
static bool
take(struct account *account, struct charge *charge)
{
	bool enough;

	(void)pthread_mutex_lock(&account->lock);
	enough = charge->amount <= account->balance;
	if (enough) {
		account->balance -= charge->amount;
		account->charges++;
	}
	charge->balance = account->balance;
	(void)pthread_mutex_unlock(&account->lock);
	return enough;
}

static bool
read_amount(const struct upload *upload, int64_t *ret_amount)
{
	json_t *json = json_loadb(upload->body, upload->len, 0, NULL);
	json_t *amount = json_object_get(json, "amount");

	*ret_amount = json_integer_value(amount);
	json_decref(json);
	return *ret_amount > 0;
}

/* A decimal number from 0 to max at the end of a text, or -1. */
static long
number(const char *text, long max)
{
	char *end;
	long value = strtol(text, &end, 10);

	return end == text || *end != '\0' || value < 0 || value > max ? -1 : value;
}

static enum MHD_Result
make_charge(struct account *account, struct MHD_Connection *connection, const struct upload *upload)
{
	const char *fault = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Demo-Fault");
	struct charge charge;
	char location[40];

	if (upload->too_long || !read_amount(upload, &charge.amount))
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "send {\"amount\":N} with N above 0");
	if (!new_id(charge.id))
		return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no random bytes");
	if (!take(account, &charge))
		return refuse(connection, MHD_HTTP_PAYMENT_REQUIRED, "the account has not enough");
	printf("    payment API: charged %" PRId64 ", %" PRId64 " left (%s)\n", charge.amount, charge.balance,
	       charge.id);
	(void)fflush(stdout);
	if (fault != NULL && strcmp(fault, "lose") == 0)
		return MHD_NO;
	if (fault != NULL && strncmp(fault, "slow=", 5) == 0)
		(void)sleep(number(fault + 5, 60) > 0 ? (unsigned)number(fault + 5, 60) : 0);
	(void)snprintf(location, sizeof location, "/charges/%s", charge.id);
	return answer(connection, MHD_HTTP_CREATED,
	              json_pack("{s:s,s:I,s:I}", "id", charge.id, "amount", (json_int_t)charge.amount,
	                        "balance", (json_int_t)charge.balance),
	              location);
}

static enum MHD_Result
show_account(struct account *account, struct MHD_Connection *connection)
{
	json_t *json;

	(void)pthread_mutex_lock(&account->lock);
	json = json_pack("{s:I,s:I}", "balance", (json_int_t)account->balance, "charges",
	                 (json_int_t)account->charges);
	(void)pthread_mutex_unlock(&account->lock);
	return answer(connection, MHD_HTTP_OK, json, NULL);
}

static enum MHD_Result
handle(void *cls, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
       const char *data, size_t *data_len, void **request)
{
	struct upload *upload = *request;
	size_t n;

	(void)version;
	if (upload == NULL) {
		*request = calloc(1, sizeof *upload);
		return *request != NULL ? MHD_YES : MHD_NO;
	}
	if (*data_len > 0) {
		n = *data_len < BODY_MAX - upload->len ? *data_len : BODY_MAX - upload->len;
		memcpy(upload->body + upload->len, data, n);
		upload->len += n;
		upload->too_long |= n < *data_len;
		*data_len = 0;
		return MHD_YES;
	}
	if (strcmp(url, "/charges") == 0 && strcmp(method, "POST") == 0)
		return make_charge(cls, connection, upload);
	if (strcmp(url, "/account") == 0 && strcmp(method, "GET") == 0)
		return show_account(cls, connection);
	return refuse(connection, MHD_HTTP_NOT_FOUND, "there are POST /charges and GET /account");
}

static void
ended(void *cls, struct MHD_Connection *connection, void **request, enum MHD_RequestTerminationCode code)
{
	(void)cls;
	(void)connection;
	(void)code;
	free(*request);
	*request = NULL;
}

int
main(int argc, char **argv)
{
	struct account account = {PTHREAD_MUTEX_INITIALIZER, 10000, 0};
	const union MHD_DaemonInfo *info;
	struct MHD_Daemon *daemon;
	sigset_t signals;
	int signal_number;
	long port;

	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
	port = argc == 2 ? number(argv[1], 65535) : -1;
	if (port < 0) {
		(void)fprintf(stderr, "usage: %s PORT   (0: a free one; the port is printed)\n", argv[0]);
		return 2;
	}
	daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD,
	                          (uint16_t)port, NULL, NULL, handle, &account, MHD_OPTION_NOTIFY_COMPLETED,
	                          ended, NULL, MHD_OPTION_END);
	if (daemon == NULL) {
		(void)fprintf(stderr, "%s: cannot listen on port %s\n", argv[0], argv[1]);
		return 1;
	}
	info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
	printf("port %u\n", info != NULL ? (unsigned)info->port : 0);
	(void)fflush(stdout);
	(void)sigwait(&signals, &signal_number);
	MHD_stop_daemon(daemon);
	return 0;
}
