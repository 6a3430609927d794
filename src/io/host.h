/*
 * host.h - facts about this machine: who it is, how many CPUs this process may use, and fresh random bytes.
 *
 * host_linux.c and host_posix.c each implement ddl_host_id, what is about CPUs, ddl_host_random,
 * ddl_host_keeps and ddl_host_need_memory.
 */
#ifndef DDL_IO_HOST_H
#define DDL_IO_HOST_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { DDL_HOST_NAME_TEXT = 64 };

/*
 * Equal exactly for processes on one running system that can reach each other's loopback: on Linux the
 * boot id and the network namespace of this thread, elsewhere a hash of the node name. Where Linux does not
 * let this process see those it is a guess: never that of a process that sees them, and of others' that of
 * another host only if the two have one machine id and one name; where there is no machine id it is another
 * at every call.
 */
void ddl_host_id(uint8_t id[16]);

/* Whether processes with another id are on another host for certain, if theirs is sure too. */
bool ddl_host_id_is_sure(const uint8_t id[16]);

/* For ddl_host_id: a hash of text, and what ddl_host_id_is_sure is to say. */
void ddl_host_id_of(const char *text, uint8_t id[16]);
void ddl_host_id_mark(uint8_t id[16], bool sure);

/* Of ddl_host_cpus: a cgroup's quota, whichever CPUs it is used up on. */
enum { DDL_HOST_ANY_CPU = 0xffff };

/*
 * How many CPUs this process may use, at least 1: affinity mask, or cgroup quota where that is less. *first
 * is the lowest of them, by which processes that are bound to CPUs of their own differ, or DDL_HOST_ANY_CPU;
 * both are below 2^16.
 * NULL: nobody wants to know.
 */
uint16_t ddl_host_cpus(uint16_t *first);

/*
 * Linux: CPUs' worth of time, in whole ones, that the cgroups listed in the file `membership` (as
 * /proc/self/cgroup) leave, looked up below the folder `root` (as /sys/fs/cgroup). 0: no limit.
 */
uint32_t ddl_host_cgroup_cpus(const char *membership, const char *root);

/* On which CPU this thread runs; -1: the system does not tell. */
int ddl_host_cpu(void);

/* Those that this thread may use, so many at most, in order. How many they are; 0: the system does not tell.
 */
int ddl_host_list_cpus(int cpus[], int most);

/* This thread, for ddl_host_move_thread. */
int ddl_host_thread(void);

/* Have a thread of this process run on a CPU, if it may, until the system moves it again. */
void ddl_host_move_thread(int thread, int cpu);

/* The node's name as hostname has it, cut to fit; "?" if it has none. Never resolved. */
void ddl_host_name(char name[DDL_HOST_NAME_TEXT]);

/* Unpredictable bytes. DDL_ERESOURCE: the system gives none. */
DDL_MUST_USE ddl_status ddl_host_random(void *data, size_t bytes, ddl_error *err);

/* Whether this folder is on a disk of this machine, or in its memory, and nobody else's. False: on others'
 * too, or that is unknown, or this machine lets others mount something. */
bool ddl_host_keeps(const char *folder);

/* Whether a line that another core has written takes so long to fetch that it is best passed on in few large
 * portions, or not at all. */
bool ddl_host_cores_are_far(void);

/* Whether to write a line is quicker once it has left the cache of the core that read it last, so that what
 * is written again and again had better outgrow that cache. Also where cores are far. */
bool ddl_host_lines_return_late(void);

/* Bytes of memory in this machine; 0: unknown. */
uint64_t ddl_host_memory(void);

/*
 * Before so much memory is touched that the system would end a process of a cgroup that may not have it.
 * DDL_ENOMEM: a cgroup of this process has a limit that leaves less; the text names its file. What others
 * take at the same time is not seen.
 */
DDL_MUST_USE ddl_status ddl_host_need_memory(uint64_t bytes, ddl_error *err);

/* Whether this process may use only so many addresses (ulimit -v), or pays for those that it does not use:
 * valgrind keeps a book about each. */
bool ddl_host_limits_addresses(void);

/*
 * Whether this process may make a file of so many bytes (ulimit -f). To be asked before: the system ends a
 * process that tries. False sets errno to EFBIG.
 */
bool ddl_host_may_write(uint64_t bytes);

/*
 * Make sure that needed more descriptors can be opened, raising the soft limit where that is allowed.
 * DDL_ERESOURCE with both numbers. what says what they are for: "32 ranks".
 */
DDL_MUST_USE ddl_status ddl_host_need_descriptors(int needed, const char *what, ddl_error *err);

/* How many of these more descriptors can be opened, with the soft limit raised for as many as are allowed. */
int ddl_host_free_descriptors(int wanted);

/*
 * Have the system make room at once for this many more. Where threads share a table of descriptors Linux
 * lets whoever makes it grow (beyond 64, 128, 256 ..) wait for all CPUs, which takes 7 ms and more each time;
 * so this is best called before there are threads, and once the limit is what it will be: of more than that
 * allows there is room for as many as it does.
 */
void ddl_host_expect_descriptors(int expected);

/* Open /dev/null in the place of each standard descriptor that is closed: what got its number, a connection
 * say, would have the program's output written to it; and libuv ends a process that closes one there. */
void ddl_host_fill_standard(void);

#endif
