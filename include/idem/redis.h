/*
 * idem/redis.h - the Redis store: cells in Redis (7.0 or newer) or Valkey, for any number of machines.
 *
 * Caveats first.
 *
 *  - It promises what Redis promises.  A server that keeps nothing on a disk forgets every key when
 *    it restarts, and a replica that is promoted lacks what it had not received; then a retry is
 *    executed again.  wait_replicas narrows the second; nothing here closes it.  Let it name all replicas:
 *    a master that was replaced while it lives takes writes until it learns of it (some 10 s with
 *    Sentinels), and a replica that still follows it acknowledges what the new master never hears of.
 *  - A maxmemory-policy other than noeviction lets Redis drop keys that are promised.  It is reported
 *    when a connection is made; it cannot be prevented from here.
 *  - Leases and retention run on the clocks of the servers, which a failover changes.
 *  - The server, and whoever can read its memory, sees the kept responses in plain text.
 *
 * A cell is a string, which redis-cli can show: a line of text (version, tag, state, fingerprint,
 * attempt, times in ms), then the payload.  Its name is PREFIX, then scope and key as 32 hexadecimal digits
 * each, with ":" between.  It has a time to live from the command that makes it on.  Each step is one
 * script on that one key, sent by EVALSHA, and by EVAL where the server does not know it.
 */
#ifndef IDEM_REDIS_H
#define IDEM_REDIS_H

#include <idem/loop.h>
#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDEM_REDIS_DEFAULT_TIMEOUT_MS 1000

struct idem_redis_options {
	/*
	 * Where, as one of
	 *
	 *   redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]
	 *   unix:PATH                                           (db=, user= and password= are options)
	 *   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/NAME[/DATABASE]
	 *   redis+cluster://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]
	 *
	 * with rediss for redis to use TLS, and valkey and valkeys as other names for the same.  ":PASSWORD"
	 * alone is the password of the default user.  USER and PASSWORD are percent-encoded (RFC 3986,
	 * section 2.1).  After "?" come options, with "&" between them, each once:
	 *
	 *   prefix=TEXT           of the names of all keys and channels; "idem:" if nothing is said
	 *   wait_replicas=N,MS    a write is acknowledged when N replicas have it; after MS it is in doubt
	 *   connections=N         1 to 16, for each open store and server; 2 if nothing is said
	 *   db=N, user=TEXT, password=TEXT
	 *   sentinel_user=TEXT, sentinel_password=TEXT
	 *                         those of the Sentinels, which share none with the servers
	 *   ca=FILE               TLS: whom to trust, instead of those whom the system trusts
	 *   cert=FILE, key=FILE   TLS: who we are
	 *
	 * Read during the call only.
	 */
	const char *uri;

	struct idem_loop *loop; /* required, but not by idem_redis_check() */

	/*
	 * How long a connection may take to be made, and a command to be answered; after that the
	 * connection is closed and what was sent is in doubt.  A claim that reaches the server later
	 * than this is not carried out; the server's clock is known as exactly as it was quick to greet.  0:
	 * IDEM_REDIS_DEFAULT_TIMEOUT_MS.
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
 * Opens a store.  The server need not be there: connections are made, and made again, in the background,
 * and until there is one cas() ends with IDEM_E_UNAVAILABLE (or waits, while the first attempt is under
 * way).  IDEM_OK; IDEM_E_INVALID (no loop, a URI that says nothing sensible, or TLS files that cannot be
 * used); IDEM_E_NOMEM; IDEM_E_RANDOM; IDEM_E_SYSTEM (no descriptor).  why (cap bytes, NUL included) gets
 * one sentence that names what is wrong in the URI and what would be right, or "".
 *
 * cas() always ends later, but for errors.  Names are looked up on a thread of their own: nothing here
 * blocks.  IDEM_E_FULL: Redis is at its maxmemory and evicts nothing.
 *
 * After fork() a child opens the store anew; what its parent opened is not for it.
 */
IDEM_API int idem_redis_open(const struct idem_redis_options *options, struct idem_store **ret_store,
                             char *why, size_t cap) IDEM_MUST_CHECK;

/* Is the URI one that idem_redis_open() takes, and are the TLS files it names usable?  Connects to nothing.
 * Errors as there. */
IDEM_API int idem_redis_check(const struct idem_redis_options *options, char *why,
                              size_t cap) IDEM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
