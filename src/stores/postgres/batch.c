/*
 * What waits when a connection has nothing to do, as one statement: so it is one round trip and one commit,
 * and the more is asked for, the more goes together.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../rules.h"
#include "layout.h"

/* A batch that met another one (SQLSTATE 40001, 40P01) is made again so often. */
#define AGAIN_MAX 20

#define MS_MAX UINT64_C(999999999999999) /* 31 thousand years */

/* What swap() answers, by field. */
enum {
	FIELD_NUMBER,
	FIELD_OUTCOME,
	FIELD_AT,
	FIELD_TAG,
	FIELD_STATE,
	FIELD_ATTEMPT,
	FIELD_LEASE,
	FIELD_RETAIN,
	FIELD_WRITTEN,
	FIELD_FINGERPRINT,
	FIELD_PAYLOAD,
	FIELDS
};

enum { OUTCOME_REFUSED, OUTCOME_APPLIED, OUTCOME_TOO_LATE };

static const char *const states[] = {"absent", "locked", "stored", "doubt"};

/* ---- out ---- */

static const struct {
	Oid element, array;
} types[COLUMNS] = {
	[COLUMN_SCOPE] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_KEY] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_EXPECT] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_TAG] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_STATE] = {OID_TEXT, OID_TEXT_ARRAY},
	[COLUMN_ATTEMPT] = {OID_INT8, OID_INT8_ARRAY},
	[COLUMN_LEASE] = {OID_INT8, OID_INT8_ARRAY},
	[COLUMN_RETAIN] = {OID_INT8, OID_INT8_ARRAY},
	[COLUMN_FINGERPRINT] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_PAYLOAD] = {OID_BYTEA, OID_BYTEA_ARRAY},
	[COLUMN_WANT] = {OID_BOOL, OID_BOOL_ARRAY},
	[COLUMN_WAIT] = {OID_BOOL, OID_BOOL_ARRAY},
	[COLUMN_NOT_AFTER] = {OID_TIMESTAMPTZ, OID_TIMESTAMPTZ_ARRAY},
};

static int64_t
at_most(uint64_t ms)
{
	return (int64_t)(ms < MS_MAX ? ms : MS_MAX);
}

/* A claim that comes when its owner has given up would lock the key for nobody. */
static bool
has_an_end(const struct idem_io *io)
{
	return io->write.state == IDEM_LOCKED && !idem_tag_same_owner(&io->write.tag, &io->expect);
}

static void
put_call(struct batch *batch, const struct call *call)
{
	const struct idem_io *io = call->io;
	struct column *columns = batch->columns;
	const char *state = states[io->write.state];

	idem_postgres_column_put(&columns[COLUMN_SCOPE], io->id.b, IDEM_ID_LEN / 2);
	idem_postgres_column_put(&columns[COLUMN_KEY], io->id.b + IDEM_ID_LEN / 2, IDEM_ID_LEN / 2);
	if (idem_tag_is_zero(&io->expect))
		idem_postgres_column_put_null(&columns[COLUMN_EXPECT]);
	else
		idem_postgres_column_put(&columns[COLUMN_EXPECT], io->expect.b, IDEM_TAG_LEN);
	idem_postgres_column_put(&columns[COLUMN_TAG], io->write.tag.b, IDEM_TAG_LEN);
	idem_postgres_column_put(&columns[COLUMN_STATE], state, strlen(state));
	idem_postgres_column_put_int8(&columns[COLUMN_ATTEMPT], io->write.attempt);
	idem_postgres_column_put_int8(&columns[COLUMN_LEASE], at_most(io->write.lease_ms));
	idem_postgres_column_put_int8(&columns[COLUMN_RETAIN], at_most(io->write.retain_ms));
	idem_postgres_column_put(&columns[COLUMN_FINGERPRINT], io->write.fingerprint.b, IDEM_FINGERPRINT_LEN);
	idem_postgres_column_put(&columns[COLUMN_PAYLOAD], io->write.payload.data,
	                         io->write.state != IDEM_ABSENT ? io->write.payload.len : 0);
	idem_postgres_column_put_bool(&columns[COLUMN_WANT], io->want_payload);
	idem_postgres_column_put_bool(&columns[COLUMN_WAIT],
	                              idem_postgres_hints_wanted(&batch->store->hints, &io->id));
	if (batch->link.clock_known && has_an_end(io))
		idem_postgres_column_put_int8(&columns[COLUMN_NOT_AFTER],
		                              (int64_t)call->until_ms * 1000 + batch->link.clock_us);
	else
		idem_postgres_column_put_null(&columns[COLUMN_NOT_AFTER]);
}

/* Those that wait, in order, as many as go together. */
static void
gather(struct batch *batch)
{
	struct postgres_store *store = batch->store;

	for (size_t i = 0; i < COLUMNS; i++)
		idem_postgres_column_begin(&batch->columns[i], types[i].element);
	batch->count = 0;
	while (batch->count < BATCH_MAX && store->waiting != NULL) {
		bool alone = store->waiting->alone;
		size_t len = store->waiting->io->write.payload.len;

		if (batch->count > 0 && (alone || batch->columns[COLUMN_PAYLOAD].len + len > BATCH_BYTES))
			break;
		batch->calls[batch->count] = idem_postgres_call_take(store);
		put_call(batch, batch->calls[batch->count++]);
		if (alone)
			break;
	}
}

static bool
is_whole(const struct batch *batch)
{
	for (size_t i = 0; i < COLUMNS; i++)
		if (batch->columns[i].failed)
			return false;
	return true;
}

static int
send(struct batch *batch)
{
	static const char text[] = "SELECT * FROM %s.swap($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)";
	Oid oids[COLUMNS + 1];
	const char *values[COLUMNS + 1];
	int lengths[COLUMNS + 1];
	unsigned char patience[4];
	const struct parameters parameters = {COLUMNS + 1, oids, values, lengths};

	if (!is_whole(batch))
		return IDEM_E_NOMEM;
	for (size_t i = 0; i < COLUMNS; i++) {
		oids[i] = types[i].array;
		values[i] = (const char *)batch->columns[i].data;
		lengths[i] = (int)batch->columns[i].len;
	}
	idem_postgres_put_int4(patience, (uint32_t)batch->store->hub.timeout_ms);
	oids[COLUMNS] = OID_INT4;
	values[COLUMNS] = (const char *)patience;
	lengths[COLUMNS] = sizeof patience;
	return idem_postgres_link_send(&batch->link, &batch->swap, text, &parameters);
}

/* All of it with one status. */
static void
finish_all(struct batch *batch, int status)
{
	size_t count = batch->count;

	batch->count =
		0; /* a callback may begin something new, but not on this link, which is not idle yet */
	for (size_t i = 0; i < count; i++)
		idem_postgres_call_finish(batch->calls[i], status);
}

static void
free_memory(struct batch *batch)
{
	for (size_t i = 0; i < COLUMNS; i++)
		idem_postgres_column_end(&batch->columns[i], batch->columns[i].cap <= (size_t)64 << 10);
}

void
idem_postgres_batch_go(struct batch *batch)
{
	int rc;

	if (!idem_postgres_link_is_free(&batch->link) || batch->store->waiting == NULL)
		return;
	gather(batch);
	rc = send(batch);
	free_memory(batch);
	if (rc != IDEM_OK)
		finish_all(batch, rc);
}

/* ---- back ---- */

static int
take_payload(struct call *call, const PGresult *result, int row)
{
	struct idem_io *io = call->io;
	size_t len;

	if (!idem_rule_may_see_payload(io->seen.state, &io->seen.fingerprint, &io->write.fingerprint,
	                               io->want_payload))
		return IDEM_OK;
	if (PQgetisnull(result, row, FIELD_PAYLOAD) != 0)
		return IDEM_E_CORRUPT;
	len = (size_t)PQgetlength(result, row, FIELD_PAYLOAD);
	call->payload = malloc(len + 1);
	if (call->payload == NULL)
		return IDEM_E_NOMEM;
	memcpy(call->payload, PQgetvalue(result, row, FIELD_PAYLOAD), len);
	io->seen.payload = (struct idem_bytes){call->payload, len};
	return IDEM_OK;
}

static enum idem_state
state_of(const PGresult *result, int row)
{
	const char *text = PQgetvalue(result, row, FIELD_STATE);
	size_t len = (size_t)PQgetlength(result, row, FIELD_STATE);

	for (enum idem_state state = IDEM_LOCKED; state <= IDEM_DOUBT; state++)
		if (strlen(states[state]) == len && memcmp(text, states[state], len) == 0)
			return state;
	return IDEM_ABSENT;
}

static int
take_cell(struct call *call, const PGresult *result, int row)
{
	struct idem_cell *seen = &call->io->seen;
	int64_t at, written, attempt, lease_ms, retain_ms;

	if (PQgetisnull(result, row, FIELD_TAG) != 0)
		return IDEM_OK; /* there is none */
	seen->state = state_of(result, row);
	if (seen->state == IDEM_ABSENT ||
	    !idem_postgres_get_bytes(result, row, FIELD_TAG, seen->tag.b, IDEM_TAG_LEN) ||
	    !idem_postgres_get_bytes(result, row, FIELD_FINGERPRINT, seen->fingerprint.b,
	                             IDEM_FINGERPRINT_LEN) ||
	    !idem_postgres_get_int8(result, row, FIELD_AT, &at) ||
	    !idem_postgres_get_int8(result, row, FIELD_WRITTEN, &written) ||
	    !idem_postgres_get_int8(result, row, FIELD_ATTEMPT, &attempt) ||
	    !idem_postgres_get_int8(result, row, FIELD_LEASE, &lease_ms) ||
	    !idem_postgres_get_int8(result, row, FIELD_RETAIN, &retain_ms) || attempt < 0 ||
	    attempt > UINT32_MAX || lease_ms < 0 || retain_ms < 0)
		return IDEM_E_CORRUPT;
	seen->attempt = (uint32_t)attempt;
	seen->lease_ms = (uint64_t)lease_ms;
	seen->retain_ms = (uint64_t)retain_ms;
	seen->age_ms = idem_rule_age_ms((uint64_t)written, (uint64_t)at) / 1000;
	return take_payload(call, result, row);
}

static void
refused(struct call *call, const PGresult *result, int row)
{
	struct idem_io *io = call->io;
	int rc = take_cell(call, result, row);

	if (rc == IDEM_E_CORRUPT)
		idem_postgres_report(&call->store->hub, TROUBLE_CELL,
		                     "a row of \"%s\".cells makes no sense: somebody else has written it",
		                     call->store->hub.uri.schema);
	if (rc == IDEM_OK && io->seen.state == IDEM_LOCKED)
		idem_postgres_hints_promise(&call->store->hints, &io->id, &io->seen.tag);
	idem_postgres_call_finish(call, rc);
}

/* The server's clock is known anew: if it was set, there is time left. */
static void
too_late(struct call *call, uint64_t now_ms)
{
	if (call->until_ms > now_ms && call->again++ < 2)
		idem_postgres_call_again(call);
	else
		idem_postgres_call_finish(call, IDEM_E_UNAVAILABLE);
}

static void
settle(struct batch *batch, struct call *call, const PGresult *result, int row)
{
	struct hub *hub = &batch->store->hub;
	int32_t outcome;

	if (call->io == NULL) {
		idem_postgres_call_finish(call, IDEM_OK); /* nobody waits any more */
		return;
	}
	if (!idem_postgres_get_int4(result, row, FIELD_OUTCOME, &outcome))
		outcome = -1;
	switch (outcome) {
	case OUTCOME_APPLIED:
		call->io->applied = true;
		idem_postgres_recovered(hub, TROUBLE_FULL, "%s: new keys are taken again",
		                        batch->link.server);
		idem_postgres_call_finish(call, IDEM_OK);
		break;
	case OUTCOME_REFUSED:
		refused(call, result, row);
		break;
	case OUTCOME_TOO_LATE:
		too_late(call, hub->loop->ops->now_ms(hub->loop));
		break;
	default:
		idem_postgres_call_finish(call, IDEM_E_INDOUBT);
		break;
	}
}

/* Each call has its row, in whatever order; otherwise nothing of it is believed. */
static bool
find_rows(const struct batch *batch, const PGresult *result, int rows[BATCH_MAX])
{
	if (PQnfields(result) != FIELDS || PQntuples(result) != (int)batch->count)
		return false;
	for (size_t i = 0; i < batch->count; i++)
		rows[i] = -1;
	for (int row = 0; row < (int)batch->count; row++) {
		int32_t number;

		if (!idem_postgres_get_int4(result, row, FIELD_NUMBER, &number) || number < 1 ||
		    number > (int)batch->count || rows[number - 1] >= 0)
			return false;
		rows[number - 1] = row;
	}
	return true;
}

static void
answered(struct batch *batch, const PGresult *result)
{
	int rows[BATCH_MAX];
	size_t count = batch->count;
	int64_t at_us;

	if (!find_rows(batch, result, rows)) {
		finish_all(batch, IDEM_E_INDOUBT);
		idem_postgres_link_break(&batch->link, "its answer makes no sense");
		return;
	}
	if (idem_postgres_get_int8(result, (int)count - 1, FIELD_AT, &at_us))
		idem_postgres_link_set_clock(&batch->link, at_us);
	batch->count = 0;
	for (size_t i = 0; i < count; i++)
		settle(batch, batch->calls[i], result, rows[i]);
}

/* Nothing was written: those that have time left wait again, before all others and in their order. */
static void
again(struct batch *batch, bool alone, int otherwise)
{
	size_t count = batch->count;

	batch->count = 0;
	for (size_t i = count; i-- > 0;) {
		struct call *call = batch->calls[i];

		if (call->io == NULL || call->again++ >= AGAIN_MAX) {
			idem_postgres_call_finish(call, otherwise);
		} else {
			call->alone = call->alone || alone;
			idem_postgres_call_again(call);
		}
	}
}

static bool
is_error(const PGresult *result, const char *sqlstate)
{
	return strcmp(PQresultErrorField(result, PG_DIAG_SQLSTATE), sqlstate) == 0;
}

static enum trouble
trouble_of(const PGresult *result)
{
	if (is_error(result, "53100"))
		return TROUBLE_FULL;
	if (is_error(result, "42501"))
		return TROUBLE_RIGHTS;
	if (is_error(result, "3F000") || is_error(result, "42883") || is_error(result, "42P01"))
		return TROUBLE_SCHEMA;
	return TROUBLE_STATEMENT;
}

static void
failed(struct batch *batch, const PGresult *result)
{
	struct hub *hub = &batch->store->hub;
	char why[WHY_MAX];
	enum trouble trouble;

	/* It met another transaction (40001, 40P01), or waited for one for too long (55P03, ID001). */
	if (is_error(result, "40001") || is_error(result, "40P01") || is_error(result, "ID001") ||
	    is_error(result, "55P03")) {
		again(batch, false, IDEM_E_UNAVAILABLE);
		return;
	}
	trouble = trouble_of(result);
	idem_postgres_explain(hub, result, why, sizeof why);
	idem_postgres_report(hub, trouble, "%s: %s", batch->link.server, why);
	/* One of them may be the cause: the others must not suffer from it. */
	if (trouble == TROUBLE_STATEMENT && batch->count > 1)
		again(batch, true, IDEM_E_UNAVAILABLE);
	else
		finish_all(batch, trouble == TROUBLE_FULL ? IDEM_E_FULL : IDEM_E_UNAVAILABLE);
	if (is_error(result, "25006"))
		idem_postgres_link_break(&batch->link, why);
}

static void
swapped(struct statement *statement, struct link *link, enum ending ending, const PGresult *result)
{
	struct batch *batch = (struct batch *)(void *)((char *)statement - offsetof(struct batch, swap));

	(void)link;
	switch (ending) {
	case ENDED_DONE:
		answered(batch, result);
		break;
	case ENDED_REFUSED:
		failed(batch, result);
		break;
	case ENDED_LOST:
		finish_all(batch, IDEM_E_INDOUBT);
		break;
	}
}

/* ---- the link ---- */

static void
is_up(struct link *link)
{
	struct batch *batch = link->user_data;

	idem_postgres_recovered(link->hub, TROUBLE_SERVER, "%s: the store works again", link->server);
	idem_postgres_calls_go_on(batch->store);
}

static void
is_down(struct link *link, const char *why)
{
	struct batch *batch = link->user_data;

	if (link->tried)
		idem_postgres_report(link->hub, TROUBLE_SERVER, "cannot use the server: %s", why);
	idem_postgres_calls_go_on(batch->store);
}

static void
is_idle(struct link *link)
{
	struct batch *batch = link->user_data;

	/* These are seldom due, and must not wait until there is nothing else to do. */
	idem_postgres_hints_go(&batch->store->hints, batch);
	if (idem_postgres_link_is_free(link))
		idem_postgres_sweep_go(&batch->store->sweep, batch);
	idem_postgres_batch_go(batch);
}

static const struct link_user batch_user = {.up = is_up, .down = is_down, .idle = is_idle};

void
idem_postgres_batch_init(struct batch *batch, struct postgres_store *store)
{
	batch->store = store;
	batch->swap.ended = swapped;
	idem_postgres_link_init(&batch->link, &store->hub, &batch_user, batch);
}

void
idem_postgres_batch_close(struct batch *batch)
{
	idem_postgres_link_close(&batch->link);
	for (size_t i = 0; i < COLUMNS; i++)
		idem_postgres_column_end(&batch->columns[i], false);
}
