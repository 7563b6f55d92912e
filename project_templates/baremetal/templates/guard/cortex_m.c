/* The guard on a Cortex-M: main runs on the process stack, handlers on their own; the MPU allows only the memories
 * that the board has; SysTick is the watchdog. Registers: Armv7-M ARM, B3.2 and B3.5; Armv8-M ARM. */
#include "mtool.h"

#include <stddef.h>

{% set has_systick = cookiecutter.board.timer.kind == "systick" %}
{% if has_systick %}
#include "mt_board.h"
#include "mt_ports.h"
{% endif %}
#include "platform.h"
{% if cookiecutter.protect %}
#include "protect.h"
{% endif %}

#define REGISTER(address) (*(volatile uint32_t *)(address))
{% if cookiecutter.protect %}
#define ICSR REGISTER(0xE000ED04u)
{% endif %}
{% if not has_systick %}
#define SYST_CSR REGISTER(0xE000E010u)
#define SYST_RVR REGISTER(0xE000E014u)
#define SYST_CVR REGISTER(0xE000E018u)
{% endif %}
#define MPU_TYPE REGISTER(0xE000ED90u)
#define MPU_CTRL REGISTER(0xE000ED94u)
#define MPU_RNR REGISTER(0xE000ED98u)
#define MPU_RBAR REGISTER(0xE000ED9Cu)
#define MPU_RASR REGISTER(0xE000EDA0u) /* Armv7-M */
#define MPU_RLAR REGISTER(0xE000EDA0u) /* Armv8-M */
#define MPU_MAIR0 REGISTER(0xE000EDC0u)

#define CONTROL_SPSEL 2u
#define SYSTICK 15
{% if cookiecutter.protect %}
#define ICSR_PENDSTCLR (1u << 25)
#define SVCALL 11
#define EXC_RETURN_THREAD 8u
{% endif %}
#define TICKS_PER_SECOND {{ "MT_SYSTICK_PER_SECOND" if has_systick else "50u" }}

#if defined(__ARM_ARCH_7M__) || defined(__ARM_ARCH_7EM__)
#define HAS_PMSA_V7 1
#elif defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
#define HAS_PMSA_V8 1
#endif
#define HAS_FAULT_STATUS (HAS_PMSA_V7 || HAS_PMSA_V8) /* and maybe an MPU; else there is only HardFault */

{% include "shared/fault_cortex_m.c" %}

void platform_fault(void);
{{ "uint32_t" if cookiecutter.protect else "void" }} mt_guard_exception(const uint32_t *main_stack, const uint32_t *process_stack, uint32_t exc_return);
void __assert_func(const char *file, int line, const char *function, const char *expression);

static uint64_t handler_stack[64];
static volatile uint32_t ticks_left;

#if HAS_FAULT_STATUS
/* The memories in the board's entry; the private peripherals need no region. Code is read-only, the rest is not
 * for executing{{ ", but for the memory of modules" if cookiecutter.modules }}. */
enum access { READ_EXECUTE, READ_WRITE, {{ "READ_WRITE_EXECUTE, " if cookiecutter.modules }}PERIPHERAL };

static const struct {
    uint32_t base;
    uint32_t bytes;
    enum access access;
} memories[] = {
{% for name, memory in cookiecutter.board.memories.items() %}
{% set is_read_only = memory.holds and memory.holds | reject("in", ["code", "weights", "hot_code"]) | list | length == 0 %}
{% set has_modules = cookiecutter.modules and name == cookiecutter.modules.memory %}
{% set access = "READ_EXECUTE" if is_read_only else "READ_WRITE_EXECUTE" if has_modules else "READ_WRITE" %}
    {{ "{0x%08Xu, 0x%Xu, %s}," % (memory.base, memory.size, access) }} /* {{ name }} */
{% endfor %}
    {0x40000000u, 0x20000000u, PERIPHERAL},
};
#endif

#if HAS_PMSA_V7
/* PMSAv7: a region is a power of two, aligned to its size, in eighths that can be left out. */
static void allow(uint32_t number, uint32_t base, uint32_t bytes, enum access access)
{
    static const uint32_t attributes[] = {
        (6u << 24) | (1u << 19) | (3u << 16),              /* read only; normal memory, write-back */
        (1u << 28) | (3u << 24) | (1u << 19) | (3u << 16), /* never executed */
{% if cookiecutter.modules %}
        (3u << 24) | (1u << 19) | (3u << 16),              /* both */
{% endif %}
        (1u << 28) | (3u << 24) | (1u << 18) | (1u << 16), /* device */
    };
    const uint32_t last = base + bytes - 1u;
    uint32_t order = 8; /* eighths need at least 256 bytes */
    while (order < 31u && base >> order != last >> order) {
        ++order;
    }
    const uint32_t eighth = order - 3u;
    const uint32_t first_used = base >> eighth & 7u;
    const uint32_t last_used = last >> eighth & 7u;
    uint32_t unused = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        unused |= i < first_used || i > last_used ? 1u << i : 0u;
    }
    MPU_RNR = number;
    MPU_RBAR = base >> order << order;
    MPU_RASR = attributes[access] | unused << 8 | (order - 1u) << 1 | 1u;
}
#elif HAS_PMSA_V8
static void allow(uint32_t number, uint32_t base, uint32_t bytes, enum access access)
{
    static const uint32_t attributes[] = {2u << 1, 1u, {{ "0, " if cookiecutter.modules }}1u}; /* read only; never executed{{ "; both" if cookiecutter.modules }} */
    MPU_MAIR0 = 0x04FFu;                                    /* 0: normal memory, write-back; 1: device */
    MPU_RNR = number;
    MPU_RBAR = base | attributes[access];
    MPU_RLAR = ((base + bytes - 1u) & ~31u) | (access == PERIPHERAL ? 1u << 1 : 0u) | 1u;
}
#endif

/* Continue on the same stack, but as the process stack. */
static void split_stacks(void)
{
    uint32_t control;
    __asm__ volatile("mrs %0, control" : "=r"(control));
    __asm__ volatile("mrs r3, msp\n\t"
                     "msr psp, r3\n\t"
                     "msr control, %0\n\t"
                     "isb\n\t"
                     "msr msp, %1"
                     :
                     : "r"(control | CONTROL_SPSEL), "r"(handler_stack + sizeof handler_stack / sizeof handler_stack[0])
                     : "r3", "memory");
}

#if HAS_FAULT_STATUS
{% if cookiecutter.protect %}
void guard_allow_memories(void)
{% else %}
static void allow_memories(void)
{% endif %}
{
    const uint32_t count = sizeof memories / sizeof memories[0], most = MPU_TYPE >> 8 & 0xFFu;
{% if cookiecutter.protect %}
    __asm__ volatile("dmb" ::: "memory");
    MPU_CTRL = 0;
    for (uint32_t i = count; i < most; ++i) { /* the regions of protect.c */
        MPU_RNR = i;
        MPU_RASR = 0; /* or RLAR, at the same address */
    }
{% endif %}
    if (most >= count) {
        for (uint32_t i = 0; i < count; ++i) {
            allow(i, memories[i].base, memories[i].bytes, memories[i].access);
        }
        MPU_CTRL = 1;
    }
{% if cookiecutter.protect %}
    __asm__ volatile("dsb\n\tisb" ::: "memory");
{% endif %}
}
#endif

void mt_guard_init(void)
{
    split_stacks();
#if HAS_PMSA_V8
    __asm__ volatile("msr psplim, %0" : : "r"(mt_stack_low));
#endif
#if HAS_FAULT_STATUS
    {{ "guard_" if cookiecutter.protect }}allow_memories();
    SHCSR |= 7u << 16; /* UsageFault, BusFault and MemManage instead of HardFault for all */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
}

void mt_guard_watch(uint32_t limit_ms)
{
    const uint32_t tick_ms = 1000u / TICKS_PER_SECOND;
{% if has_systick %}
    mt_systick_watch(0);
    ticks_left = limit_ms > 0 ? limit_ms / tick_ms + 1u + (limit_ms % tick_ms != 0) : 0;
    mt_systick_watch(limit_ms > 0);
{% else %}
    SYST_CSR = 0;
    ticks_left = limit_ms / tick_ms + 1u + (limit_ms % tick_ms != 0);
    SYST_RVR = {{ cookiecutter.board.clock_hz }}u / TICKS_PER_SECOND - 1u; /* in 24 bits up to 838 MHz */
    SYST_CVR = 0;
    SYST_CSR = limit_ms > 0 ? 7u : 0u; /* the processor's clock; with its interrupt */
{% endif %}
}

{% if cookiecutter.protect %}
/* Every exception ends up here: SysTick continues, SVC leaves memory protection, the others report a fault and end
 * the model, if it runs under memory protection, or the firmware. Returns the address to continue at. */
{% else %}
/* Every exception ends up here: SysTick continues, the others report a fault and end the firmware. */
{% endif %}
{{ "uint32_t" if cookiecutter.protect else "void" }} mt_guard_exception(const uint32_t *main_stack, const uint32_t *process_stack, uint32_t exc_return)
{
    const uint32_t *const frame = (exc_return & 4u) != 0 ? process_stack : main_stack;
    int32_t exception;
    __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
{% if has_systick %}
    if (exception == SYSTICK) {
        mt_systick_interrupt();
    }
{% endif %}
{% if cookiecutter.protect %}
    if (exception == SYSTICK && --ticks_left > 0) {
        return exc_return;
    }
    const int is_models = protect_is_closed() && (exc_return & EXC_RETURN_THREAD) != 0;
    if (exception == SVCALL) {
        return is_models ? protect_leave(exc_return, (int32_t)process_stack[0], NULL) : exc_return;
    }
{% else %}
    if (exception == SYSTICK && --ticks_left > 0) {
        return;
    }
{% endif %}
{% if cookiecutter.protect %}
    if (is_models) {
{% if has_systick %}
        mt_systick_watch(0);
{% else %}
        SYST_CSR = 0;
        ICSR = ICSR_PENDSTCLR;
{% endif %}
        return end_model(exception == SYSTICK, frame, exc_return);
    }
{% endif %}
    uint32_t registers[9];
    read_registers(registers, frame, exc_return);
    mt_server_fault(kind_of(exception == SYSTICK, frame, registers[3]), MT_MACHINE_CORTEX_M, registers, 9);
    platform_exit(PLATFORM_FAULT + exception);
{% if cookiecutter.protect %}
    return exc_return;
{% endif %}
}

/* In place of startup.c's. */
__attribute__((naked)) void platform_fault(void)
{
    __asm__ volatile("mrs r0, msp\n\t"
                     "mrs r1, psp\n\t"
                     "mov r2, lr\n\t"
                     "push {r3, lr}\n\t"
                     "bl mt_guard_exception\n\t"
{% if cookiecutter.protect %}
                     "pop {r3, lr}\n\t"
                     "bx r0");
{% else %}
                     "pop {r3, pc}");
{% endif %}
}

{% if has_systick %}
void platform_systick(void);
__attribute__((alias("platform_fault"))) void platform_systick(void);

{% endif %}
{% include "shared/guard_abort.c" %}

/* newlib's assert() ends here. */
void __assert_func(const char *file, int line, const char *function, const char *expression)
{
    uint32_t registers[9] = {0};
    (void)file;
    (void)line;
    (void)function;
    mt_server_log(expression);
    registers[0] = (uint32_t)__builtin_return_address(0) - 3u; /* within the call: bit 0 says Thumb */
    registers[3] = (uint32_t)__builtin_frame_address(0);
    registers[8] = (uint32_t)mt_stack_low;
    mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_CORTEX_M, registers, 9);
    platform_exit(PLATFORM_FAULT);
}
