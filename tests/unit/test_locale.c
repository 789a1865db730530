/* Numbers are read and spelled alike in every locale.  The locales are made here: few machines have any. */
#include <locale.h>
#include <unistd.h>

#include "test.h"

/* What localedef(1) needs to know of the characters: ASCII, and a decimal point of two bytes. */
static const char charmap[] = "<code_set_name> UTF-8\n"
			      "<comment_char> %\n"
			      "<escape_char> /\n"
			      "<mb_cur_min> 1\n"
			      "<mb_cur_max> 2\n"
			      "CHARMAP\n"
			      "<U0000>..<U007F> /x00 ASCII\n"
			      "<U066B> /xd9/xab ARABIC DECIMAL SEPARATOR\n"
			      "END CHARMAP\n";

static void
write_file(const char *name, const char *format, const char *argument)
{
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	assert_true(fprintf(file, format, argument) > 0);
	assert_int_equal(fclose(file), 0);
}

static void
make_locale(const char *name, const char *decimal_point)
{
	char command[200];

	write_file("charmap", "%s", charmap);
	write_file("source",
	           "comment_char %%\nescape_char /\nLC_NUMERIC\ndecimal_point \"%s\"\nthousands_sep \"\"\n"
	           "grouping -1\nEND LC_NUMERIC\n",
	           decimal_point);
	/* It complains of all that this locale lacks, and makes it. */
	(void)snprintf(command, sizeof command, "localedef -c -f ./charmap -i ./source ./%s >log 2>&1", name);
	assert_true(system(command) >= 0);
}

static struct idem_fingerprint
print_of(const char *text)
{
	static const struct idem_body_rules rules = {.mode = IDEM_BODY_JSON, .json_max = 1000};
	struct idem_fingerprint print;
	struct idem_body *body;

	assert_ok(idem_body_new(&rules, &body));
	assert_ok(idem_body_add(body, text, strlen(text)));
	assert_ok(idem_body_finish(body));
	assert_ok(idem_fingerprint_make(bytes_of("POST /"), body, &print));
	idem_body_free(body);
	return print;
}

static void
require_the_same_in(const char *name, const char *decimal_point)
{
	struct idem_fingerprint in_c = print_of("[1.5,0.1,1e-9,123456789.25]"), here;

	assert_non_null(setlocale(LC_NUMERIC, name));
	assert_string_equal(localeconv()->decimal_point, decimal_point);
	here = print_of("[1.50,1e-1,0.000000001,123456789.250]");
	assert_string_equal(localeconv()->decimal_point, decimal_point); /* it is the host's to set */
	assert_non_null(setlocale(LC_NUMERIC, "C"));
	assert_memory_equal(&in_c, &here, sizeof in_c);
}

static void
a_decimal_comma_does_not_count(void **state)
{
	(void)state;
	make_locale("comma", ",");
	require_the_same_in("comma", ",");
}

static void
a_decimal_point_of_two_bytes_does_not_count(void **state)
{
	(void)state;
	make_locale("arabic", "<U066B>");
	require_the_same_in("arabic", "\xd9\xab");
}

static int
enter_directory(void **state)
{
	static char path[] = "/tmp/idem-locale-XXXXXX";

	*state = path;
	return mkdtemp(path) != NULL && chdir(path) == 0 ? setenv("LOCPATH", path, 1) : -1;
}

static int
remove_directory(void **state)
{
	char command[100];

	(void)snprintf(command, sizeof command, "rm -r '%s'", (const char *)*state);
	return system(command);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decimal_comma_does_not_count),
		cmocka_unit_test(a_decimal_point_of_two_bytes_does_not_count),
	};

	return cmocka_run_group_tests(tests, enter_directory, remove_directory);
}
