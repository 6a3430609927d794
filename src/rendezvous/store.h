/*
 * store.h - a meeting place: a small dictionary that the ranks of one run share until they are connected.
 *
 * Bootstrap trades addresses here; collective traffic never does. A place is named by an address; rank 0
 * opens a new run in it, with a fresh run id, and the others find that run, never one left by the dead.
 * Keys are short text and are set once. Calls block, each with a deadline. A run either fails: then every
 * call of everyone in it, waiting or later, returns the same first error; or it is settled, by setting the
 * key DDL_STORE_SETTLED: then it cannot fail any more. Whichever comes first stands. With a prover values are
 * sealed: what was not written by a rank of the run is never read, and DDL_EAUTH says so.
 * Thread: one at a time per store.
 */
#ifndef DDL_RENDEZVOUS_STORE_H
#define DDL_RENDEZVOUS_STORE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "io/service.h"
#include "protocol/hello.h"
#include "rendezvous/encryption.h"
#include "rendezvous/network.h"
#include "rendezvous/progress.h"
#include "rendezvous/seal.h"

#define DDL_STORE_SETTLED "settled"
#define DDL_STORE_ROSTER  "roster" /* the one key with DDL_STORE_ROSTER_LIMIT */

typedef struct ddl_store ddl_store;

typedef struct ddl_store_options {
    const char *url;             /* "tcp://host:port", "file:///dir", "redis://host:port", "mem://name" */
    const char *place;           /* names the meeting place inside other stores than tcp: "10.0.0.1:29500" */
    const ddl_hello_party *self; /* rank, nranks, generator, nonce, pid, host, prover; no run id yet */
    const ddl_encryption *encryption; /* of connections between ranks; NULL below level tls */
    ddl_service *service;
    const ddl_network *network; /* where rank 0 serves a tcp store, and is called; NULL: nothing is said */
    ddl_progress *progress;     /* told while waiting for rank 0; may be NULL */
    bool is_modest; /* rank 0, which cannot take part: it takes no place from a run that is silent */
} ddl_store_options;

/*
 * Rank 0: open a new run. The others: wait for rank 0's run and enter it.
 * DDL_ECONFIG: bad URL, another world size (the whole run fails with it), or rank 0 is there already.
 * DDL_EPROTO: another version of ddl; of its algorithms alone the whole run fails with it.
 * DDL_ENETWORK: no such host, address not ours, port in use. DDL_ETIMEDOUT: rank 0 did not come.
 */
DDL_MUST_USE ddl_status ddl_store_open(const ddl_store_options *options, ddl_deadline deadline,
                                       ddl_store **store, ddl_error *err);

/* What set_new came to. */
typedef enum ddl_store_outcome {
    DDL_STORE_CREATED,
    DDL_STORE_TAKEN,    /* the key is there, and whoever set it still is too */
    DDL_STORE_ABANDONED /* the key is there, whoever set it has left: this run is over */
} ddl_store_outcome;

/*
 * Create key. Unless it was created, *existing (release with ddl_bytes_fini) is the value that is there.
 * DDL_EINVAL: the value is above DDL_STORE_VALUE_LIMIT.
 */
DDL_MUST_USE ddl_status ddl_store_set_new(ddl_store *store, const char *key, ddl_view value,
                                          ddl_deadline deadline, ddl_store_outcome *outcome,
                                          ddl_bytes *existing, ddl_error *err);

/*
 * Wait until key exists, then copy its value into *value (release with ddl_bytes_fini). A deadline that
 * has passed asks once. DDL_ETIMEDOUT: key was not set before the deadline.
 */
DDL_MUST_USE ddl_status ddl_store_get(ddl_store *store, const char *key, ddl_deadline deadline,
                                      ddl_bytes *value, ddl_error *err);

enum { DDL_STORE_NAME_BYTES = 32 };

/* The name of the key of this kind that is rank's: "KIND.RANK". */
void ddl_store_name(const char *kind, int rank, char key[DDL_STORE_NAME_BYTES]);

/* The keys of one kind, one for each of count ranks: "KIND.0", "KIND.1" and so on. */
typedef struct ddl_store_many {
    const char *kind;
    int count;
    bool *present;     /* by rank: its key was found; it is not looked for again */
    ddl_bytes *values; /* by rank: what that holds, empty before; the caller's to release. NULL: not wanted */
    bool names_suffice; /* without values: a key may count as there by its name, whoever made that. Only for
                           what is told: nothing may rest on it */
} ddl_store_many;

/*
 * Wait until all of these keys exist, with as few requests as the store can do with. A deadline that has
 * passed looks once.
 * DDL_ETIMEDOUT: some were not set before the deadline; present says which were.
 */
DDL_MUST_USE ddl_status ddl_store_get_many(ddl_store *store, const ddl_store_many *many,
                                           ddl_deadline deadline, ddl_error *err);

/*
 * The last will of this rank: fail the run with it, should the process end or the store be destroyed before
 * the run is settled. It counts only once this rank has created a key: whoever is refused harms nobody. How
 * far the death of a process is noticed depends on the store.
 */
DDL_MUST_USE ddl_status ddl_store_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline,
                                       ddl_error *err);

/*
 * Fail the run. *first is the error that it failed with: cause, or what somebody else said before. Once the
 * run is settled nobody else is told. False: the store does not work, so that nobody could be.
 */
bool ddl_store_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first);

/* Whether the run has failed, as far as is known here; does not block. */
DDL_MUST_USE ddl_status ddl_store_check(ddl_store *store, ddl_error *err);

/*
 * Rank 0 waits, up to the deadline, until the others have heard all that was said, then closes the place;
 * the others leave. A will is executed if the run has neither failed nor settled. NULL is fine.
 */
void ddl_store_destroy(ddl_store *store, ddl_deadline deadline);

/* In a forked child: close descriptors without a word. Async-signal-safe. */
void ddl_store_close_in_child(ddl_store *store);

/*
 * Whether a call has failed because rank 0 closed the place, and not because the run has failed. For who has
 * not joined the run yet, it is simply over.
 */
bool ddl_store_is_lost(const ddl_store *store);

const uint8_t *ddl_store_run_id(const ddl_store *store);

/* This machine's numeric address that reaches the meeting place, or "" if the place has no network address.
 */
const char *ddl_store_address(const ddl_store *store);

/* Whether what is stored is there when all processes have ended, unless the store is destroyed. */
bool ddl_store_outlives(const ddl_store *store);

/* ---- for implementations ---- */

/*
 * All may block until the deadline, except check. Arguments have been checked; values come sealed and are
 * handed out so. What an implementation writes for itself it seals itself.
 */
struct ddl_store_ops {
    const char *scheme; /* in URLs and messages: "tcp" */
    const char *form;   /* how the rest of a URL is written, for messages: "host:port" */
    bool outlives;      /* what is stored is kept elsewhere than in the ranks' processes */
    ddl_status (*open)(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                       ddl_store **store, ddl_error *err); /* rest: of the URL, behind "scheme://" */
    ddl_status (*set_new)(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                          ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err);
    ddl_status (*get)(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                      ddl_error *err);
    ddl_status (*get_many)(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                           ddl_error *err); /* tells what it finds by ddl_store_found */
    ddl_status (*will)(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err);
    ddl_status (*fail)(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first);
    ddl_status (*check)(ddl_store *store, ddl_error *err);
    void (*destroy)(ddl_store *store, ddl_deadline deadline);
};

/* First member of each implementation's struct. */
struct ddl_store {
    const struct ddl_store_ops *ops;
    uint8_t run_id[DDL_RUN_ID_BYTES];
    char address[DDL_ADDRESS_TEXT];
    bool is_lost;
    ddl_seal seal; /* set once the store is open */
    int rank;
    int held[2]; /* descriptors that a forked child has to close, or -1 */
};

/* Rank's key of many is there, with this value, sealed. DDL_EAUTH: it is not from a rank of this run. */
DDL_MUST_USE ddl_status ddl_store_found(const ddl_store *store, const ddl_store_many *many, int rank,
                                        ddl_view sealed, ddl_error *err);

/* A get_many for stores in which keys are best got one after the other. */
DDL_MUST_USE ddl_status ddl_store_get_each(ddl_store *store, const ddl_store_many *many,
                                           ddl_deadline deadline, ddl_error *err);

extern const struct ddl_store_ops ddl_store_tcp, ddl_store_file, ddl_store_redis, ddl_store_rediss,
    ddl_store_mem;

#endif
