/*
 * The LMDB store alone, with 256 requests under way: bytes for each record, resident memory, and what a claim
 * costs among few records and among many.  Claims are made with sync=full; the records before them are filled
 * in without waiting for the disk.
 *
 *   bench_lmdb DIRECTORY [RECORDS]     default: 10000000
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <idem/idem.h>

#include "bench.h"

#define SMALL 100000
#define UNDER_WAY 256
#define ROUNDS 9
#define BATCH 20000
#define DAY_MS 86400000
#define RECORD_LEN 300 /* an encoded response: two header fields, a body of 200 bytes */

struct visitor {
	struct idem_io io;
	struct load *load;
};

struct load {
	struct idem_store *store;
	struct idem_loop *loop;
	unsigned long next, stop_at; /* keys */
	bool complete;               /* each claim, or leave it running */
	unsigned busy;
	bool finished;
	struct visitor visitors[UNDER_WAY];
};

static uint8_t record[RECORD_LEN];

/* Ids are digests: strangers to their neighbours. */
static struct idem_id
id_of(unsigned long key)
{
	struct idem_id id;
	uint64_t x = key;

	for (size_t i = 0; i < sizeof id.b; i += sizeof x) {
		x += 0x9e3779b97f4a7c15;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
		x = (x ^ x >> 27) * 0x94d049bb133111eb;
		x ^= x >> 31;
		memcpy(id.b + i, &x, sizeof x);
	}
	return id;
}

static void next_step(struct visitor *visitor);

static void
done(struct idem_io *io)
{
	next_step((struct visitor *)(void *)io);
}

static bool
swap(struct visitor *visitor, enum idem_state state, struct idem_bytes payload)
{
	static const struct idem_tag nothing;
	struct idem_store *store = visitor->load->store;
	struct idem_io *io = &visitor->io;

	io->expect = state == IDEM_LOCKED ? nothing : io->write.tag;
	if (idem_random(NULL, io->write.tag.b, sizeof io->write.tag.b) != IDEM_OK)
		die("random", "no bytes");
	io->write.state = state;
	io->write.payload = payload;
	io->done = done;
	return store->ops->cas(store, io) == IDEM_OK;
}

static bool
claim_next(struct visitor *visitor)
{
	struct load *load = visitor->load;

	if (load->next == load->stop_at) {
		load->finished = --load->busy == 0;
		return false;
	}
	visitor->io = (struct idem_io){.id = id_of(load->next++)};
	visitor->io.write.attempt = 1;
	visitor->io.write.lease_ms = 60000;
	visitor->io.write.retain_ms = DAY_MS;
	return swap(visitor, IDEM_LOCKED, (struct idem_bytes){NULL, 0});
}

static void
next_step(struct visitor *visitor)
{
	struct load *load = visitor->load;
	bool answered;

	do {
		bool claimed = visitor->io.write.state == IDEM_LOCKED;

		if (!visitor->io.applied)
			die("a write", idem_strerror(visitor->io.status));
		load->store->ops->release(load->store, &visitor->io);
		if (claimed && load->complete)
			answered = swap(visitor, IDEM_STORED, (struct idem_bytes){record, sizeof record});
		else
			answered = claim_next(visitor);
	} while (answered);
}

/* Seconds for count keys. */
static double
run(struct load *load, unsigned long count)
{
	double begin = now();

	load->stop_at = load->next + count;
	load->busy = UNDER_WAY;
	load->finished = false;
	for (int i = 0; i < UNDER_WAY; i++) {
		load->visitors[i].load = load;
		if (claim_next(&load->visitors[i]))
			next_step(&load->visitors[i]);
	}
	if (!load->finished && idem_poll_loop_run(load->loop, &load->finished, -1) != IDEM_OK)
		die("loop", "no answer");
	return now() - begin;
}

static void
open_store(struct load *load, const char *path, enum idem_lmdb_sync sync)
{
	struct idem_lmdb_options options = {
		.path = path, .size = (size_t)64 << 30, .sync = sync, .loop = load->loop};
	char why[512];

	if (idem_lmdb_open(&options, &load->store, why, sizeof why) != IDEM_OK)
		die("open", why);
}

static void
fill(struct load *load, const char *path, unsigned long records)
{
	open_store(load, path, IDEM_LMDB_SYNC_PROCESS);
	load->complete = true;
	if (records > load->next)
		(void)run(load, records - load->next);
	idem_store_close(load->store);
}

/* Microseconds for a claim, the median of the rounds. */
static double
measure_claims(struct load *load, const char *path)
{
	double rounds[ROUNDS];

	open_store(load, path, IDEM_LMDB_SYNC_FULL);
	load->complete = false;
	(void)run(load, BATCH);
	for (int i = 0; i < ROUNDS; i++)
		rounds[i] = run(load, BATCH) / BATCH * 1e6;
	qsort(rounds, ROUNDS, sizeof *rounds, compare_doubles);
	return rounds[ROUNDS / 2];
}

/* Of the process alone: pages of the file are the system's to keep or drop. */
static unsigned long
anonymous_kb(void)
{
	char line[256];
	unsigned long kb = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");

	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (strncmp(line, "Anonymous:", 10) == 0)
			kb = strtoul(line + 10, NULL, 10);
	if (file != NULL)
		(void)fclose(file);
	return kb;
}

int
main(int argc, char **argv)
{
	static struct load load;
	unsigned long records = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000000;
	struct idem_lmdb_usage usage;
	double small, large;

	if (argc < 2 || records <= SMALL)
		die("usage", "bench_lmdb DIRECTORY [RECORDS], with more than 100000 records");
	if (idem_poll_loop_new(&load.loop) != IDEM_OK)
		die("loop", "no memory");
	fill(&load, argv[1], SMALL);
	small = measure_claims(&load, argv[1]);
	idem_store_close(load.store);
	fill(&load, argv[1], records);
	large = measure_claims(&load, argv[1]);
	if (idem_lmdb_usage(load.store, &usage) != IDEM_OK)
		die("usage", "the store cannot be read");
	(void)printf("bytes of the file for a record    %.0f (a response of %d bytes encoded)\n",
	             (double)usage.bytes_used / (double)usage.cells, RECORD_LEN);
	(void)printf("memory of the process itself      %lu kB\n", anonymous_kb());
	(void)printf("a claim among %9d records   %.1f us, 256 under way\n", SMALL, small);
	(void)printf("a claim among %9lu records   %.1f us\n", records, large);
	(void)printf("ratio                             %.2f  (target 1.30)\n", large / small);
	idem_store_close(load.store);
	idem_poll_loop_free(load.loop);
	return 0;
}
