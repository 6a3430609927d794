/*
 * store_file_run.h - a run in a shared directory, as the files of that store share it.
 *
 * Here are its paths, the locks that show who lives, and how it comes out. What the files are is in
 * store_file.c.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_RUN_H
#define DDL_RENDEZVOUS_STORE_FILE_RUN_H

#include "base/bell.h"
#include "io/host.h"
#include "protocol/store_wire.h"
#include "rendezvous/store.h"
#include "rendezvous/store_file_clerk.h"
#include "rendezvous/store_file_hosts.h"
#include "rendezvous/store_meeting_record.h"

enum {
    DDL_FILE_KERNEL_BYTES = DDL_HOST_ID_BYTES + 8,
    DDL_FILE_FIRST_PAUSE_MS = 1,
    /* Of a key's file, at most. */
    DDL_FILE_VALUE_BYTES = DDL_TOKEN_BYTES + DDL_STORE_SEAL_ROOM + DDL_STORE_ROSTER_LIMIT,
    DDL_FILE_PLACE_ROOM = 512 /* leaves room for the longest key within DDL_RECORD_PATH */
};

typedef struct ddl_file_run {
    ddl_store base; /* held[0]: rank0, held[1]: here/TOKEN */
    ddl_desk desk;  /* of whoever uses the store, who may wait for a file server as long as for the store to
                     * be opened, but for the last words; its keeper has another */
    ddl_hello_party self;
    bool is_modest; /* of ddl_store_options */
    char place[DDL_FILE_PLACE_ROOM];
    bool has_place; /* it is there, and ours */
    char run[DDL_FILE_PLACE_ROOM + 40];
    char token[DDL_TOKEN_TEXT];
    uint8_t
        kernel[DDL_FILE_KERNEL_BYTES]; /* whose locks we see: the host's, on this mount of the directory */
    char host_token[DDL_TOKEN_TEXT];   /* rank 0's */
    int64_t written_ns;                /* the record at the place whose run we asked */
    ddl_error odd_meet;                /* why the record at the place was passed over */
    ddl_file_hosts hosts;              /* of whose processes we have asked */
    ddl_deadline next_life_check;
    ddl_deadline answer_limit;               /* rank 0: for answers that could not be written yet */
    bool has_will, has_set, settled, failed; /* has_set: created a key */
    ddl_error will, failure;
    ddl_bell bell; /* rank 0: with the next, how its keeper is told to stop */
    bool is_kept, stops;
    pthread_t keeper; /* while is_kept */
    ddl_desk keepers_desk;
} ddl_file_run;

/* ---- names ---- */

/* Path of an item of the run: ddl_file_run_path(file, path, "echo", token). */
void ddl_file_run_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *folder,
                       const char *item);
void ddl_file_run_key_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *key);

/* The rank below count whose key of this kind is in a file of this name in key/; -1: it is no such file. */
int ddl_file_run_rank_of(const char *name, const char *kind, int count);

void ddl_file_run_place_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *item);

/* The two files of a process in here/: the one that it holds, and the one that says on which host. */
void ddl_file_run_here_paths(const ddl_file_run *file, const char *token, char lock[DDL_RECORD_PATH],
                             char host[DDL_RECORD_PATH]);

void ddl_file_run_name(ddl_file_run *file, const uint8_t *run_id);
ddl_seal ddl_file_run_seal(const ddl_file_run *file);

/* Under which the will of whoever has this token is sealed. */
enum { DDL_FILE_WILL_NAME = DDL_TOKEN_TEXT + 8 };
const char *ddl_file_run_will_name(const char *token, char name[DDL_FILE_WILL_NAME]);

/* ---- who lives ---- */

bool ddl_file_run_has_ended(ddl_file_run *file, const char *token);

/* How long after a look at who lives, which took so long, there is the next one: with a slow file server it
 * is to be no more than a part of what is done. */
int ddl_file_run_life_pause_ms(int64_t took_ns);

/* Whoever parts in peace takes its files along. */
bool ddl_file_run_has_left(const ddl_file_run *file, const char *token);

/* Show that this process takes part, if it has not yet. */
DDL_MUST_USE ddl_status ddl_file_run_be_here(ddl_file_run *file, ddl_error *err);
void ddl_file_run_be_gone(ddl_file_run *file);

/* ---- how the run came out ---- */

/* An error that a rank left at path under this name. */
DDL_MUST_USE ddl_status ddl_file_run_read_error(const ddl_file_run *file, const char *path, const char *name,
                                                bool *found, ddl_error *error, ddl_error *err);
DDL_MUST_USE ddl_status ddl_file_run_create_error(const ddl_file_run *file, const char *path,
                                                  const char *name, const ddl_error *error, bool *created,
                                                  ddl_error *err);

DDL_MUST_USE ddl_status ddl_file_run_failure(ddl_file_run *file, ddl_error *err);

/* Whether a rank of this run has set the key; a forged one is left for those who read its value. */
bool ddl_file_run_is_settled(ddl_file_run *file);

/* *err becomes the error that the run has failed with, now or before. */
DDL_MUST_USE ddl_status ddl_file_run_fail(ddl_file_run *file, const ddl_error *cause, ddl_error *err);

/* ---- waiting ---- */

/* Sleep for *ms, not beyond the deadline; the next time longer. */
void ddl_file_pause(int64_t *ms, ddl_deadline deadline);

#endif
