/* The guard on a RISC-V core in machine mode: traps have a stack of their own; the PMP lets through only what the board
 * has; the machine timer is the watchdog. Registers are those of the RISC-V Privileged Architecture 1.12, 3.1 and 3.7. */
#include "mtool.h"

#include <stddef.h>
{% if cookiecutter.protect %}
#include <string.h>
{% endif %}

#include "platform.h"
{% if cookiecutter.protect %}
#include "protect.h"
{% endif %}

__asm__(".option arch, +zicsr"); /* see startup.c */

#define CLINT {{ "0x%08Xu" % cookiecutter.board.port.clint }} /* the core-local interruptor: mtimecmp and mtime */
#define MTIMECMP ((volatile uint32_t *)(CLINT + 0x4000u))
#define MTIME ((volatile uint32_t *)(CLINT + 0xBFF8u))
#define MTIME_HZ {{ cookiecutter.board.port.mtime_hz }}u
#define MIE_MTIE 0x80u
#define MSTATUS_MIE 8u
#define IS_INTERRUPT 0x80000000u
#define LOAD_FAULT 5u
#define STORE_FAULT 7u
{% if cookiecutter.protect %}
#define USER_CALL 8u
#define MSTATUS_MPP 0x1800u
{% endif %}

#define WRITE_CSR(name, value) __asm__ volatile("csrw " #name ", %0" : : "r"(value) : "memory")

extern uint8_t mt_stack_low[];
void mt_guard_trap(uint32_t ra, uint32_t sp{{ ", int32_t first" if cookiecutter.protect }});
void __assert_func(const char *file, int line, const char *function, const char *expression);

static uint64_t trap_stack[64];

{# A pair of entries a memory (from, to), and a last one for the rest. Locked ones hold in machine mode too, until a reset. #}
{% set ranges = namespace(entries=[]) %}
{% for name, memory in cookiecutter.board.memories.items() %}
{% set is_read_only = memory.holds and memory.holds | reject("in", ["code", "weights", "hot_code"]) | list | length == 0 %}
{% set has_modules = cookiecutter.modules and name == cookiecutter.modules.memory %}
{% set mode = 0x8D if is_read_only else 0x8F if has_modules else 0x8B %}
{% set _ = ranges.entries.append((name, memory.base, memory.base + memory.size, mode)) %}
{% endfor %}
{% set _ = ranges.entries.append(("CLINT", cookiecutter.board.port.clint, cookiecutter.board.port.clint + 0x10000, 0x8B)) %}
{% set modes = namespace(bytes=[]) %}
{% for entry in ranges.entries %}
{% set _ = modes.bytes.extend([0, entry[3]]) %}
{% endfor %}
{% set _ = modes.bytes.append(0x98) %}
{% from "shared/protect/pmp.jinja" import entries, first_entry with context %}
/* The board's memories, from its entry. Code is read-only, the rest is not executable{{ ", except the memory of
 * modules" if cookiecutter.modules }}; all entries are locked. */
static void allow_memories(void)
{
{% if cookiecutter.protect %}
{% set words = namespace(bytes=[0] * first_entry) %}
{% for name, address, mode in entries %}
    WRITE_CSR(pmpaddr{{ first_entry + loop.index0 }}, {{ "0x%08Xu" % address }}); /* {{ name }} */
{% set _ = words.bytes.append(mode) %}
{% endfor %}
{% for word in words.bytes | batch(4, 0) %}
    WRITE_CSR(pmpcfg{{ loop.index0 }}, {{ "0x%02X%02X%02X%02Xu" % (word[3], word[2], word[1], word[0]) }});
{% endfor %}
{% else %}
{% for name, base, end, mode in ranges.entries %}
    WRITE_CSR(pmpaddr{{ 2 * loop.index0 }}, {{ "0x%08Xu" % (base // 4) }}); /* {{ name }} */
    WRITE_CSR(pmpaddr{{ 2 * loop.index0 + 1 }}, {{ "0x%08Xu" % (end // 4) }});
{% endfor %}
    WRITE_CSR(pmpaddr{{ modes.bytes | length - 1 }}, 0xFFFFFFFFu); /* all else */
{% for word in modes.bytes | batch(4, 0) %}
    WRITE_CSR(pmpcfg{{ loop.index0 }}, {{ "0x%02X%02X%02X%02Xu" % (word[3], word[2], word[1], word[0]) }});
{% endfor %}
{% endif %}
}

__attribute__((naked, aligned(4))) static void enter_trap(void)
{
    __asm__ volatile("csrrw sp, mscratch, sp\n\t"
{% if cookiecutter.protect %}
                     "mv a2, a0\n\t"
{% endif %}
                     "mv a0, ra\n\t"
                     "csrr a1, mscratch\n\t"
                     "la t0, mt_guard_trap\n\t"
                     "jr t0");
}

void mt_guard_init(void)
{
    WRITE_CSR(mscratch, trap_stack + sizeof trap_stack / sizeof trap_stack[0]);
    WRITE_CSR(mtvec, enter_trap);
    allow_memories();
}

void mt_guard_watch(uint32_t limit_ms)
{
    __asm__ volatile("csrc mstatus, %0" : : "r"(MSTATUS_MIE));
    if (limit_ms == 0) {
{% if cookiecutter.protect %}
        WRITE_CSR(mie, 0u); /* in user mode, machine interrupts are enabled whatever mstatus contains */
{% endif %}
        return;
    }
    uint32_t high, low;
    do {
        high = MTIME[1];
        low = MTIME[0];
    } while (high != MTIME[1]);
    const uint64_t end = (((uint64_t)high << 32) | low) + (uint64_t)limit_ms * (MTIME_HZ / 1000u);
    MTIMECMP[0] = UINT32_MAX; /* in this order no time in between is a match */
    MTIMECMP[1] = (uint32_t)(end >> 32);
    MTIMECMP[0] = (uint32_t)end;
    WRITE_CSR(mie, MIE_MTIE);
    __asm__ volatile("csrs mstatus, %0" : : "r"(MSTATUS_MIE));
}

{% if cookiecutter.protect %}
/* Every trap ends up here, with ra, sp and a0 unchanged: report it, and end the model if it is protected, else the
 * firmware. */
{% else %}
/* Every trap ends up here, with ra and sp unchanged: report it and end the firmware. */
{% endif %}
void mt_guard_trap(uint32_t ra, uint32_t sp{{ ", int32_t first" if cookiecutter.protect }})
{
    const uint32_t low = (uint32_t)mt_stack_low;
    uint32_t registers[7] = {0, ra, 0, sp, 0, 0, low};
    uint8_t kind = MT_FAULT_EXCEPTION;
    __asm__ volatile("csrr %0, mepc\n\tcsrr %1, mstatus\n\tcsrr %2, mcause\n\tcsrr %3, mtval"
                     : "=&r"(registers[0]), "=&r"(registers[2]), "=&r"(registers[4]), "=&r"(registers[5]));
    const uint32_t cause = registers[4];
    if ((cause & IS_INTERRUPT) != 0) {
        kind = MT_FAULT_WATCHDOG; /* the only interrupt that is enabled */
    } else if (sp < low && (cause == LOAD_FAULT || cause == STORE_FAULT)) {
        kind = MT_FAULT_STACK;
    }
{% if cookiecutter.protect %}
    if (protect_is_closed() && (registers[2] & MSTATUS_MPP) == 0) {
        struct protect_fault found = {kind, MT_MACHINE_RISCV, 7, {0}};
        memcpy(found.registers, registers, sizeof registers);
        WRITE_CSR(mscratch, trap_stack + sizeof trap_stack / sizeof trap_stack[0]);
        if (cause == USER_CALL) {
            protect_leave(first, NULL);
        }
        WRITE_CSR(mie, 0u);
        protect_leave(MT_STOPPED, &found);
    }
{% endif %}
    mt_server_fault(kind, MT_MACHINE_RISCV, registers, 7);
    platform_exit(PLATFORM_FAULT + (int32_t)(cause & 31u));
}

{% include "shared/guard_abort.c" %}

/* picolibc's assert() ends here. */
void __assert_func(const char *file, int line, const char *function, const char *expression)
{
    uint32_t registers[7] = {0};
    (void)file;
    (void)line;
    (void)function;
    mt_server_log(expression);
    registers[0] = (uint32_t)__builtin_return_address(0) - 2u; /* within the call */
    registers[3] = (uint32_t)__builtin_frame_address(0);
    registers[6] = (uint32_t)mt_stack_low;
    mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_RISCV, registers, 7);
    platform_exit(PLATFORM_FAULT);
}
