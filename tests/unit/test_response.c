/* The record: what goes in comes out, and nothing else is ever taken for one. */
#include "test.h"

static uint8_t *
encode(struct idem_response *response, size_t *len)
{
	size_t head = idem_response_head_len(response);
	uint8_t *record = malloc(head + response->body.len + 1);

	assert_true(head > 0);
	assert_non_null(record);
	idem_response_encode_head(response, record);
	if (response->body.len > 0)
		memcpy(record + head, response->body.data, response->body.len);
	*len = head + response->body.len;
	return record;
}

static struct idem_response
sample(void)
{
	static const struct idem_field fields[] = {
		{{"Content-Type", 12}, {"text/plain", 10}},
		{{"Set-Cookie", 10}, {"a=1", 3}},
		{{"X-Empty", 7}, {"", 0}},
		{{"Set-Cookie", 10}, {"b=\0\xff", 4}},
	};
	static const struct idem_field trailers[] = {{{"grpc-status", 11}, {"0", 1}}};
	struct idem_response response = {
		.status = 201,
		.reason = {"201 Created", 11},
		.host_flags = 5,
		.body_kept = true,
		.fields = fields,
		.field_count = 4,
		.trailers = trailers,
		.trailer_count = 1,
		.body = {"a\0b", 3},
	};

	return response;
}

static void
assert_bytes(struct idem_bytes a, struct idem_bytes b)
{
	assert_int_equal(a.len, b.len);
	if (a.len > 0)
		assert_memory_equal(a.data, b.data, a.len);
}

static void
what_goes_in_comes_out_in_order(void **state)
{
	struct idem_response in = sample(), out;
	struct idem_bytes run;
	struct idem_field field;
	size_t len;
	uint8_t *record = encode(&in, &len);

	(void)state;
	assert_ok(idem_response_decode((struct idem_bytes){record, len}, &out));
	assert_int_equal(out.status, 201);
	assert_int_equal(out.host_flags, 5);
	assert_true(out.body_kept);
	assert_bytes(out.reason, in.reason);
	assert_bytes(out.body, in.body);
	assert_int_equal(out.field_count, 4);
	run = out.field_run;
	for (size_t i = 0; i < 4; i++) {
		assert_true(idem_response_next(&run, &field));
		assert_bytes(field.name, in.fields[i].name);
		assert_bytes(field.value, in.fields[i].value);
	}
	assert_false(idem_response_next(&run, &field));
	run = out.trailer_run;
	assert_true(idem_response_next(&run, &field));
	assert_bytes(field.value, in.trailers[0].value);
	assert_false(idem_response_next(&run, &field));
	free(record);
}

static void
the_format_is_the_same_in_every_version(void **state)
{
	static const uint8_t expected[] = {1, 1,   0,   2, 200, 0, 1, 0,   0,   0,   3,   0,  0,
	                                   0, 'O', 'K', 1, 1,   0, 0, 'A', 'b', 'x', 'y', 'z'};
	struct idem_field field = {{"A", 1}, {"b", 1}};
	struct idem_response response = {.status = 200,
	                                 .reason = {"OK", 2},
	                                 .body_kept = true,
	                                 .fields = &field,
	                                 .field_count = 1,
	                                 .body = {"xyz", 3}};
	size_t len;
	uint8_t *record = encode(&response, &len);

	(void)state;
	assert_int_equal(len, sizeof expected);
	assert_memory_equal(record, expected, len);
	free(record);
}

static void
a_response_that_breaks_a_limit_has_no_record(void **state)
{
	struct idem_field field = {{"a", 1}, {"b", 1}};
	struct idem_response response = {.status = 200, .fields = &field, .field_count = 1};

	(void)state;
	assert_true(idem_response_head_len(&response) > 0);
	response.status = 99;
	assert_int_equal(idem_response_head_len(&response), 0);
	response.status = 1000;
	assert_int_equal(idem_response_head_len(&response), 0);
	response.status = 200;
	field.name.len = 256;
	assert_int_equal(idem_response_head_len(&response), 0);
	field.name.len = 1;
	field.value.len = (size_t)-1;
	assert_int_equal(idem_response_head_len(&response), 0);
	field.value.len = 1;
	response.field_count = 65536;
	assert_int_equal(idem_response_head_len(&response), 0);
	response.field_count = 1;
	response.body.len = IDEM_PAYLOAD_MAX;
	assert_int_equal(idem_response_head_len(&response), 0);
}

static void
read_everything(const struct idem_response *response)
{
	struct idem_bytes run = response->field_run;
	struct idem_field field;
	volatile unsigned sum = 0;
	size_t count = 0;

	while (idem_response_next(&run, &field)) {
		for (size_t i = 0; i < field.value.len; i++)
			sum += ((const uint8_t *)field.value.data)[i];
		count++;
	}
	assert_int_equal(count, response->field_count);
	for (size_t i = 0; i < response->body.len; i++)
		sum += ((const uint8_t *)response->body.data)[i];
	(void)sum;
}

static void
a_record_cut_anywhere_is_refused(void **state)
{
	struct idem_response in = sample(), out;
	size_t len;
	uint8_t *record = encode(&in, &len);

	(void)state;
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut + 1); /* so that a read beyond is seen */

		assert_non_null(copy);
		memcpy(copy, record, cut);
		assert_int_equal(idem_response_decode((struct idem_bytes){copy, cut}, &out), IDEM_E_CORRUPT);
		free(copy);
	}
	free(record);
}

static void
a_record_with_a_flipped_byte_is_refused_or_stays_within_its_bounds(void **state)
{
	struct idem_response in = sample(), out;
	size_t len, refused = 0;
	uint8_t *record = encode(&in, &len);

	(void)state;
	for (size_t i = 0; i < len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			record[i] ^= (uint8_t)(1 << bit);
			if (idem_response_decode((struct idem_bytes){record, len}, &out) == IDEM_OK)
				read_everything(&out);
			else
				refused++;
			record[i] ^= (uint8_t)(1 << bit);
		}
	}
	assert_true(refused > 100);
	record[0] = 2;
	assert_int_equal(idem_response_decode((struct idem_bytes){record, len}, &out), IDEM_E_VERSION);
	free(record);
}

static void
fields_of_one_connection_are_left_out(void **state)
{
	static const char *const out[] = {"connection",
	                                  "Keep-Alive",
	                                  "TRANSFER-ENCODING",
	                                  "Upgrade",
	                                  "TE",
	                                  "Trailer",
	                                  "Date",
	                                  "server",
	                                  "Content-Length",
	                                  "Idempotent-Replayed",
	                                  "Proxy-Connection"};
	static const char *const in[] = {"Set-Cookie", "Location",     "ETag", "X-Date",
	                                 "Dat",        "Content-Type", ""};

	(void)state;
	for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
		assert_true(idem_response_field_left_out(bytes_of(out[i])));
	for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
		assert_false(idem_response_field_left_out(bytes_of(in[i])));
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_goes_in_comes_out_in_order),
		cmocka_unit_test(the_format_is_the_same_in_every_version),
		cmocka_unit_test(a_response_that_breaks_a_limit_has_no_record),
		cmocka_unit_test(a_record_cut_anywhere_is_refused),
		cmocka_unit_test(a_record_with_a_flipped_byte_is_refused_or_stays_within_its_bounds),
		cmocka_unit_test(fields_of_one_connection_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
