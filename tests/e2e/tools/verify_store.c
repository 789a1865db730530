/* Checks the invariants of a memory store that is in use: verify_store PATH, where PATH is /proc/PID/fd/N. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <idem/memory.h>

int
main(int argc, char **argv)
{
	struct idem_memory_options options = {0};
	struct idem_memory_usage usage;
	struct idem_store *store;
	struct stat stat;
	char fault[256] = "";
	int fd, rc;

	if (argc != 2 || (fd = open(argv[1], O_RDWR)) < 0 || fstat(fd, &stat) != 0)
		return 2;
	options.len = (size_t)stat.st_size;
	options.region = mmap(NULL, options.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (options.region == MAP_FAILED || idem_memory_open(&options, &store) != IDEM_OK)
		return 2;
	rc = idem_memory_verify(store, fault, sizeof fault);
	if (rc == IDEM_OK)
		rc = idem_memory_usage(store, &usage);
	if (rc == IDEM_OK)
		printf("%llu cells, %llu of %llu bytes\n", (unsigned long long)usage.cells,
		       (unsigned long long)usage.bytes_used, (unsigned long long)usage.bytes_total);
	else
		printf("%s: %s\n", idem_strerror(rc), fault);
	idem_store_close(store);
	return rc == IDEM_OK ? 0 : 1;
}
