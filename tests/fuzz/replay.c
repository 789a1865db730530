/* Feeds every file of the directories it is given to a fuzzer: its corpus as a test, without libFuzzer. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

static void
replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat info;
	uint8_t *data;
	size_t size;

	require(file != NULL && fstat(fileno(file), &info) == 0);
	size = (size_t)info.st_size;
	data = malloc(size > 0 ? size : 1);
	require(data != NULL && fread(data, 1, size, file) == size);
	(void)fclose(file);
	/* The last words of a run that ends here. */
	(void)fprintf(stderr, "%s\n", path);
	(void)LLVMFuzzerTestOneInput(data, size);
	free(data);
}

static unsigned
replay_directory(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	unsigned count = 0;

	require(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		char name[4096];
		int n = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);

		require(n > 0 && (size_t)n < sizeof name);
		if (entry->d_name[0] == '.')
			continue;
		replay_file(name);
		count++;
	}
	(void)closedir(directory);
	return count;
}

int
main(int argc, char **argv)
{
	unsigned count = 0;

	for (int i = 1; i < argc; i++)
		count += replay_directory(argv[i]);
	(void)printf("%u inputs\n", count);
	return count > 0 ? 0 : 1;
}
