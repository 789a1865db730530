/*
 * idem/idem.h - everything a program needs to guard requests.
 *
 * Read in this order: types.h (results), guard.h (the life of a request),
 * key.h and fingerprint.h (what goes in), response.h, outcome.h and problem.h
 * (what comes out), then the header of a store: lmdb.h, memory.h, postgres.h or redis.h.  Those who write a
 * store read store.h and step.h; those who bring their own event loop read loop.h.
 */
#ifndef IDEM_IDEM_H
#define IDEM_IDEM_H

#include <idem/fingerprint.h>
#include <idem/guard.h>
#include <idem/key.h>
#include <idem/lmdb.h>
#include <idem/loop.h>
#include <idem/memory.h>
#include <idem/outcome.h>
#include <idem/postgres.h>
#include <idem/problem.h>
#include <idem/redis.h>
#include <idem/response.h>
#include <idem/step.h>
#include <idem/store.h>
#include <idem/types.h>

#endif
