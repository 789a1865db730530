/*
 * idem/postgres.h - the PostgreSQL store: cells in a table of PostgreSQL (15 or newer), for any number of
 * machines.
 *
 * Caveats first.
 *
 *  - It promises what the server promises.  With synchronous_commit or fsync off, or with a standby that is
 *    promoted though it lacked what was committed, a retry may be executed again.  The first two are reported
 *    when a connection is made; they cannot be prevented from here.
 *  - Leases and retention run on the clock of the server, which a failover changes.
 *  - Whoever may read the table reads the kept responses.
 *  - Behind a pooler that hands its connections out for a transaction (PgBouncer) nobody can LISTEN:
 *    whoever waits is woken a quarter of a second later.
 *
 * schema.sql makes the schema, with psql, once, by somebody who may; the store needs the right to call its
 * functions and no other.  Every step is one call of a function, with unnamed parameters, and its own
 * transaction: nothing is kept in a session, no transaction is open while a request is executed.  What many
 * requests ask for at the same time is one call and one commit.
 */
#ifndef IDEM_POSTGRES_H
#define IDEM_POSTGRES_H

#include <idem/loop.h>
#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_POSTGRES_DEFAULT_TIMEOUT_MS 1000

/* A payload longer than this is refused (IDEM_E_FULL). */
#define IDEM_POSTGRES_PAYLOAD_MAX ((size_t)255 << 20)

struct idem_postgres_options {
	/*
	 * Where, as libpq has it, and with everything that libpq knows: several hosts, TLS, a service,
	 * .pgpass, the environment.
	 *
	 *   postgres://[USER[:PASSWORD]@][HOST[:PORT][,HOST[:PORT]...]][/DATABASE][?OPTION=VALUE&...]
	 *   postgresql://...
	 *
	 * These options are the store's own:
	 *
	 *   connections=N   1 to 16, for each open store; 2 if nothing is said; when somebody waits, one
	 *                   more is made, to LISTEN
	 *   schema=NAME     that of schema.sql; "idem" if nothing is said
	 *
	 * Where the URI says nothing else, target_session_attrs is read-write, connect_timeout 2, and
	 * tcp_user_timeout the store's timeout.
	 *
	 * Read during the call only.
	 */
	const char *uri;

	struct idem_loop *loop; /* required, but not by idem_postgres_check() */

	/*
	 * How long a call may take.  What was sent by then is in doubt, and the server is asked to drop it.
	 * A claim that the server comes to later than this is not carried out.
	 * 0: IDEM_POSTGRES_DEFAULT_TIMEOUT_MS.
	 */
	uint64_t timeout_ms;

	/*
	 * Told of trouble that began or ended, as one sentence that names the server and the cure, never a
	 * password.  At most once a minute for one kind of trouble.  On the loop's thread.  May be NULL.
	 */
	void (*report)(void *report_data, const char *sentence);
	void *report_data;
};

/*
 * Opens a store.  The server need not be there: connections are made, and made again, in the background, and
 * until there is one cas() ends with IDEM_E_UNAVAILABLE (or waits, while the first attempt is under way).
 * IDEM_OK; IDEM_E_INVALID (no loop, or a URI that says nothing sensible); IDEM_E_NOMEM.  why (cap bytes, NUL
 * included) gets one sentence that names what is wrong in the URI and what would be right, or "".
 *
 * cas() always ends later, but for errors.  Connections are made on a thread of their own: nothing here
 * blocks.  IDEM_E_FULL: the server's disk is full, or the payload is longer than IDEM_POSTGRES_PAYLOAD_MAX.
 *
 * After fork() a child opens the store anew; what its parent opened is not for it.
 */
IDEM_API int idem_postgres_open(const struct idem_postgres_options *options, struct idem_store **ret_store,
                                char *why, size_t cap) IDEM_MUST_CHECK;

/* Is the URI one that idem_postgres_open() takes?  Connects to nothing.  Errors as there. */
IDEM_API int idem_postgres_check(const struct idem_postgres_options *options, char *why,
                                 size_t cap) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
