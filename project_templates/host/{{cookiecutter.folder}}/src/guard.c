/* The guard in a process: fault signals, handled on a separate stack, and an alarm as the watchdog. The origin of a
 * signal is reported on Linux only. port_windows.c has the guard for Windows. */
#ifndef _WIN32
#define _GNU_SOURCE

#include "mtool.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>


#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <ucontext.h>
#define HAS_CONTEXT 1
#endif

#define NEAR_BYTES 65536u /* a faulting access this near to the stack pointer is beyond the stack's end */

void mt_guard_signal(int number, siginfo_t *info, void *context);

static uint64_t stack[8192]; /* the handler's */

#if HAS_CONTEXT
extern const char __ehdr_start[]; /* the linker's: where the program's image begins */

static void find(const ucontext_t *context, uintptr_t *pc, uintptr_t *sp)
{
#ifdef __x86_64__
    *pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    *sp = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#else
    *pc = (uintptr_t)context->uc_mcontext.pc;
    *sp = (uintptr_t)context->uc_mcontext.sp;
#endif
}
#else
static const char __ehdr_start[1];
#endif

static void report(uint8_t kind, int number, uintptr_t pc, uintptr_t address)
{
    const uint64_t at = pc == 0 ? 0 : (uint64_t)(pc - (uintptr_t)__ehdr_start);
    const uint64_t to = (uint64_t)address;
    const uint32_t registers[5] = {(uint32_t)number, (uint32_t)(at >> 32), (uint32_t)at, (uint32_t)(to >> 32),
                                   (uint32_t)to};
    mt_server_fault(kind, MT_MACHINE_PROCESS, registers, 5);
}

/* Report the fault, then end as the signal would have. */
void mt_guard_signal(int number, siginfo_t *info, void *context)
{
    const uintptr_t address = number == SIGABRT || number == SIGALRM ? 0 : (uintptr_t)info->si_addr;
    uint8_t kind = MT_FAULT_EXCEPTION;
    uintptr_t pc = 0;
    uintptr_t sp = UINTPTR_MAX; /* unknown: near to nothing */
#if HAS_CONTEXT
    find(context, &pc, &sp);
#else
    (void)context;
#endif
    if (number == SIGALRM) {
        kind = MT_FAULT_WATCHDOG;
    } else if (number == SIGABRT) {
        kind = MT_FAULT_ASSERTION;
    } else if ((number == SIGSEGV || number == SIGBUS) && address + NEAR_BYTES > sp && address < sp + NEAR_BYTES) {
        kind = MT_FAULT_STACK;
    }
    report(kind, number, pc, address);
    signal(number, SIG_DFL);
    raise(number);
}

void mt_guard_init(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM};
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = mt_guard_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; ++i) {
        sigaction(faults[i], &action, NULL);
    }
}

void mt_guard_watch(uint32_t limit_ms)
{
    const struct itimerval limit = {.it_value = {.tv_sec = limit_ms / 1000u, .tv_usec = limit_ms % 1000u * 1000u}};
    setitimer(ITIMER_REAL, &limit, NULL);
}

void mt_port_abort(int32_t status)
{
    if (status != MT_OK) {
        mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_NONE, NULL, 0);
    }
    exit((int)status);
}

#ifdef __GLIBC__
/* glibc's assert() ends here. */
void __assert_fail(const char *expression, const char *file, unsigned int line, const char *function)
{
    (void)file;
    (void)line;
    (void)function;
    mt_server_log(expression);
    report(MT_FAULT_ASSERTION, SIGABRT, (uintptr_t)__builtin_return_address(0) - 1u, 0); /* within the call */
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
    _exit(1);
}
#endif
#endif
