/* Lets User Mode Linux 6.1 run on a processor whose registers it does not know (`user_mode_linux.py`).
 *
 * It sets the first 2696 bytes of the extended registers of its processes. The kernel of this machine takes all of them or
 * none (kernel `arch/x86/kernel/fpu/regset.c`, `xstateregs_set`), which are more with AMX: the rest is read before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static char registers[1 << 16];

long ptrace(enum __ptrace_request request, ...)
{
    static long (*of_libc)(enum __ptrace_request, pid_t, void *, void *);
    va_list rest;
    va_start(rest, request);
    pid_t process = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    if (!of_libc)
        of_libc = dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (unsigned long)address == NT_X86_XSTATE) {
        struct iovec *given = data, all = {registers, sizeof(registers)};
        if (of_libc(PTRACE_GETREGSET, process, address, &all) == 0 && all.iov_len > given->iov_len) {
            memcpy(registers, given->iov_base, given->iov_len);
            return of_libc(request, process, address, &all);
        }
    }
    return of_libc(request, process, address, data);
}
