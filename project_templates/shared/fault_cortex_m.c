/* A fault's kind and registers. Armv7-M ARM, B3.2; Armv8-M ARM. */
#define SHCSR REGISTER(0xE000ED24u)
#define CFSR REGISTER(0xE000ED28u)
#define HFSR REGISTER(0xE000ED2Cu)
#define MMFAR REGISTER(0xE000ED34u)
#define BFAR REGISTER(0xE000ED38u)

#define SHCSR_PENDED (15u << 12) /* SVC and the faults */
#define CFSR_MMARVALID (1u << 7)
#define CFSR_UNSTACKED ((1u << 4) | (1u << 12)) /* MSTKERR, STKERR: the frame could not be written */
#define CFSR_STKOF (1u << 20)
#define EXC_RETURN_NO_CALLEE 32u
#define PUSHED_BYTES 256u /* the most that one instruction stores below the stack pointer */

extern uint8_t mt_stack_low[], mt_stack_top[];

static uint8_t kind_of(int is_watchdog, const uint32_t *frame, uint32_t sp)
{
    const uint32_t low = (uint32_t)mt_stack_low;
    if (is_watchdog) {
        return MT_FAULT_WATCHDOG;
    }
#if HAS_FAULT_STATUS
    const uint32_t status = CFSR;
    const int is_below = (status & CFSR_MMARVALID) != 0 && MMFAR < low && MMFAR + PUSHED_BYTES >= sp;
    if (is_below || (status & CFSR_STKOF) != 0) {
        return MT_FAULT_STACK;
    }
#endif
    return (uint32_t)frame < low || sp < low ? MT_FAULT_STACK : MT_FAULT_EXCEPTION;
}

/* Set the registers of mt_server_fault. */
static void read_registers(uint32_t *registers, const uint32_t *frame, uint32_t exc_return)
{
    const uint32_t low = (uint32_t)mt_stack_low;
    frame += (exc_return & EXC_RETURN_NO_CALLEE) != 0 ? 0 : 10; /* the integrity signature of Armv8-M, and r4 to r11 */
    int is_stacked = (uint32_t)frame > low && (uint32_t)(frame + 8) <= (uint32_t)mt_stack_top;
    for (uint32_t i = 0; i < 9; ++i) {
        registers[i] = 0;
    }
#if HAS_FAULT_STATUS
    is_stacked = is_stacked && (CFSR & CFSR_UNSTACKED) == 0;
    registers[4] = CFSR;
    registers[5] = HFSR;
    registers[6] = MMFAR;
    registers[7] = BFAR;
#endif
    registers[3] = (uint32_t)frame;
    if (is_stacked) {
        registers[0] = frame[6];
        registers[1] = frame[5];
        registers[2] = frame[7];
        const uint32_t words = ((exc_return & 16u) != 0 ? 8u : 26u) + (frame[7] >> 9 & 1u); /* the FPU's, alignment */
        registers[3] += 4u * words;
    }
    registers[8] = low;
}
{% if cookiecutter.protect %}

/* End a model that runs under memory protection with the fault in the registers. */
static uint32_t end_model(int is_watchdog, const uint32_t *frame, uint32_t exc_return)
{
    struct protect_fault found = {0, MT_MACHINE_CORTEX_M, 9, {0}};
    read_registers(found.registers, frame, exc_return);
    found.kind = kind_of(is_watchdog, frame, found.registers[3]);
    CFSR = CFSR; /* ones are cleared */
    HFSR = HFSR;
    SHCSR &= ~SHCSR_PENDED; /* raised when the stack had no space for the frame: that fault came first */
    return protect_leave(exc_return, MT_STOPPED, &found);
}
{% endif %}
