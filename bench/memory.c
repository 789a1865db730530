/*
 * The memory store alone: bytes for each record, and what a claim costs with ten
 * thousand and with ten million records.
 *
 *   bench_memory [RECORDS]     default: 10000000
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <idem/idem.h>

#include "bench.h"

#define ROUNDS 15
#define BATCH 20000
#define SMALL 10000

struct region {
	struct idem_store *store;
	void *memory;
	size_t len;
	unsigned long records;
};

/* A region sized for its records: 512 bytes for each, and the sixteenth that is kept free. */
static struct region
region_make(unsigned long records)
{
	struct region region = {.records = 0};
	struct idem_memory_options options = {0};
	int rc;

	region.len = (size_t)records * 512;
	region.len += region.len / 8 + ((size_t)64 << 20);
	region.len &= ~(size_t)4095;
	region.memory = mmap(NULL, region.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (region.memory == MAP_FAILED)
		die("mmap", idem_strerror(IDEM_E_SYSTEM));
	/* Of use where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it; never a condition. */
	(void)madvise(region.memory, region.len, MADV_HUGEPAGE);
	/* Pages are touched now, and not while something is measured. */
	memset(region.memory, 1, region.len);
	rc = idem_memory_format(region.memory, region.len, (struct idem_bytes){"bench", 5});
	if (rc != IDEM_OK)
		die("format", idem_strerror(rc));
	options.region = region.memory;
	options.len = region.len;
	rc = idem_memory_open(&options, &region.store);
	if (rc != IDEM_OK)
		die("open", idem_strerror(rc));
	return region;
}

/* An encoded response with a body of 200 bytes and two header fields. */
static size_t
make_record(uint8_t *record, size_t cap)
{
	static const struct idem_field fields[] = {{{"Content-Type", 12}, {"application/json", 16}},
	                                           {{"Location", 8}, {"/charges/ch_8e03978e40d543dd", 28}}};
	struct idem_response response = {.status = 201,
	                                 .reason = {"201 Created", 11},
	                                 .body_kept = true,
	                                 .fields = fields,
	                                 .field_count = 2,
	                                 .body = {NULL, 200}};
	size_t head = idem_response_head_len(&response);

	if (head + 200 > cap)
		die("record", idem_strerror(IDEM_E_INVALID));
	idem_response_encode_head(&response, record);
	memset(record + head, 'x', 200);
	return head + 200;
}

static void
perform(struct region *region, struct idem_op *op)
{
	struct idem_io io = {0};
	bool more = idem_step(op, NULL, &io);

	while (more) {
		if (region->store->ops->cas(region->store, &io) != IDEM_OK || io.status != IDEM_OK)
			die("cas", idem_strerror(io.status));
		more = idem_step(op, &io, &io);
		region->store->ops->release(region->store, &io);
	}
}

/* As a guard gets its tags: the source is asked once for many. */
static struct idem_tag
make_tag(void)
{
	static struct idem_tag tags[32];
	static size_t left;

	if (left == 0) {
		int rc = idem_random(NULL, tags, sizeof tags);

		if (rc != IDEM_OK)
			die("random", idem_strerror(rc));
		left = sizeof tags / sizeof *tags;
	}
	return tags[--left];
}

static struct idem_op
make_op(enum idem_verb verb, const struct idem_id *id)
{
	return (struct idem_op){
		.verb = verb,
		.policy = {60000, 86400000, false},
		.id = *id,
		.fresh = make_tag(),
	};
}

static struct idem_id
make_id(unsigned long number)
{
	struct idem_key key;
	struct idem_id id;

	key.len = (size_t)snprintf(key.text, sizeof key.text, "key-%lu", number);
	if (idem_id_make((struct idem_bytes){"bench", 5}, &key, &id) != IDEM_OK)
		die("id", idem_strerror(IDEM_E_NOMEM));
	return id;
}

/* What a gateway hashes of a request: its body, and its name. */
static struct idem_fingerprint
make_fingerprint(void)
{
	static const struct idem_body_rules raw = {.mode = IDEM_BODY_RAW};
	static const char text[] = "{\"amount\":1000,\"currency\":\"EUR\"}";
	struct idem_fingerprint fingerprint = {{0}};
	struct idem_body *body;
	int rc = idem_body_new(&raw, &body);

	if (rc == IDEM_OK)
		rc = idem_body_add(body, text, sizeof text - 1);
	if (rc == IDEM_OK)
		rc = idem_body_finish(body);
	if (rc == IDEM_OK)
		rc = idem_fingerprint_make((struct idem_bytes){"POST /charges", 13}, body, &fingerprint);
	if (rc != IDEM_OK)
		die("fingerprint", idem_strerror(rc));
	idem_body_free(body);
	return fingerprint;
}

/* A claim as a gateway makes it, from the key and the body to the verdict. */
static struct idem_op
claim(struct region *region, unsigned long number)
{
	struct idem_id id = make_id(number);
	struct idem_op op = make_op(IDEM_CLAIM, &id);

	op.fingerprint = make_fingerprint();
	perform(region, &op);
	return op;
}

static void
settle(struct region *region, enum idem_verb verb, const struct idem_op *won, const uint8_t *record,
       size_t len)
{
	struct idem_op op = make_op(verb, &won->id);

	op.fingerprint = won->fingerprint;
	op.owner = won->won;
	op.attempt = won->attempt;
	op.payload = (struct idem_bytes){record, len};
	perform(region, &op);
}

static void
fill(struct region *region, unsigned long records, const uint8_t *record, size_t len)
{
	for (; region->records < records; region->records++) {
		struct idem_op won = claim(region, region->records);

		settle(region, IDEM_COMPLETE, &won, record, len);
	}
}

/* A key that nobody has used, not even for a moment. */
static unsigned long
new_key(void)
{
	static unsigned long last = (unsigned long)1 << 40;

	return ++last;
}

static void
release_all(struct region *region, const struct idem_op *ops)
{
	for (unsigned i = 0; i < BATCH; i++)
		settle(region, IDEM_RELEASE, &ops[i], NULL, 0);
}

/* Nanoseconds for a claim of a new key. */
static double
time_claims(struct region *region)
{
	static struct idem_op ops[BATCH];
	double begin = now(), end;

	for (unsigned i = 0; i < BATCH; i++)
		ops[i] = claim(region, new_key());
	end = now();
	release_all(region, ops);
	return (end - begin) / BATCH * 1e9;
}

/* Nanoseconds for the swap in a claim of a new key, alone. */
static double
time_swaps(struct region *region)
{
	static struct idem_op ops[BATCH];
	static struct idem_io ios[BATCH];
	double begin, end;

	for (unsigned i = 0; i < BATCH; i++) {
		struct idem_id id = make_id(new_key());

		ops[i] = make_op(IDEM_CLAIM, &id);
		ops[i].fingerprint = make_fingerprint();
		memset(&ios[i], 0, sizeof ios[i]);
		if (!idem_step(&ops[i], NULL, &ios[i]))
			die("step", idem_strerror(ops[i].status));
	}
	begin = now();
	for (unsigned i = 0; i < BATCH; i++)
		if (region->store->ops->cas(region->store, &ios[i]) != IDEM_OK || !ios[i].applied)
			die("cas", idem_strerror(ios[i].status));
	end = now();
	for (unsigned i = 0; i < BATCH; i++)
		if (idem_step(&ops[i], &ios[i], &ios[i]))
			die("step", idem_strerror(IDEM_E_CORRUPT));
	release_all(region, ops);
	return (end - begin) / BATCH * 1e9;
}

/* Nanoseconds for a replay of a random record. */
static double
time_replays(struct region *region)
{
	static uint64_t random = 1;
	double begin = now();

	for (unsigned i = 0; i < BATCH; i++) {
		struct idem_op op;

		random = random * 6364136223846793005u + 1442695040888963407u;
		op = claim(region, (unsigned long)(random >> 32) % region->records);

		if (op.verdict != IDEM_REPLAY)
			die("replay", idem_strerror(IDEM_E_CORRUPT));
	}
	return (now() - begin) / BATCH * 1e9;
}

static double
median(double *values)
{
	qsort(values, ROUNDS, sizeof *values, compare_doubles);
	return values[ROUNDS / 2];
}

int
main(int argc, char **argv)
{
	unsigned long many = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000000;
	static double whole[2][ROUNDS], cas[2][ROUNDS], replay[2][ROUNDS], ratios[3][ROUNDS];
	struct region regions[2] = {region_make(SMALL), region_make(many)};
	struct idem_memory_usage usage;
	uint8_t record[512];
	size_t len = make_record(record, sizeof record);

	fill(&regions[0], SMALL, record, len);
	fill(&regions[1], many, record, len);
	if (idem_memory_usage(regions[1].store, &usage) != IDEM_OK)
		die("usage", idem_strerror(IDEM_E_INVALID));
	printf("bytes for a record of %zu with a body of 200: %.0f in blocks, %.0f with its share of the "
	       "rest\n",
	       len, (double)usage.bytes_used / (double)usage.cells,
	       (double)usage.bytes_used / (double)usage.cells *
	               ((double)regions[1].len / (double)usage.bytes_total));
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 2; i++) {
			int r = (round + i) % 2;

			whole[r][round] = time_claims(&regions[r]);
			cas[r][round] = time_swaps(&regions[r]);
			replay[r][round] = time_replays(&regions[r]);
		}
		ratios[0][round] = whole[1][round] / whole[0][round];
		ratios[1][round] = cas[1][round] / cas[0][round];
		ratios[2][round] = replay[1][round] / replay[0][round];
	}
	printf("a claim:           %5.0f ns with %d records, %5.0f ns with %lu: ratio %.2f (target at most "
	       "1.30)\n",
	       median(whole[0]), SMALL, median(whole[1]), many, median(ratios[0]));
	printf("its swap alone:    %5.0f ns with %d records, %5.0f ns with %lu: ratio %.2f\n", median(cas[0]),
	       SMALL, median(cas[1]), many, median(ratios[1]));
	printf("a replay:          %5.0f ns with %d records, %5.0f ns with %lu: ratio %.2f\n",
	       median(replay[0]), SMALL, median(replay[1]), many, median(ratios[2]));
	return 0;
}
