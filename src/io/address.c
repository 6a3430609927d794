/* address.c - numeric addresses. */
#include "io/address.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void from_v4(const struct in_addr *host, uint16_t port, ddl_address *address)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = *host };
    memset(address, 0, sizeof *address);
    memcpy(&address->socket, &v4, sizeof v4);
    address->bytes = sizeof v4;
}

static void from_v6(const struct in6_addr *host, uint32_t scope, uint16_t port, ddl_address *address)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = scope };
    v6.sin6_addr = *host;
    memset(address, 0, sizeof *address);
    memcpy(&address->socket, &v6, sizeof v6);
    address->bytes = sizeof v6;
}

static struct sockaddr_in as_v4(const ddl_address *address)
{
    struct sockaddr_in v4;
    memcpy(&v4, &address->socket, sizeof v4);
    return v4;
}

static struct sockaddr_in6 as_v6(const ddl_address *address)
{
    struct sockaddr_in6 v6;
    memcpy(&v6, &address->socket, sizeof v6);
    return v6;
}

/* From a name, or a number in the decimal form; 0 if it is neither. */
static uint32_t scope_of(const char *text)
{
    char *end;
    uint32_t index = if_nametoindex(text);
    if (index > 0 || !isdigit((unsigned char)*text))
        return index;
    unsigned long long number = strtoull(text, &end, 10);
    return *end == '\0' && number <= UINT32_MAX ? (uint32_t)number : 0;
}

bool ddl_address_parse(const char *text, uint16_t port, ddl_address *address)
{
    DDL_ASSERT(text != NULL);
    struct in_addr v4;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        from_v4(&v4, port, address);
        return true;
    }
    char host[DDL_ADDRESS_HOST_TEXT];
    size_t bytes = strcspn(text, "%");
    if (bytes >= sizeof host)
        return false;
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    uint32_t scope = 0;
    if (text[bytes] == '%') {
        scope = scope_of(text + bytes + 1);
        if (scope == 0)
            return false;
    }
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return false;
    from_v6(&v6, scope, port, address);
    return true;
}

void ddl_address_host(const ddl_address *address, char text[DDL_ADDRESS_HOST_TEXT])
{
    snprintf(text, DDL_ADDRESS_HOST_TEXT, "?");
    if (address->socket.ss_family == AF_INET) {
        struct sockaddr_in v4 = as_v4(address);
        inet_ntop(AF_INET, &v4.sin_addr, text, DDL_ADDRESS_HOST_TEXT);
    } else if (address->socket.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = as_v6(address);
        inet_ntop(AF_INET6, &v6.sin6_addr, text, DDL_ADDRESS_HOST_TEXT);
        char name[IF_NAMESIZE];
        if (v6.sin6_scope_id != 0) {
            size_t used = strlen(text);
            if (if_indextoname(v6.sin6_scope_id, name) == NULL)
                snprintf(name, sizeof name, "%u", (unsigned)v6.sin6_scope_id);
            snprintf(text + used, DDL_ADDRESS_HOST_TEXT - used, "%%%s", name);
        }
    }
}

void ddl_address_text(const ddl_address *address, char text[DDL_ADDRESS_FULL_TEXT])
{
    char host[DDL_ADDRESS_HOST_TEXT];
    if (address->socket.ss_family == AF_UNIX) {
        snprintf(text, DDL_ADDRESS_FULL_TEXT, "a Unix socket of this host");
        return;
    }
    ddl_address_host(address, host);
    bool v6 = address->socket.ss_family == AF_INET6;
    snprintf(text, DDL_ADDRESS_FULL_TEXT, v6 ? "[%s]:%u" : "%s:%u", host, ddl_address_port(address));
}

uint16_t ddl_address_port(const ddl_address *address)
{
    if (address->socket.ss_family == AF_INET)
        return ntohs(as_v4(address).sin_port);
    return address->socket.ss_family == AF_INET6 ? ntohs(as_v6(address).sin6_port) : 0;
}

void ddl_address_set_port(ddl_address *address, uint16_t port)
{
    if (address->socket.ss_family == AF_INET) {
        struct in_addr host = as_v4(address).sin_addr;
        from_v4(&host, port, address);
    } else if (address->socket.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = as_v6(address);
        from_v6(&v6.sin6_addr, v6.sin6_scope_id, port, address);
    }
}

int ddl_address_bytes(const ddl_address *address, uint8_t bytes[16])
{
    if (address->socket.ss_family == AF_INET) {
        struct sockaddr_in v4 = as_v4(address);
        memcpy(bytes, &v4.sin_addr, 4);
        return 4;
    }
    if (address->socket.ss_family != AF_INET6)
        return 0;
    struct sockaddr_in6 v6 = as_v6(address);
    const uint8_t *host = v6.sin6_addr.s6_addr;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    memcpy(bytes, mapped ? host + 12 : host, mapped ? 4 : 16);
    return mapped ? 4 : 16;
}

bool ddl_address_is_loopback(const ddl_address *address)
{
    static const uint8_t v6_loopback[16] = { [15] = 1 };
    uint8_t bytes[16];
    int count = ddl_address_bytes(address, bytes);
    return count == 4 ? bytes[0] == 127 : count == 16 && memcmp(bytes, v6_loopback, 16) == 0;
}

bool ddl_address_is_any(const ddl_address *address)
{
    static const uint8_t any[16];
    uint8_t bytes[16];
    int count = ddl_address_bytes(address, bytes);
    return count > 0 && memcmp(bytes, any, (size_t)count) == 0;
}

bool ddl_address_is_link_local(const ddl_address *address)
{
    uint8_t bytes[16];
    int count = ddl_address_bytes(address, bytes);
    if (count == 4)
        return bytes[0] == 169 && bytes[1] == 254;
    return count == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool ddl_address_lacks_interface(const ddl_address *address)
{
    return address->socket.ss_family == AF_INET6 && ddl_address_is_link_local(address) &&
           as_v6(address).sin6_scope_id == 0;
}

bool ddl_address_same_host(const ddl_address *a, const ddl_address *b)
{
    uint8_t a_bytes[16], b_bytes[16];
    if (a->socket.ss_family == AF_UNIX)
        return b->socket.ss_family == AF_UNIX;
    int count = ddl_address_bytes(a, a_bytes);
    return count > 0 && count == ddl_address_bytes(b, b_bytes) &&
           memcmp(a_bytes, b_bytes, (size_t)count) == 0;
}

bool ddl_address_is_among(const ddl_address *one, const ddl_address addresses[], int count)
{
    for (int i = 0; i < count; i++)
        if (ddl_address_same_host(one, &addresses[i]))
            return true;
    return false;
}

ddl_status ddl_address_split(const char *what, const char *text, char *host, size_t host_room, uint16_t *port,
                             ddl_error *err)
{
    const char *start = text, *end, *colon;
    if (text[0] == '[') {
        start = text + 1;
        end = strchr(text, ']');
        colon = end != NULL && end[1] == ':' ? end + 1 : NULL;
    } else {
        colon = end = strrchr(text, ':');
        if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL)
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: write an IPv6 address in brackets, as in [::1]:29500",
                            what, text);
    }
    if (colon == NULL || end == start)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s is not of the form host:port, as in 10.0.0.1:29500", what,
                        text);
    char *rest;
    unsigned long number = colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &rest, 10) : 0;
    if (number < 1 || number > UINT16_MAX || *rest != '\0')
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: the port must be a number from 1 to 65535", what, text);
    if ((size_t)(end - start) >= host_room)
        return DDL_FAIL(err, DDL_ECONFIG, "%s: the host name is longer than %zu bytes", what, host_room - 1);
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port = (uint16_t)number;
    return DDL_OK;
}
