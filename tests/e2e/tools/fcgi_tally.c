/* A real FastCGI program: counts what it executes, and answers with the number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcgiapp.h>

int
main(int argc, char **argv)
{
	FCGX_Request request;
	int listener, executions = 0;

	if (argc != 2 || FCGX_Init() != 0)
		return 2;
	listener = FCGX_OpenSocket(argv[1], 64); /* ":PORT" */
	if (listener < 0 || FCGX_InitRequest(&request, listener, 0) != 0)
		return 1;
	while (FCGX_Accept_r(&request) == 0) {
		const char *query = FCGX_GetParam("QUERY_STRING", request.envp);
		const char *attempt = FCGX_GetParam("HTTP_IDEMPOTENCY_ATTEMPT", request.envp);

		executions++;
		if (query != NULL && strcmp(query, "die") == 0)
			_Exit(1);
		if (query != NULL && strcmp(query, "slow") == 0)
			(void)usleep(500000);
		FCGX_FPrintF(request.out,
		             "Status: 201 Created\r\nContent-Type: text/plain\r\nSet-Cookie: a=1\r\n"
		             "Set-Cookie: b=2\r\n\r\nexecution %d attempt %s\n",
		             executions, attempt != NULL ? attempt : "none");
		FCGX_Finish_r(&request);
	}
	return 0;
}
