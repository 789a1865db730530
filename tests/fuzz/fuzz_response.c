/*
 * Records.  Any bytes are a record or are refused; what is accepted lies within them, and encoded again it is
 * the same record byte for byte.
 */
#include "fuzz.h"

static struct idem_field *
collect(struct idem_bytes run, size_t count, struct idem_bytes whole)
{
	struct idem_field *fields = calloc(count + 1, sizeof *fields);
	const char *begin = whole.data, *end = begin + whole.len;

	require(fields != NULL);
	for (size_t i = 0; i < count; i++) {
		const char *name, *value;

		require(idem_response_next(&run, &fields[i]));
		name = fields[i].name.data;
		value = fields[i].value.data;
		require(name >= begin && name + fields[i].name.len <= value);
		require(value + fields[i].value.len <= end);
		(void)idem_response_field_left_out(fields[i].name);
	}
	require(!idem_response_next(&run, &fields[count]) && run.len == 0);
	return fields;
}

static void
require_same_record_again(struct idem_response *response, struct idem_bytes record)
{
	struct idem_field *fields = collect(response->field_run, response->field_count, record);
	struct idem_field *trailers = collect(response->trailer_run, response->trailer_count, record);
	size_t head_len;
	char *head;

	response->fields = fields;
	response->trailers = trailers;
	head_len = idem_response_head_len(response);
	require(head_len > 0 && head_len + response->body.len == record.len);
	head = exact_copy(record.data, head_len);
	memset(head, 0xee, head_len);
	idem_response_encode_head(response, head);
	require(memcmp(head, record.data, head_len) == 0);
	require(memcmp((const char *)record.data + head_len, response->body.data, response->body.len) == 0);
	free(head);
	free(trailers);
	free(fields);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = exact_copy(data, size);
	struct idem_bytes record = {copy, size};
	struct idem_response response, untouched;

	memset(&response, 0x55, sizeof response);
	untouched = response;
	if (idem_response_decode(record, &response) == IDEM_OK)
		require_same_record_again(&response, record);
	else
		require(memcmp(&response, &untouched, sizeof response) == 0);
	free(copy);
	return 0;
}
