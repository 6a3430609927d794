/*
 * fuzz_record.c - what others may have left in a shared directory, or under the key of a meeting place.
 * Input: 0 bits: 1 as a file, 2 with a secret, 4 seals hold | 1 the bytes.
 */
#include "rendezvous/store_file_record.h"
#include "rendezvous/store_meeting_record.h"

#include "base/assert.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[] = "/tmp/ddl-fuzz-XXXXXX", path[sizeof folder + 8];

static void remove_folder(void)
{
    (void)unlink(path);
    (void)rmdir(folder);
}

static void prove(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, uint8_t mac[DDL_MAC_BYTES])
{
    (void)prover, (void)parts, (void)nparts;
    memset(mac, run_id[0], DDL_MAC_BYTES);
}

static bool check_yes(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES],
                      const ddl_view parts[], int nparts, const uint8_t mac[DDL_MAC_BYTES])
{
    (void)prover, (void)run_id, (void)parts, (void)nparts, (void)mac;
    return true;
}

static bool check_no(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                     int nparts, const uint8_t mac[DDL_MAC_BYTES])
{
    (void)prover, (void)run_id, (void)parts, (void)nparts, (void)mac;
    return false;
}

/* The content of the record that a file with these bytes is, if it is one. */
static void read_file(ddl_view view, ddl_bytes *content)
{
    bool found = false;
    if (path[0] == '\0') {
        DDL_ASSERT(mkdtemp(folder) != NULL);
        snprintf(path, sizeof path, "%s/record", folder);
        DDL_ASSERT(atexit(remove_folder) == 0);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    DDL_ASSERT(fd >= 0);
    DDL_ASSERT(write(fd, view.data, view.bytes) == (ssize_t)view.bytes);
    close(fd);
    ddl_status status = ddl_record_read(path, DDL_MEET_BYTES, content, &found, NULL);
    DDL_ASSERT(status == DDL_OK || status == DDL_ESTORE);
    DDL_ASSERT(found || content->bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 1)
        return 0;
    const bool holds = data[0] & 4;
    const ddl_prover prover = { .source = "a fuzzer",
                                .level = DDL_SECURITY_AUTH,
                                .prove = prove,
                                .check = holds ? check_yes : check_no };
    const ddl_prover *used = data[0] & 2 ? &prover : NULL;
    const uint8_t run_id[DDL_RUN_ID_BYTES] = { 1 };
    const ddl_seal seal = { used, run_id };
    ddl_view view = { data + 1, bytes - 1 }, value;
    ddl_bytes content = { 0 };
    ddl_meet meet;
    ddl_error error;
    if (data[0] & 1) {
        read_file(view, &content);
        view = ddl_bytes_view(&content);
    }
    const ddl_hello_party self = { .rank = 1, .host = "self", .prover = used };
    if (ddl_meet_decode(&self, view, "a fuzzer", &meet, &error) == DDL_OK) {
        DDL_ASSERT(meet.host.rank == 0);
        DDL_ASSERT(meet.host.nranks > 0);
        DDL_ASSERT(!meet.is_proved || used == NULL || holds);
    }
    DDL_ASSERT(memchr(meet.host.host, '\0', sizeof meet.host.host) != NULL);
    if (ddl_seal_get(&seal, "name", view, &value)) {
        DDL_ASSERT(used == NULL || holds);
        DDL_ASSERT(value.bytes <= view.bytes);
    }
    ddl_bytes_fini(&content);
    return 0;
}
