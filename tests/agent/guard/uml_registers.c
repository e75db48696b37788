/* Loaded before a User Mode Linux on processors whose registers are more than it knows (AMX, say).
 *
 * It reads and writes the registers of its processes as a block of the size it was built for. The kernel gives the
 * first part of a larger block, but takes none that is not whole, so there its first process ends by SIGSEGV. Here the
 * block that it writes is put over the beginning of the whole one, whose rest nothing in there uses.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { X86_XSTATE = 0x202, MOST_BYTES = 64 << 10 };

typedef long (*Ptrace)(enum __ptrace_request, ...);

long ptrace(enum __ptrace_request request, ...)
{
    static char whole[MOST_BYTES];
    static Ptrace kernels;
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *which = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (kernels == NULL)
        kernels = (Ptrace)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (long)which == X86_XSTATE) {
        struct iovec *known = data;
        struct iovec all = {whole, sizeof whole};
        if (kernels(PTRACE_GETREGSET, pid, which, &all) < 0)
            return -1;
        if (known->iov_len < all.iov_len) {
            memcpy(whole, known->iov_base, known->iov_len);
            return kernels(request, pid, which, &all);
        }
    }
    return kernels(request, pid, which, data);
}
