/*
 * The one step of the Redis store: a compare-and-swap of one key, in Lua.
 *
 * The server runs it in one piece, and lets nothing else in between.  Its words:
 *
 *   KEYS[1]  the cell, and the channel on which its changes are told
 *   ARGV[1]  a serial, which the answer begins with: a reply that went astray is not taken for another
 *        2   the tag that is expected; "": only if there is no cell
 *        3   the new cell's head; "": remove it
 *        4   how long to keep it, in ms
 *        5   its payload
 *        6   the fingerprint that may see the payload; "": nobody wants it
 *        7   "1": those who watch the cell want to hear of it
 *        8   not after this time of the server, in ms; "": whenever it comes
 *
 * An empty string is there though nothing can be read of it: hence NX.
 *
 * The answer is the serial, a number (layout.h), and what belongs to it: the cell that is there, its time to
 * live and its payload, or why nobody could be told of the change.
 */
#include <string.h>

#include <openssl/evp.h>

#include "layout.h"

#define STEP                                                                                                 \
	"local serial, expect, head, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4]\n"                          \
	"local payload, fingerprint, news, until_ms = ARGV[5], ARGV[6], ARGV[7], ARGV[8]\n"                  \
	"if until_ms ~= '' then\n"                                                                           \
	"  local now = redis.call('TIME')\n"                                                                 \
	"  if now[1] * 1000 + now[2] / 1000 > tonumber(until_ms) then return {serial, 2} end\n"              \
	"end\n"                                                                                              \
	"local there = redis.call('GETRANGE', KEYS[1], 0, 175)\n"                                            \
	"if there ~= '' and (#there < 176 or string.sub(there, 1, 7) ~= 'idem/1 ') then\n"                   \
	"  return {serial, 3, there}\n"                                                                      \
	"end\n"                                                                                              \
	"if string.sub(there, 8, 39) ~= expect then\n"                                                       \
	"  if there == '' then\n"                                                                            \
	"    if redis.call('EXISTS', KEYS[1]) == 1 then return {serial, 3, there} end\n"                     \
	"    return {serial, 0}\n"                                                                           \
	"  end\n"                                                                                            \
	"  local ttl = redis.call('PTTL', KEYS[1])\n"                                                        \
	"  if string.sub(there, 41, 46) == 'stored' and string.sub(there, 48, 111) == fingerprint then\n"    \
	"    return {serial, 0, there, ttl, redis.call('GETRANGE', KEYS[1], 176, -1)}\n"                     \
	"  end\n"                                                                                            \
	"  return {serial, 0, there, ttl}\n"                                                                 \
	"end\n"                                                                                              \
	"if head == '' then\n"                                                                               \
	"  redis.call('DEL', KEYS[1])\n"                                                                     \
	"elseif expect == '' then\n"                                                                         \
	"  if not redis.call('SET', KEYS[1], head .. payload, 'PX', retain, 'NX') then\n"                    \
	"    return {serial, 3, there}\n"                                                                    \
	"  end\n"                                                                                            \
	"else\n"                                                                                             \
	"  redis.call('SET', KEYS[1], head .. payload, 'PX', retain)\n"                                      \
	"end\n"                                                                                              \
	"local told = news == '1' and redis.pcall('PUBLISH', KEYS[1], '')\n"                                 \
	"return {serial, 1, type(told) == 'table' and told.err or nil}\n"

/* What is promised already may take more than maxmemory: it ends, and frees more. */
#define MAY_EXCEED "#!lua flags=allow-oom\n"

static int
hash(struct script *script, const char *text)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned len;

	script->text = text;
	/* SHA-1 is how EVALSHA names scripts, and no secret. */
	if (EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL) != 1)
		return IDEM_E_NOMEM;
	idem_redis_hex(digest, SHA_LEN / 2, script->sha);
	script->sha[SHA_LEN] = '\0';
	return IDEM_OK;
}

int
idem_redis_scripts_make(struct script scripts[SCRIPTS])
{
	int rc = hash(&scripts[SCRIPT_MAKE], STEP);

	return rc == IDEM_OK ? hash(&scripts[SCRIPT_CHANGE], MAY_EXCEED STEP) : rc;
}
