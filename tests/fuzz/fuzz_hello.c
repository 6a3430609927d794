/*
 * fuzz_hello.c - a hello machine against hostile bytes. Input: 0 bits: 1 client, 2 store, 4 welcome, 8 level
 * off, 16 proofs hold | 1 piece size | 2 what the other end sends.
 */
#include "protocol/hello.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Where the input says so every proof holds, so that what lies behind it is reached. */
struct pretender {
    ddl_prover prover;
    bool holds;
};

static void prove(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, uint8_t mac[DDL_MAC_BYTES])
{
    (void)prover;
    memset(mac, run_id[0], DDL_MAC_BYTES);
    for (int part = 0; part < nparts; part++) /* reads all of them */
        for (size_t i = 0; i < parts[part].bytes; i++)
            mac[i % DDL_MAC_BYTES] ^= ((const uint8_t *)parts[part].data)[i];
}

static bool check(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, const uint8_t mac[DDL_MAC_BYTES])
{
    uint8_t expected[DDL_MAC_BYTES];
    prove(prover, run_id, parts, nparts, expected);
    return ((const struct pretender *)(const void *)prover)->holds ||
           memcmp(mac, expected, sizeof expected) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddl_hello hello;
    ddl_error error;
    size_t taken = 0;
    if (bytes < 2)
        return 0;
    const struct pretender pretender = { { "a fuzzer", DDL_SECURITY_AUTH, prove, check, NULL },
                                         data[0] & 16 };
    ddl_hello_party self = { .channel = data[0] & 2 ? DDL_HELLO_FOR_STORE : DDL_HELLO_FOR_MESH,
                             .generator = 7,
                             .run_id = { 1, 2, 3 },
                             .nonce = { 9 },
                             .rank = 1,
                             .peer = 0,
                             .nranks = 4,
                             .prover = data[0] & 8 ? NULL : &pretender.prover,
                             .host = "host" };
    if (data[0] & 1)
        ddl_hello_start_client(&hello, &self);
    else
        ddl_hello_start_server(&hello, &self);
    const size_t piece = 1 + data[1];
    const bool welcome = data[0] & 4;
    data += 2;
    bytes -= 2;
    while (ddl_hello_wants(&hello) > 0 && bytes > 0) {
        size_t count = ddl_hello_wants(&hello);
        count = count < piece ? count : piece;
        count = count < bytes ? count : bytes;
        ddl_hello_feed(&hello, data, count);
        data += count;
        bytes -= count;
        taken += count;
        if (hello.state == DDL_HELLO_JUDGING)
            ddl_hello_judge(&hello, welcome ? DDL_HELLO_WELCOME : DDL_HELLO_TAKEN);
        ddl_hello_sent(&hello, ddl_hello_output(&hello).bytes / 2);
    }
    DDL_ASSERT(taken <= 512);
    DDL_ASSERT(ddl_hello_output(&hello).bytes <= sizeof hello.out);
    DDL_ASSERT(strlen(hello.reason) < sizeof hello.reason);
    /* Nobody gets in without a proof. */
    DDL_ASSERT(hello.state != DDL_HELLO_ACCEPTED || hello.peer.level == hello.self.level);
    if (hello.state == DDL_HELLO_REFUSED)
        DDL_ASSERT(ddl_hello_fail(&hello, "x", &error) != DDL_OK);
    return 0;
}
