/*
 * address.h - numeric TCP addresses, and what else sockets can have as theirs.
 *
 * Nothing here asks a name server (resolve.h) or looks at this machine's own (interface.h).
 */
#ifndef DDL_IO_ADDRESS_H
#define DDL_IO_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Numeric host, "%scope" included, and the same with brackets and port. */
enum { DDL_ADDRESS_HOST_TEXT = 64, DDL_ADDRESS_FULL_TEXT = 80 };

typedef struct ddl_address {
    struct sockaddr_storage socket;
    socklen_t bytes;
} ddl_address;

/* From "10.0.0.1", "::1" or "fe80::1%eth0"; false if text is no numeric address. */
bool ddl_address_parse(const char *text, uint16_t port, ddl_address *address);

/* Numeric host without port; "?" for an address of another family. */
void ddl_address_host(const ddl_address *address, char text[DDL_ADDRESS_HOST_TEXT]);

/* "10.0.0.1:29500", "[::1]:29500"; in words for a Unix socket (local.h). */
void ddl_address_text(const ddl_address *address, char text[DDL_ADDRESS_FULL_TEXT]);

uint16_t ddl_address_port(const ddl_address *address);
void ddl_address_set_port(ddl_address *address, uint16_t port);
bool ddl_address_is_loopback(const ddl_address *address);

/* 169.254.x.x or fe80::, which reach no further than one network. */
bool ddl_address_is_link_local(const ddl_address *address);

/* fe80:: without the interface that it is of, of which the system has to be told. */
bool ddl_address_lacks_interface(const ddl_address *address);

/* 0.0.0.0 or ::, which stand for all addresses of a machine. */
bool ddl_address_is_any(const ddl_address *address);

/* Whether both are of the same host; an IPv4 address written as IPv6 counts as IPv4. Ports do not matter. */
bool ddl_address_same_host(const ddl_address *a, const ddl_address *b);

/* Whether one of these is of the same host as `one`. */
bool ddl_address_is_among(const ddl_address *one, const ddl_address addresses[], int count);

/* Network order, 4 or 16 bytes; an IPv4 address written as IPv6 counts as IPv4. 0: another family. */
int ddl_address_bytes(const ddl_address *address, uint8_t bytes[16]);

/* Ports among which to choose, both included; 0 and 0: any. */
typedef struct ddl_port_range {
    uint16_t first, last;
} ddl_port_range;

/*
 * Cut "host:port" or "[v6]:port" in two; host_bytes is the room in host. DDL_ECONFIG: not of this form, port
 * not in 1..65535. what names the setting in the text: "MASTER_ADDR".
 */
DDL_MUST_USE ddl_status ddl_address_split(const char *what, const char *text, char *host, size_t host_bytes,
                                          uint16_t *port, ddl_error *err);

#endif
