/* What goes wrong, as sentences, and not too many of them. */
#include <stdarg.h>
#include <stdio.h>

#include "layout.h"

#define REPORT_EVERY_MS 60000

int
idem_redis_say(char *why, size_t cap, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(why, cap, format, arguments);
	va_end(arguments);
	return status;
}

static void
tell(struct hub *hub, const char *format, va_list arguments)
{
	char sentence[WHY_MAX];

	(void)vsnprintf(sentence, sizeof sentence, format, arguments);
	hub->report(hub->report_data, sentence);
}

void
idem_redis_report(struct hub *hub, enum trouble kind, const char *format, ...)
{
	uint64_t now_ms = hub->loop->ops->now_ms(hub->loop);
	va_list arguments;

	if (hub->report == NULL ||
	    (hub->troubles[kind].reported && now_ms - hub->troubles[kind].reported_ms < REPORT_EVERY_MS))
		return;
	hub->troubles[kind].reported = hub->troubles[kind].told = true;
	hub->troubles[kind].reported_ms = now_ms;
	va_start(arguments, format);
	tell(hub, format, arguments);
	va_end(arguments);
}

void
idem_redis_recovered(struct hub *hub, enum trouble kind, const char *format, ...)
{
	bool told = hub->troubles[kind].told;
	va_list arguments;

	hub->troubles[kind].told = false;
	if (hub->report == NULL || !told)
		return;
	va_start(arguments, format);
	tell(hub, format, arguments);
	va_end(arguments);
}
