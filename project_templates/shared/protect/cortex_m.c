/* Memory protection on a Cortex-M: the model runs unprivileged in the MPU's regions, and returns by SVC or by a fault.
 * Registers: Armv7-M ARM, B3.5; Armv8-M ARM. */
#include "mtool.h"

#include "protect.h"

{% if is_zephyr | default(false) %}
#include <zephyr/cache.h>
#include <zephyr/kernel.h>
#include <zephyr/linker/linker-defs.h>

{% endif %}
#define REGISTER(address) (*(volatile uint32_t *)(address))
#define MPU_TYPE REGISTER(0xE000ED90u)
#define MPU_CTRL REGISTER(0xE000ED94u)
#define MPU_RNR REGISTER(0xE000ED98u)
#define MPU_RBAR REGISTER(0xE000ED9Cu)
#define MPU_ATTRIBUTES REGISTER(0xE000EDA0u) /* RASR of Armv7-M, RLAR of Armv8-M */
#define FPCCR REGISTER(0xE000EF34u)
#define FPCCR_LSPACT 1u
#define MPU_ON 5u /* handlers also have the default map */

#define FRAME_WORDS 8u
#define XPSR_THUMB (1u << 24)
#define EXC_RETURN_BASIC 48u /* the frame has neither the FPU's registers nor, on Armv8-M, r4 to r11 */

#define SAVED_BYTES 112u /* the most that enter() pushes */
#define STACK_GRANULE {{ cookiecutter.protect.stack_granule }}u

extern uint8_t mt_stack_low[];

{% if is_zephyr | default(false) %}
/* Code and constants{{ ": the whole flash, as regions are powers of two" if cookiecutter.protect.unit == "pmsav7" }}; and what of RAM is only read. */
extern uint8_t mt_constants_start[], mt_constants_end[];
static const struct mt_protect_area flash[] = {
{% if cookiecutter.protect.unit == "pmsav7" %}
    {(void *)CONFIG_FLASH_BASE_ADDRESS, (void *)(CONFIG_FLASH_BASE_ADDRESS + 1024u * CONFIG_FLASH_SIZE), MT_PROTECT_EXECUTE},
{% else %}
    {__text_region_start, __rodata_region_end, MT_PROTECT_EXECUTE},
{% endif %}
    {mt_constants_start, mt_constants_end, MT_PROTECT_READ},
};
{% elif cookiecutter.protect.unit == "pmsav7" %}
/* Code and constants: the whole memories, as regions are powers of two; and what of RAM is only read. */
extern uint8_t mt_constants_start[], mt_constants_end[];
static const struct mt_protect_area flash[] = {
{% for name, memory in cookiecutter.board.memories.items() %}
{% if memory.holds and memory.holds | reject("in", ["code", "weights"]) | list | length == 0 %}
{% set access = "EXECUTE" if "code" in memory.holds else "READ" %}
    {{ "{(void *)0x%08Xu, (void *)0x%08Xu, MT_PROTECT_%s}," % (memory.base, memory.base + memory.size, access) }} /* {{ name }} */
{% endif %}
{% endfor %}
    {mt_constants_start, mt_constants_end, MT_PROTECT_READ},
};
{% else %}
{% include "shared/protect/flash.c" %}
{% endif %}

static uint32_t regions;           /* in use */
static uint32_t *volatile context; /* saved by enter(); NULL: no protected model is running */
static struct protect_fault fault;
static volatile int32_t outcome;

/* Regions beyond the processor's last one are only counted. */
static void set_region(uint32_t base, uint32_t attributes)
{
    if (regions < (MPU_TYPE >> 8 & 0xFFu)) {
        MPU_RNR = regions;
        MPU_RBAR = base;
        MPU_ATTRIBUTES = attributes;
    }
    ++regions;
}

{% if cookiecutter.protect.unit == "pmsav7" %}
#define LEAST 32u /* an eighth of the smallest region that has eighths */

/* How widely a model may read if there are few regions: its own areas (0), also what surrounds each of them (1), or
 * everything between them (2). It can never write outside its areas. */
static uint32_t width;

/* Cover an area and its surroundings with one region. */
static void widen(uint32_t *start, uint32_t *end)
{
    for (uint32_t order = 8; order < 32u; ++order) {
        const uint32_t eighth = 1u << (order - 3u);
        if (*start >> order == (*end - 1u) >> order) {
            *start &= ~(eighth - 1u);
            *end = (*end + eighth - 1u) & ~(eighth - 1u);
            return;
        }
    }
}

/* Cover the addresses from `start` to before `end`, multiples of LEAST. A region is a power of two, aligned to its size,
 * in eighths that can be left out. Use the region that reaches furthest, until everything is covered. */
static void allow(uint32_t start, uint32_t end, uint32_t access)
{
    static const uint32_t attributes[] = {
        (1u << 28) | (2u << 24) | (1u << 19) | (3u << 16), /* read only, not executed; normal memory, write-back */
        (1u << 28) | (3u << 24) | (1u << 19) | (3u << 16), /* and written */
        (2u << 24) | (1u << 19) | (3u << 16),              /* read and executed */
    };
    while (start < end) {
        uint32_t order = 8, reach = start;
        for (uint32_t next = 8; next <= 32u; ++next) {
            const uint32_t eighth = 1u << (next - 3u);
            if ((start & (eighth - 1u)) != 0 || eighth > end - start) {
                break;
            }
            const uint32_t window = start | (uint32_t)((1ull << next) - 1u); /* its last byte */
            const uint32_t most = window < end - 1u ? window + 1u : end & ~(eighth - 1u);
            if (most > reach) {
                reach = most;
                order = next;
            }
        }
        const uint32_t eighth = order - 3u;
        const uint32_t first = start >> eighth & 7u, last = (reach - 1u) >> eighth & 7u;
        const uint32_t used = (0xFFu << first) & (0xFFu >> (7u - last));
        set_region(order < 32u ? start >> order << order : 0u,
                   attributes[access] | (~used & 0xFFu) << 8 | (order - 1u) << 1 | 1u);
        start = reach;
    }
}
{% else %}
#define LEAST 32u
#define MPU_MAIR0 REGISTER(0xE000EDC0u)

static void allow(uint32_t start, uint32_t end, uint32_t access)
{
    static const uint32_t attributes[] = {7u, 3u, 6u}; /* read only, not executed; and written; read and executed */
    if (start < end) {
        MPU_MAIR0 = 0x04FFu; /* 0: normal memory, write-back; 1: device, for guard.c */
        set_region(start | attributes[access], (end - LEAST) | 1u);
    }
}
{% endif %}

static void allow_areas(const struct mt_protect_area *areas, uint32_t count, uint32_t access)
{
{% if cookiecutter.protect.unit == "pmsav7" %}
    uint32_t least = UINT32_MAX, most = 0;
{% endif %}
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t start = (uint32_t)areas[i].start & ~(LEAST - 1u);
        uint32_t end = ((uint32_t)areas[i].end + LEAST - 1u) & ~(LEAST - 1u);
        if (areas[i].start == areas[i].end || areas[i].access != access) {
            continue;
        }
{% if cookiecutter.protect.unit == "pmsav7" %}
        if (areas != flash && start >= (uint32_t)flash[0].start && end <= (uint32_t)flash[0].end) {
            continue; /* all of that memory is read and executed */
        }
        if (width == 2u && access == MT_PROTECT_READ) {
            least = start < least ? start : least;
            most = end > most ? end : most;
            continue;
        }
        if (width > 0 && access != MT_PROTECT_WRITE) {
            widen(&start, &end);
        }
{% endif %}
        allow(start, end, access);
    }
{% if cookiecutter.protect.unit == "pmsav7" %}
    if (least < most) {
        widen(&least, &most);
        allow(least, most, access);
    }
{% endif %}
}

/* Set up the regions; the MPU stays off if there are too few. Where two overlap, the later one applies. */
static int32_t set_up_regions(const struct mt_protect_area *areas, uint8_t count, uint32_t stack_end)
{
    const uint32_t most = MPU_TYPE >> 8 & 0xFFu;
    __asm__ volatile("dmb" ::: "memory");
    MPU_CTRL = 0;
    regions = 0;
    allow_areas(areas, count, MT_PROTECT_READ);
    allow_areas(areas, count, MT_PROTECT_EXECUTE);
    allow_areas(flash, sizeof flash / sizeof flash[0], MT_PROTECT_READ);
    allow_areas(flash, sizeof flash / sizeof flash[0], MT_PROTECT_EXECUTE);
    allow((uint32_t)mt_stack_low, stack_end, MT_PROTECT_WRITE);
    allow_areas(areas, count, MT_PROTECT_WRITE);
    if (regions > most) {
        return MT_NOT_SUPPORTED;
    }
    for (uint32_t i = regions; i < most; ++i) {
        MPU_RNR = i;
        MPU_ATTRIBUTES = 0;
    }
    MPU_CTRL = MPU_ON;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    return MT_OK;
}

/* Save the caller's registers, call the function unprivileged on the stack below `stack_end`, and go to the SVC
 * handler, which leaves by leave(). Returns the function's result. */
__attribute__((naked, noipa)) static int32_t enter(mt_protect_function *function, uintptr_t first, uintptr_t second,
                                                      uint32_t stack_end, uint32_t *volatile *saved)
{
    (void)function;
    (void)first;
    (void)second;
    (void)stack_end;
    (void)saved;
    __asm__ volatile("ldr r12, [sp]\n\t"
                     "push {r4-r11, r12, lr}\n\t"
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
                     "vmrs r4, fpscr\n\t"
                     "push {r4, r5}\n\t"
                     "vpush {d8-d15}\n\t"
#endif
                     "str sp, [r12]\n\t"
                     "mov sp, r3\n\t"
                     "mov r4, r0\n\t"
                     "mov r0, r1\n\t"
                     "mov r1, r2\n\t"
                     "mrs r2, control\n\t"
                     "orr r2, r2, #1\n\t"
                     "msr control, r2\n\t"
                     "isb\n\t"
                     "blx r4\n\t"
                     "svc #0");
}

/* Where the handler returns to: privileged, with the registers saved by enter(), and the result in r0. */
__attribute__((naked, noipa, used)) static void leave(void)
{
    __asm__ volatile(
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
        "vpop {d8-d15}\n\t"
        "pop {r4, r5}\n\t"
        "vmsr fpscr, r4\n\t"
#endif
        "pop {r4-r11, r12, pc}");
}

int protect_is_closed(void)
{
    return context != 0;
}

uint32_t protect_leave(uint32_t exc_return, int32_t result, const struct protect_fault *found)
{
    uint32_t *const frame = context - FRAME_WORDS;
    uint32_t control;
    outcome = found != 0 ? MT_STOPPED : MT_OK;
    if (found != 0) {
        fault = *found;
    }
    for (uint32_t i = 0; i < FRAME_WORDS; ++i) {
        frame[i] = 0;
    }
    frame[0] = (uint32_t)result;
    frame[6] = (uint32_t)leave & ~1u;
    frame[7] = XPSR_THUMB;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    FPCCR &= ~FPCCR_LSPACT; /* the model's FPU registers are no longer needed */
#endif
    context = 0;
    __asm__ volatile("mrs %0, control" : "=r"(control));
    __asm__ volatile("msr psp, %0\n\t"
                     "msr control, %1\n\t"
                     "isb"
                     :
                     : "r"(frame), "r"(control & ~1u)
                     : "memory");
    return exc_return | EXC_RETURN_BASIC;
}

int32_t mt_protect_call(const struct mt_protect_area *areas, uint8_t count, mt_protect_function *function,
                        uintptr_t first, uintptr_t second, int32_t *result)
{
    uint32_t sp;
    __asm__ volatile("mov %0, sp" : "=r"(sp));
{% if is_zephyr | default(false) %}
    guard_close();
{% endif %}
    uint32_t stack_end = (sp - SAVED_BYTES - 4u * FRAME_WORDS) & ~(STACK_GRANULE - 1u);
    int32_t status = MT_NOT_SUPPORTED;
{% if cookiecutter.protect.unit == "pmsav7" %}
    for (width = 0; width <= 2u && status != MT_OK && stack_end > (uint32_t)mt_stack_low; ++width) {
        status = set_up_regions(areas, count, stack_end);
        stack_end = status == MT_OK ? stack_end : stack_end & ~(2u * STACK_GRANULE - 1u); /* then one region is enough */
    }
{% else %}
    if (stack_end > (uint32_t)mt_stack_low) {
        status = set_up_regions(areas, count, stack_end);
    }
{% endif %}
    if (status == MT_OK) {
        *result = enter(function, first, second, stack_end, &context);
        status = outcome;
    }
    guard_allow_memories();
    if (status == MT_STOPPED) {
        mt_server_fault((uint8_t)(fault.kind | MT_FAULT_SURVIVED), fault.machine, fault.registers, fault.count);
    }
    return status;
}
