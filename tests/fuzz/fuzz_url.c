/* fuzz_url.c - addresses and URLs of stores, as people write them. Input: 0 bit 0: with TLS | 1 the text. */
#include "io/address.h"
#include "rendezvous/store.h"
#include "rendezvous/store_redis_url.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_text(const char *text, size_t room)
{
    DDL_ASSERT(memchr(text, '\0', room) != NULL);
}

static void check_redis(const char *text, bool is_tls)
{
    ddl_redis_url url;
    ddl_error error;
    ddl_status status = ddl_redis_url_parse(text, is_tls, &url, &error);
    DDL_ASSERT(status == DDL_OK || status == DDL_ECONFIG);
    if (status != DDL_OK)
        return;
    DDL_ASSERT(url.port > 0);
    DDL_ASSERT(url.db >= 0);
    DDL_ASSERT(url.host[0] != '\0');
    DDL_ASSERT(url.prefix[0] != '\0');
    check_text(url.host, sizeof url.host);
    check_text(url.user, sizeof url.user);
    check_text(url.password_file, sizeof url.password_file);
    check_text(url.prefix, sizeof url.prefix);
    check_text(url.ca_file, sizeof url.ca_file);
    check_text(url.cert_file, sizeof url.cert_file);
    check_text(url.key_file, sizeof url.key_file);
}

/* Nothing that is said here leads to a store that could be opened, and so to a network or a file. */
static void check_store(const char *text)
{
    static const char *const reachable[] = { "tcp://", "redis://", "rediss://", "mem://", "file:///" };
    char url[1100];
    ddl_hello_party self = { .rank = 1, .nranks = 2 };
    ddl_store_options options = { .url = text, .place = "127.0.0.1:29500", .self = &self };
    ddl_store *store = NULL;
    ddl_error error;
    bool is_reachable = false;
    for (size_t i = 0; i < sizeof reachable / sizeof *reachable; i++)
        is_reachable = is_reachable || strncmp(text, reachable[i], strlen(reachable[i])) == 0;
    if (!is_reachable)
        DDL_ASSERT(ddl_store_open(&options, 0, &store, &error) == DDL_ECONFIG);
    snprintf(url, sizeof url, "file:///dev/null/%s", text);
    options.url = url;
    ddl_status status = ddl_store_open(&options, 0, &store, &error);
    DDL_ASSERT(status == DDL_ECONFIG || status == DDL_ESTORE);
    DDL_ASSERT(store == NULL);
}

/* What is written for an address is read as the same address again. */
static void check_address(const char *text)
{
    ddl_address address, again;
    char host[DDL_ADDRESS_HOST_TEXT], full[DDL_ADDRESS_FULL_TEXT], host_part[DDL_ADDRESS_HOST_TEXT];
    uint16_t port;
    if (!ddl_address_parse(text, 4711, &address))
        return;
    ddl_address_host(&address, host);
    DDL_ASSERT(ddl_address_parse(host, 4711, &again));
    DDL_ASSERT(address.bytes == again.bytes);
    DDL_ASSERT(memcmp(&address.socket, &again.socket, address.bytes) == 0);
    ddl_address_text(&address, full);
    DDL_ASSERT(ddl_address_split("", full, host_part, sizeof host_part, &port, NULL) == DDL_OK);
    DDL_ASSERT(port == 4711);
    DDL_ASSERT(strcmp(host_part, host) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[1024], host[40];
    ddl_error error;
    uint16_t port;
    if (bytes < 1 || bytes > sizeof text)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    check_redis(text, data[0] & 1);
    check_address(text);
    check_store(text);
    if (ddl_address_split("MASTER_ADDR", text, host, sizeof host, &port, &error) == DDL_OK) {
        DDL_ASSERT(port > 0);
        check_text(host, sizeof host);
    }
    return 0;
}
