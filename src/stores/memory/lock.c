/* A robust lock and the journal by which its next owner repairs what the last one left. */
#include <errno.h>
#include <string.h>

#include "layout.h"

/* A killed process leaves its stores in program order; only the compiler must not reorder them. */
static void
order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

int
idem_memory_lock_init(struct lock *lock)
{
	pthread_mutexattr_t attributes;
	int rc;

	lock->count = 0;
	if (pthread_mutexattr_init(&attributes) != 0)
		return IDEM_E_SYSTEM;
	rc = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (rc == 0)
		rc = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (rc == 0)
		rc = pthread_mutex_init(&lock->mutex, &attributes);
	(void)pthread_mutexattr_destroy(&attributes);
	if (rc == 0)
		return IDEM_OK;
	errno = rc;
	return IDEM_E_SYSTEM;
}

/* The last change first: the same bytes may have been saved twice. */
static void
put_back(struct memory_store *store, struct lock *lock)
{
	while (lock->count > 0) {
		const struct saved *saved = &lock->saved[lock->count - 1];

		memcpy((char *)store->region + saved->offset, saved->old, saved->len);
		order();
		lock->count--;
		order();
		POINT();
	}
}

int
idem_memory_lock(struct memory_store *store, struct lock *lock, bool *ret_died)
{
	int rc = pthread_mutex_lock(&lock->mutex);

	*ret_died = rc == EOWNERDEAD;
	if (rc == 0)
		return IDEM_OK;
	if (rc != EOWNERDEAD)
		return IDEM_E_CORRUPT;
	put_back(store, lock);
	return pthread_mutex_consistent(&lock->mutex) == 0 ? IDEM_OK : IDEM_E_CORRUPT;
}

void
idem_memory_unlock(struct lock *lock)
{
	(void)pthread_mutex_unlock(&lock->mutex); /* fails only for one that is not locked */
}

void
idem_memory_save(struct memory_store *store, struct lock *lock, const void *bytes, size_t len)
{
	struct saved *saved = &lock->saved[lock->count];

	saved->offset = (uint64_t)((const char *)bytes - (const char *)store->region);
	saved->len = (uint32_t)len;
	memcpy(saved->old, bytes, len);
	order();
	lock->count++;
	order();
	POINT();
}

void
idem_memory_commit(struct lock *lock)
{
	POINT();
	order();
	lock->count = 0;
	order();
	POINT();
}
