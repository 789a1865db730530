/* What a test does to a store: idem_step() driven to its end, one function for each verb. */
#ifndef IDEM_TEST_ACTOR_H
#define IDEM_TEST_ACTOR_H

#include <idem/idem.h>

/* One user of a store.  loop may be NULL for a store that always answers at once. */
struct actor {
	struct idem_store *store;
	struct idem_loop *loop;
};

/* What a client sends; both halves of an id differ from number to number. */
struct request {
	struct idem_id id;
	struct idem_fingerprint fingerprint;
	struct idem_policy policy;
};

/* What a claim brought. */
struct claim {
	struct idem_tag fresh; /* what it was made with */
	struct idem_tag owner; /* of the lock that was won */
	uint32_t attempt;
	uint64_t wait_ms;
	struct idem_cell found;
	void *payload; /* a copy of found.payload, or NULL; see claim_free() */
};

struct request actor_request(uint64_t number, uint64_t lease_ms, uint64_t ttl_ms);
struct idem_tag actor_tag(void);

/* One compare-and-swap to its end, not yet released.  Its status. */
int actor_cas(struct actor *actor, struct idem_io *io);

/* All of these: a verdict, or a negative status. */

/* claim may be NULL: nobody cares. */
int actor_claim(struct actor *actor, const struct request *request, struct claim *claim);
/* With claim->fresh, for the second time. */
int actor_claim_again(struct actor *actor, const struct request *request, struct claim *claim);
int actor_settle(struct actor *actor, const struct request *request, const struct claim *claim,
                 enum idem_verb verb, struct idem_bytes payload);
/* With a tag that was used before. */
int actor_settle_again(struct actor *actor, const struct request *request, const struct claim *claim,
                       enum idem_verb verb, struct idem_bytes payload, const struct idem_tag *fresh);
/* claim->owner is counted on. */
int actor_renew(struct actor *actor, const struct request *request, struct claim *claim);
int actor_complete(struct actor *actor, const struct request *request, const struct claim *claim,
                   struct idem_bytes payload);

void claim_free(struct claim *claim);

/* Bytes that differ at every place and from number to number; from malloc(3). */
void *payload_make(uint64_t number, size_t len);
bool payload_is(struct idem_bytes payload, uint64_t number, size_t len);

#endif
