-- The tables and functions of Idem's PostgreSQL store, version 1.
--
-- For psql, by a role that may create schemas; the role that the gateways log in with needs none of that:
--
--   psql -X -v ON_ERROR_STOP=1 -v gateway=ROLE -f schema.sql DATABASE
--
--   -v gateway=ROLE   may use the store, and nothing but the functions that it needs
--   -v schema=NAME    instead of "idem"; gateways say it too: postgres://...?schema=NAME
--
-- Whatever changes here gets another version and a file that leads from the last one to it.  Gateways say what
-- they find and what they want, and do nothing else until both are the same.

\if :{?schema}
\else
\set schema idem
\endif

BEGIN;

CREATE SCHEMA :"schema";
SET LOCAL search_path = :"schema", pg_temp;

-- What a gateway looks for first.
CREATE FUNCTION schema_version() RETURNS integer
	LANGUAGE sql IMMUTABLE
	AS $$ SELECT 1 $$;

-- A row is a cell: one key of one scope.
--
-- No index has a column that changes while a request is executed and answered, so that these changes stay on
-- the row's page (HOT) and leave nothing to a vacuum.  fillfactor keeps the room for that.  look_at is when
-- the sweep looks at the row; the sweep alone changes it.
CREATE TABLE cells (
	scope       bytea       NOT NULL CHECK (length(scope) = 16),        -- its digest
	key         bytea       NOT NULL CHECK (length(key) = 16),          -- its digest, within the scope
	state       text        NOT NULL CHECK (state IN ('locked', 'stored', 'doubt')),
	tag         bytea       NOT NULL CHECK (length(tag) = 16),          -- of this write; 12 bytes name the owner
	fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),  -- of the request
	attempt     bigint      NOT NULL,                                   -- which execution it is
	created     timestamptz NOT NULL,
	written     timestamptz NOT NULL,
	lease_ms    bigint      NOT NULL,                                   -- from written, while it is locked
	retain_ms   bigint      NOT NULL,
	expires     timestamptz NOT NULL,                                   -- then it is as if it had never been
	look_at     timestamptz NOT NULL,
	waited      boolean     NOT NULL DEFAULT false,                     -- somebody wants to hear of its end
	payload     bytea       NOT NULL,                                   -- the response, see cells_readable
	PRIMARY KEY (scope, key)
) WITH (
	fillfactor = 70,
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_insert_scale_factor = 0.1,
	autovacuum_analyze_scale_factor = 0.1,
	autovacuum_vacuum_cost_delay = 0,
	vacuum_truncate = false, -- it would lock the table
	toast.autovacuum_vacuum_scale_factor = 0.02,
	toast.autovacuum_vacuum_cost_delay = 0,
	toast.vacuum_truncate = false
);
CREATE INDEX cells_look_at ON cells (look_at);

-- ---- the step ----

-- What swap() answers for each of its cells.
CREATE TYPE swapped AS (
	number      integer,     -- of the cell, from 1
	outcome     integer,     -- 0: something else is there; 1: it is written; 2: it came too late
	at          timestamptz, -- now
	tag         bytea,       -- what is there, or NULL
	state       text,
	attempt     bigint,
	lease_ms    bigint,
	retain_ms   bigint,
	written     timestamptz,
	fingerprint bytea,
	payload     bytea        -- only for a caller that wants it and brings the fingerprint
);

-- Replaces cells whose tags are the expected ones; NULL expects that there is no cell.  The state 'absent'
-- removes it.  waits: whoever is told that the cell is locked wants to hear of its end.  not_afters: what
-- comes later than that is not done.  patience_ms: how long to wait for other transactions.
--
-- Cells are locked in one order by all, so that no two calls wait for each other.  Each look is a statement of
-- its own and sees what has been committed before it began; whatever it found is written over only if it is
-- still there.
--
-- Plans are kept for as long as a connection lives.  One that was made when the table was small would read all
-- of it when it is large: thus enable_seqscan.
CREATE FUNCTION swap(
	scopes bytea[], keys bytea[], expects bytea[], tags bytea[], states text[], attempts bigint[],
	leases_ms bigint[], retains_ms bigint[], fingerprints bytea[], payloads bytea[], wants boolean[],
	waits boolean[], not_afters timestamptz[], patience_ms integer
) RETURNS SETOF swapped
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER
	SET search_path = :"schema", pg_temp
	SET enable_seqscan = off
	AS $$
DECLARE
	op record;
	there cells;
	answer swapped;
	is_there boolean; -- if only its row
	lives boolean;
BEGIN
	PERFORM set_config('lock_timeout', patience_ms::text, true);
	FOR op IN
		SELECT o.*
		FROM unnest(scopes, keys, expects, tags, states, attempts, leases_ms, retains_ms, fingerprints,
			payloads, wants, waits, not_afters) WITH ORDINALITY
			AS o(scope, key, expect, tag, state, attempt, lease_ms, retain_ms, fingerprint,
				payload, want, wait, not_after, number)
		ORDER BY o.scope, o.key, o.number
	LOOP
		LOOP
			answer := NULL;
			answer.number := op.number;
			answer.at := clock_timestamp();
			answer.outcome := 2;
			EXIT WHEN answer.at > op.not_after;

			SELECT c.* INTO there FROM cells c WHERE c.scope = op.scope AND c.key = op.key;
			is_there := FOUND;
			lives := is_there AND there.expires > answer.at;
			answer.outcome := 0;
			EXIT WHEN NOT lives AND op.expect IS NOT NULL;
			IF lives AND there.tag IS DISTINCT FROM op.expect THEN
				IF op.wait AND there.state = 'locked' AND NOT there.waited THEN
					UPDATE cells c SET waited = true
					WHERE c.scope = op.scope AND c.key = op.key AND c.tag = there.tag;
					CONTINUE WHEN NOT FOUND;
				END IF;
				answer.tag := there.tag;
				answer.state := there.state;
				answer.attempt := there.attempt;
				answer.lease_ms := there.lease_ms;
				answer.retain_ms := there.retain_ms;
				answer.written := there.written;
				answer.fingerprint := there.fingerprint;
				IF op.want AND there.state = 'stored' AND there.fingerprint = op.fingerprint THEN
					answer.payload := there.payload;
				END IF;
				EXIT;
			END IF;

			-- It may be written, if nothing has changed since.
			IF op.state = 'absent' THEN
				DELETE FROM cells c
				WHERE c.scope = op.scope AND c.key = op.key
					AND c.tag = there.tag AND c.waited = there.waited;
				CONTINUE WHEN is_there AND NOT FOUND;
			ELSIF is_there THEN
				UPDATE cells c SET
					state = op.state, tag = op.tag, fingerprint = op.fingerprint,
					attempt = op.attempt,
					created = CASE WHEN lives THEN c.created ELSE answer.at END,
					written = answer.at,
					lease_ms = op.lease_ms, retain_ms = op.retain_ms,
					expires = answer.at + op.retain_ms * interval '1 millisecond',
					-- A renewal ends nothing: who waits goes on waiting.
					waited = c.waited AND op.state = 'locked'
						AND substr(op.tag, 1, 12) IS NOT DISTINCT FROM substr(op.expect, 1, 12),
					payload = op.payload
				WHERE c.scope = op.scope AND c.key = op.key
					AND c.tag = there.tag AND c.waited = there.waited;
				CONTINUE WHEN NOT FOUND;
			ELSE
				INSERT INTO cells (scope, key, state, tag, fingerprint, attempt, created, written,
					lease_ms, retain_ms, expires, look_at, payload)
				VALUES (op.scope, op.key, op.state, op.tag, op.fingerprint, op.attempt, answer.at,
					answer.at, op.lease_ms, op.retain_ms,
					answer.at + op.retain_ms * interval '1 millisecond',
					answer.at + op.retain_ms * interval '1 millisecond', op.payload)
				ON CONFLICT (scope, key) DO NOTHING;
				-- Another one was first: the next look sees it.
				CONTINUE WHEN NOT FOUND;
			END IF;

			IF is_there AND there.waited AND (op.state <> 'locked'
				OR substr(op.tag, 1, 12) IS DISTINCT FROM substr(op.expect, 1, 12)) THEN
				PERFORM pg_notify(current_schema(), encode(op.scope || op.key, 'hex'));
			END IF;
			-- It had to wait for another transaction: nobody counts on it any more.
			IF clock_timestamp() > op.not_after THEN
				RAISE EXCEPTION 'too late' USING ERRCODE = 'ID001';
			END IF;
			answer.outcome := 1;
			EXIT;
		END LOOP;
		RETURN NEXT answer;
	END LOOP;
END
$$;

-- ---- the rest of what gateways do ----

-- What a gateway must know of the server.
CREATE FUNCTION greet(
	OUT version integer, OUT at timestamptz, OUT process integer, OUT isolation text, OUT synchronous text,
	OUT fsync text
)
	LANGUAGE sql VOLATILE SECURITY DEFINER
	SET search_path = :"schema", pg_temp
	AS $$
	SELECT schema_version(), clock_timestamp(), pg_backend_pid(),
		current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
		current_setting('fsync')
$$;

-- Removes up to so many cells whose time is over: how many it looked at.  Never waits for anybody.
CREATE FUNCTION sweep(at_most integer) RETURNS integer
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER
	SET search_path = :"schema", pg_temp
	SET enable_seqscan = off
	AS $$
DECLARE
	found_cells tid[];
	at timestamptz := clock_timestamp();
BEGIN
	SELECT array_agg(f.ctid) INTO found_cells
	FROM (
		SELECT c.ctid FROM cells c WHERE c.look_at <= at
		ORDER BY c.look_at LIMIT at_most
		FOR UPDATE SKIP LOCKED
	) f;
	DELETE FROM cells c WHERE c.ctid = ANY (found_cells) AND c.expires <= at;
	UPDATE cells c SET look_at = c.expires WHERE c.ctid = ANY (found_cells) AND c.expires > at;
	RETURN coalesce(cardinality(found_cells), 0);
END
$$;

-- Which of these are locked, and by which owner?
CREATE FUNCTION peek(scopes bytea[], keys bytea[])
	RETURNS TABLE (number integer, owner bytea)
	LANGUAGE sql VOLATILE SECURITY DEFINER
	SET search_path = :"schema", pg_temp
	SET enable_seqscan = off
	AS $$
	SELECT o.number::integer, substr(c.tag, 1, 12)
	FROM unnest(scopes, keys) WITH ORDINALITY AS o(scope, key, number)
		JOIN cells c ON c.scope = o.scope AND c.key = o.key
	WHERE c.state = 'locked' AND c.expires > clock_timestamp()
$$;

-- ---- for people ----

-- The header fields of a record, in order: [["Content-Type", "text/plain"], ...].
CREATE FUNCTION record_headers(record bytea) RETURNS jsonb
	LANGUAGE plpgsql IMMUTABLE STRICT
	AS $$
DECLARE
	headers jsonb := '[]';
	place integer;
	name_len integer;
	value_len integer;
BEGIN
	place := 14 + get_byte(record, 3);
	FOR i IN 1 .. get_byte(record, 6) + 256 * get_byte(record, 7) LOOP
		name_len := get_byte(record, place);
		value_len := get_byte(record, place + 1) + 256 * get_byte(record, place + 2)
			+ 65536 * get_byte(record, place + 3);
		place := place + 4;
		headers := headers || jsonb_build_array(jsonb_build_array(
			encode(substr(record, place + 1, name_len), 'escape'),
			encode(substr(record, place + 1 + name_len, value_len), 'escape')));
		place := place + name_len + value_len;
	END LOOP;
	RETURN headers;
END
$$;

-- The body of a record, or NULL if it was too long to keep.
CREATE FUNCTION record_body(record bytea) RETURNS bytea
	LANGUAGE sql IMMUTABLE STRICT
	AS $$
	SELECT CASE WHEN get_byte(record, 1) & 1 = 1 THEN
		substr(record, length(record) + 1 - (get_byte(record, 10) + (get_byte(record, 11) << 8)
			+ (get_byte(record, 12) << 16) + (get_byte(record, 13) << 24)))
	END
$$;

-- What is kept, as people read it.
CREATE VIEW cells_readable AS
	SELECT encode(scope, 'hex') AS scope,
		encode(key, 'hex') AS key,
		state,
		attempt,
		encode(substr(tag, 1, 12), 'hex') AS owner,
		encode(fingerprint, 'hex') AS fingerprint,
		created,
		written,
		CASE WHEN state = 'locked' THEN written + lease_ms * interval '1 millisecond' END AS lease_ends,
		expires,
		CASE WHEN is_record THEN get_byte(payload, 4) + 256 * get_byte(payload, 5) END AS status,
		CASE WHEN is_record THEN record_headers(payload) END AS headers,
		CASE WHEN is_record THEN record_body(payload) END AS body
	FROM (SELECT *, state = 'stored' AND length(payload) >= 14 AND get_byte(payload, 0) = 1 AS is_record
		FROM cells) c
	WHERE expires > clock_timestamp();

-- ---- rights ----

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
GRANT EXECUTE ON FUNCTION record_headers(bytea), record_body(bytea) TO PUBLIC; -- for whoever may see the view
\if :{?gateway}
GRANT USAGE ON SCHEMA :"schema" TO :"gateway";
GRANT EXECUTE ON FUNCTION
	schema_version(),
	greet(),
	swap(bytea[], bytea[], bytea[], bytea[], text[], bigint[], bigint[], bigint[], bytea[], bytea[], boolean[],
		boolean[], timestamptz[], integer),
	sweep(integer),
	peek(bytea[], bytea[])
	TO :"gateway";
\endif

COMMIT;
