/*
 * address.h - numeric TCP addresses, and which of this machine's to use.
 *
 * Nothing here asks a name server; see resolve.h.
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

/* "10.0.0.1:29500", "[::1]:29500". */
void ddl_address_text(const ddl_address *address, char text[DDL_ADDRESS_FULL_TEXT]);

uint16_t ddl_address_port(const ddl_address *address);
void ddl_address_set_port(ddl_address *address, uint16_t port);
bool ddl_address_is_loopback(const ddl_address *address);

/* 0.0.0.0 or ::, which stand for all addresses of a machine. */
bool ddl_address_is_any(const ddl_address *address);

/*
 * Cut "host:port" or "[v6]:port" in two; host_bytes is the room in host. DDL_ECONFIG: not of this form, port
 * not in 1..65535. what names the setting in the text: "MASTER_ADDR".
 */
DDL_MUST_USE ddl_status ddl_address_split(const char *what, const char *text, char *host, size_t host_bytes,
                                          uint16_t *port, ddl_error *err);

/* Whether address is one of this machine's own. */
bool ddl_address_is_local(const ddl_address *address);

/* "lo 127.0.0.1, eth0 10.0.0.5/24": addresses of the interfaces that are up, cut to fit text. */
void ddl_interfaces_text(char *text, size_t text_bytes);

/*
 * This machine's address, port 0, on the network that iface names: an interface ("eth0") or a network
 * ("10.0.0.0/8"). NULL: the first that is up and not loopback, or else loopback; IPv4 before IPv6.
 * DDL_ECONFIG: there is none; the text lists those that are.
 */
DDL_MUST_USE ddl_status ddl_interface_choose(const char *iface, ddl_address *address, ddl_error *err);

#endif
