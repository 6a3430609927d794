/* pulling - preloaded into a rank: says once that memory of another process is read in large pieces. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_readv(pid_t pid, const struct iovec *parts, unsigned long count, const struct iovec *there,
                         unsigned long there_count, unsigned long flags)
{
    static int said;
    if (there_count > 1 && there[1].iov_len > 64 * 1024 && !said++)
        fputs("pulled\n", stderr);
    return syscall(SYS_process_vm_readv, (long)pid, parts, count, there, there_count, flags);
}
