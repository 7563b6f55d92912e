{% from "shared/protect/pmp.jinja" import first_entry with context %}
/* Memory protection on a RISC-V core: the model runs in user mode with the PMP entries before guard.c's, and returns by
 * an environment call or by a fault. Registers: RISC-V Privileged Architecture 1.12, 3.1 and 3.7. */
#include "mtool.h"

#include "protect.h"

__asm__(".option arch, +zicsr"); /* see startup.c */

#if defined(__riscv_float_abi_single) || defined(__riscv_float_abi_double)
#error "enter() saves no registers of an FPU"
#endif

#define OFF 0u
#define MAY_READ 1u
#define MAY_WRITE 2u
#define MAY_EXECUTE 4u
#define TO_HERE 8u  /* from the address of the entry before */
#define NAPOT 0x18u /* a power of two, aligned to its size */
#define ENTRIES {{ first_entry }}u /* before guard.c's */

#define SAVED_BYTES 64u
#define STACK_GRANULE {{ cookiecutter.protect.stack_granule }}u

#define WRITE_CSR(name, value) __asm__ volatile("csrw " #name ", %0" : : "r"(value) : "memory")

extern uint8_t mt_stack_low[];

{% include "shared/protect/flash.c" %}

static uint32_t addresses[ENTRIES];
static uint8_t modes[ENTRIES];
static uint32_t used;              /* more than ENTRIES: there are too few */
static uint32_t *volatile context; /* saved by enter(); NULL: no protected model is running */
static uint32_t mstatus;
static struct protect_fault fault;
static volatile int32_t outcome;

static void add(uint32_t address, uint8_t mode)
{
    if (used < ENTRIES) {
        addresses[used] = address;
        modes[used] = mode;
    }
    ++used;
}

/* An area adjacent to the previous one needs one entry, others need two. */
static void allow(uint32_t start, uint32_t end, uint32_t access)
{
    static const uint8_t accesses[] = {MAY_READ, MAY_READ | MAY_WRITE, MAY_READ | MAY_EXECUTE};
    if (start >= end) {
        return;
    }
    if (used == 0 || used > ENTRIES || modes[used - 1u] < TO_HERE || modes[used - 1u] >= NAPOT ||
        addresses[used - 1u] != start >> 2) {
        add(start >> 2, OFF);
    }
    add(end >> 2, (uint8_t)(TO_HERE | accesses[access]));
}

/* Areas in order, so that neighbours share an entry; if `is_wide`, without those that are only read. */
static void allow_areas(const struct mt_protect_area *areas, uint32_t count, int is_wide)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (!is_wide || areas[i].access != MT_PROTECT_READ) {
            allow((uint32_t)areas[i].start & ~3u, ((uint32_t)areas[i].end + 3u) & ~3u, areas[i].access);
        }
    }
}

/* From the first area that is only read to the last. */
static void span(const struct mt_protect_area *areas, uint32_t count, uint32_t *start, uint32_t *end)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (areas[i].access == MT_PROTECT_READ && areas[i].start != areas[i].end) {
            *start = (uint32_t)areas[i].start < *start ? (uint32_t)areas[i].start & ~3u : *start;
            *end = (uint32_t)areas[i].end > *end ? ((uint32_t)areas[i].end + 3u) & ~3u : *end;
        }
    }
}

static void write_entries(void)
{
{% for number in range(first_entry) %}
    WRITE_CSR(pmpaddr{{ number }}, addresses[{{ number }}]);
{% endfor %}
{# The bytes of guard.c's entries are locked. #}
{% for word in range((first_entry + 3) // 4) %}
{% set bytes = namespace(text=[]) %}
{% for byte in range(4) if 4 * word + byte < first_entry %}
{% set _ = bytes.text.append("(uint32_t)modes[%d] << %d" % (4 * word + byte, 8 * byte)) %}
{% endfor %}
    WRITE_CSR(pmpcfg{{ word }}, {{ bytes.text | join(" | ") }});
{% endfor %}
}

/* Code and constants, the stack, and the areas; nothing else. The first matching entry applies. If there are few
 * entries, memory between the areas to read can be read too; nothing else can be written. */
static int32_t set_up_regions(const struct mt_protect_area *areas, uint8_t count, uint32_t stack_end)
{
    const uint32_t flash_count = sizeof flash / sizeof flash[0];
    used = ENTRIES + 1u;
    for (int is_wide = 0; is_wide < 2 && used > ENTRIES; ++is_wide) {
        used = 0;
        allow((uint32_t)mt_stack_low, stack_end, MT_PROTECT_WRITE);
        allow_areas(areas, count, is_wide);
        allow_areas(flash, flash_count, is_wide);
        if (is_wide) {
            uint32_t start = UINT32_MAX, end = 0;
            span(areas, count, &start, &end);
            span(flash, flash_count, &start, &end);
            allow(start, end, MT_PROTECT_READ);
        }
        add(UINT32_MAX, NAPOT);
    }
    if (used > ENTRIES) {
        return MT_NOT_SUPPORTED;
    }
    for (uint32_t i = used; i < ENTRIES; ++i) {
        modes[i] = OFF;
    }
    write_entries();
    return MT_OK;
}

static void clear_regions(void)
{
    for (uint32_t i = 0; i < ENTRIES; ++i) {
        modes[i] = OFF;
    }
    write_entries();
}

/* Save the caller's registers, and call the function in user mode on the stack below `stack_end`. It returns to an
 * environment call, whose trap leaves by leave(). Returns the function's result. */
__attribute__((naked, noipa)) static int32_t enter(mt_protect_function *function, uintptr_t first, uintptr_t second,
                                                   uint32_t stack_end, uint32_t *volatile *saved)
{
    (void)function;
    (void)first;
    (void)second;
    (void)stack_end;
    (void)saved;
    __asm__ volatile("addi sp, sp, -64\n\t"
                     "sw ra, 0(sp)\n\t"
                     "sw gp, 4(sp)\n\t"
                     "sw tp, 8(sp)\n\t"
                     "sw s0, 12(sp)\n\t"
                     "sw s1, 16(sp)\n\t"
                     "sw s2, 20(sp)\n\t"
                     "sw s3, 24(sp)\n\t"
                     "sw s4, 28(sp)\n\t"
                     "sw s5, 32(sp)\n\t"
                     "sw s6, 36(sp)\n\t"
                     "sw s7, 40(sp)\n\t"
                     "sw s8, 44(sp)\n\t"
                     "sw s9, 48(sp)\n\t"
                     "sw s10, 52(sp)\n\t"
                     "sw s11, 56(sp)\n\t"
                     "sw sp, 0(a4)\n\t"
                     "mv sp, a3\n\t"
                     "csrw mepc, a0\n\t"
                     "li t0, 0x1800\n\t" /* mstatus.MPP = 0: user mode */
                     "csrc mstatus, t0\n\t"
                     "mv a0, a1\n\t"
                     "mv a1, a2\n\t"
                     "la ra, 1f\n\t"
                     "mret\n\t"
                     "1: ecall");
}

__attribute__((naked, noipa, noreturn)) static void leave(uint32_t *saved, int32_t result)
{
    (void)saved;
    (void)result;
    __asm__ volatile("mv sp, a0\n\t"
                     "mv a0, a1\n\t"
                     "lw ra, 0(sp)\n\t"
                     "lw gp, 4(sp)\n\t"
                     "lw tp, 8(sp)\n\t"
                     "lw s0, 12(sp)\n\t"
                     "lw s1, 16(sp)\n\t"
                     "lw s2, 20(sp)\n\t"
                     "lw s3, 24(sp)\n\t"
                     "lw s4, 28(sp)\n\t"
                     "lw s5, 32(sp)\n\t"
                     "lw s6, 36(sp)\n\t"
                     "lw s7, 40(sp)\n\t"
                     "lw s8, 44(sp)\n\t"
                     "lw s9, 48(sp)\n\t"
                     "lw s10, 52(sp)\n\t"
                     "lw s11, 56(sp)\n\t"
                     "addi sp, sp, 64\n\t"
                     "ret");
}

int protect_is_closed(void)
{
    return context != 0;
}

void protect_leave(int32_t result, const struct protect_fault *found)
{
    uint32_t *const saved = context;
    outcome = found != 0 ? MT_STOPPED : MT_OK;
    if (found != 0) {
        fault = *found;
    }
    context = 0;
    leave(saved, result);
}

int32_t mt_protect_call(const struct mt_protect_area *areas, uint8_t count, mt_protect_function *function,
                        uintptr_t first, uintptr_t second, int32_t *result)
{
    uint32_t sp;
    __asm__ volatile("mv %0, sp" : "=r"(sp));
    const uint32_t stack_end = (sp - SAVED_BYTES) & ~(STACK_GRANULE - 1u);
    if (stack_end <= (uint32_t)mt_stack_low) {
        return MT_NOT_SUPPORTED;
    }
    const int32_t status = set_up_regions(areas, count, stack_end);
    if (status != MT_OK) {
        return status;
    }
    __asm__ volatile("csrr %0, mstatus" : "=r"(mstatus));
    *result = enter(function, first, second, stack_end, &context);
    WRITE_CSR(mstatus, mstatus);
    clear_regions();
    if (outcome == MT_STOPPED) {
        mt_server_fault((uint8_t)(fault.kind | MT_FAULT_SURVIVED), fault.machine, fault.registers, fault.count);
    }
    return outcome;
}
