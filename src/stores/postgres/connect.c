/*
 * Making a connection, on a thread of its own: libpq looks names up, reads files, and talks to Kerberos, and
 * blocks meanwhile; and it limits the time for each of several hosts only if it blocks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "layout.h"

/* Where a host does not even refuse.  libpq takes no less. */
#define CONNECT_TIMEOUT_S "2"

struct attempt {
	struct idem_offload *offload;
	char *conninfo; /* a copy: the thread may outlive the store */
	size_t conninfo_len;
	char patience_ms[24];
	PGconn *before;
	PGcancel *cancel; /* what before executes */
	PGconn *made;
	void (*then)(void *data, PGconn *made);
	void *data;
};

static void
end_before(struct attempt *attempt)
{
	char error[256];

	if (attempt->cancel != NULL) {
		/* One that fails leaves a statement that the server ends when it notices that we are gone. */
		(void)PQcancel(attempt->cancel, error, sizeof error);
		PQfreeCancel(attempt->cancel);
		attempt->cancel = NULL;
	}
	PQfinish(attempt->before);
	attempt->before = NULL;
}

static void
work(void *data)
{
	struct attempt *attempt = data;
	/* Later ones win: what the URI says over what we say, but for the last ones. */
	const char *const names[] = {"target_session_attrs",
	                             "connect_timeout",
	                             "tcp_user_timeout",
	                             "fallback_application_name",
	                             "dbname",
	                             "client_encoding",
	                             NULL};
	const char *const values[] = {"read-write", CONNECT_TIMEOUT_S, attempt->patience_ms,
	                              "idem",       attempt->conninfo, "UTF8",
	                              NULL};

	end_before(attempt);
	attempt->made = PQconnectdbParams(names, values, 1);
}

static void
free_attempt(struct attempt *attempt)
{
	OPENSSL_cleanse(attempt->conninfo, attempt->conninfo_len);
	free(attempt->conninfo);
	free(attempt);
}

static void
done(void *data)
{
	struct attempt *attempt = data;
	void (*then)(void *, PGconn *) = attempt->then;
	PGconn *made = attempt->made;
	void *of = attempt->data;

	free_attempt(attempt);
	then(of, made);
}

static void
discard(void *data)
{
	struct attempt *attempt = data;

	PQfinish(attempt->made);
	free_attempt(attempt);
}

static const struct idem_offload_ops connect_ops = {work, done, discard};

int
idem_postgres_connect(struct attempt **ret, struct hub *hub, PGconn *before,
                      void (*then)(void *data, PGconn *made), void *data)
{
	struct attempt *attempt = calloc(1, sizeof *attempt);
	int rc = IDEM_E_NOMEM;

	if (attempt != NULL)
		attempt->conninfo = strdup(hub->uri.conninfo);
	if (attempt == NULL || attempt->conninfo == NULL) {
		PQfinish(before);
		free(attempt);
		return rc;
	}
	attempt->conninfo_len = strlen(attempt->conninfo);
	(void)snprintf(attempt->patience_ms, sizeof attempt->patience_ms, "%" PRIu64, hub->timeout_ms);
	attempt->before = before;
	attempt->then = then;
	attempt->data = data;
	if (before != NULL && PQtransactionStatus(before) == PQTRANS_ACTIVE)
		attempt->cancel = PQgetCancel(before);
	rc = idem_offload_start(&attempt->offload, hub->loop, &connect_ops, attempt);
	if (rc == IDEM_OK) {
		*ret = attempt;
		return IDEM_OK;
	}
	PQfreeCancel(attempt->cancel);
	PQfinish(before);
	free_attempt(attempt);
	return rc;
}

void
idem_postgres_connect_cancel(struct attempt *attempt)
{
	idem_offload_cancel(attempt->offload);
}
