/* The guard on Zephyr, whose kernel catches faults and hands them to k_sys_fatal_error_handler. A timer of the kernel is
 * the watchdog; in its simulator, time stands still while the model runs, and only the host notices. */
#include "mtool.h"

#include <zephyr/fatal.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/reboot.h>
{% if cookiecutter.protect %}

#include "protect.h"
{% endif %}

#if defined(CONFIG_CPU_CORTEX_M)
#include <cmsis_core.h>
#elif defined(CONFIG_RISCV)
#include <zephyr/arch/riscv/csr.h>
#endif


#ifdef CONFIG_CPU_CORTEX_M_HAS_PROGRAMMABLE_FAULT_PRIOS
/* The kernel has cleared CFSR by now; its reason says which bit it saw. */
static uint32_t status_of(unsigned int reason)
{
    static const struct {
        unsigned int reason;
        uint32_t status;
    } bits[] = {
        {K_ERR_ARM_MEM_STACKING, SCB_CFSR_MSTKERR_Msk},
        {K_ERR_ARM_MEM_UNSTACKING, SCB_CFSR_MUNSTKERR_Msk},
        {K_ERR_ARM_MEM_DATA_ACCESS, SCB_CFSR_DACCVIOL_Msk | SCB_CFSR_MMARVALID_Msk},
        {K_ERR_ARM_MEM_INSTRUCTION_ACCESS, SCB_CFSR_IACCVIOL_Msk},
        {K_ERR_ARM_BUS_STACKING, SCB_CFSR_STKERR_Msk},
        {K_ERR_ARM_BUS_UNSTACKING, SCB_CFSR_UNSTKERR_Msk},
        {K_ERR_ARM_BUS_PRECISE_DATA_BUS, SCB_CFSR_PRECISERR_Msk | SCB_CFSR_BFARVALID_Msk},
        {K_ERR_ARM_BUS_IMPRECISE_DATA_BUS, SCB_CFSR_IMPRECISERR_Msk},
        {K_ERR_ARM_BUS_INSTRUCTION_BUS, SCB_CFSR_IBUSERR_Msk},
        {K_ERR_ARM_USAGE_DIV_0, SCB_CFSR_DIVBYZERO_Msk},
        {K_ERR_ARM_USAGE_UNALIGNED_ACCESS, SCB_CFSR_UNALIGNED_Msk},
        {K_ERR_ARM_USAGE_NO_COPROCESSOR, SCB_CFSR_NOCP_Msk},
        {K_ERR_ARM_USAGE_ILLEGAL_EXC_RETURN, SCB_CFSR_INVPC_Msk},
        {K_ERR_ARM_USAGE_ILLEGAL_EPSR, SCB_CFSR_INVSTATE_Msk},
        {K_ERR_ARM_USAGE_UNDEFINED_INSTRUCTION, SCB_CFSR_UNDEFINSTR_Msk},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bits); ++i) {
        if (bits[i].reason == reason) {
            return bits[i].status;
        }
    }
    return 0;
}
#endif

static void report(uint8_t kind, unsigned int reason, const struct arch_esf *frame)
{
#if defined(CONFIG_CPU_CORTEX_M)
    uint32_t registers[9] = {0, 0, 0, __get_PSP(), 0, 0, 0, 0, (uint32_t)k_current_get()->stack_info.start};
    if (frame != NULL && kind != MT_FAULT_STACK) { /* a full stack has no room for the frame */
        registers[0] = frame->basic.pc;
        registers[1] = frame->basic.lr;
        registers[2] = frame->basic.xpsr;
        registers[3] += sizeof frame->basic;
    }
#ifdef CONFIG_CPU_CORTEX_M_HAS_PROGRAMMABLE_FAULT_PRIOS
    registers[4] = status_of(reason);
    registers[5] = SCB->HFSR;
    registers[6] = SCB->MMFAR;
    registers[7] = SCB->BFAR;
#endif
    mt_server_fault(kind, MT_MACHINE_CORTEX_M, registers, ARRAY_SIZE(registers));
#elif defined(CONFIG_RISCV) && !defined(CONFIG_64BIT)
    uint32_t registers[7] = {0, 0, 0, 0, csr_read(mcause), csr_read(mtval),
                             (uint32_t)k_current_get()->stack_info.start};
    if (frame != NULL) {
        registers[0] = (uint32_t)frame->mepc;
        registers[1] = (uint32_t)frame->ra;
        registers[2] = (uint32_t)frame->mstatus;
    }
    mt_server_fault(kind, MT_MACHINE_RISCV, registers, ARRAY_SIZE(registers));
#else
    ARG_UNUSED(frame);
    mt_server_fault(kind, MT_MACHINE_NONE, NULL, 0);
#endif
    ARG_UNUSED(reason);
}

{% if cookiecutter.options.channel == "rtt" %}
void mt_rtt_drain(void); /* port.c */

{% endif %}
static void restart(void)
{
{% if cookiecutter.options.channel == "rtt" %}
    mt_rtt_drain();
{% endif %}
    sys_reboot(SYS_REBOOT_COLD);
}

/* In place of the kernel's, which halts. */
void k_sys_fatal_error_handler(unsigned int reason, const struct arch_esf *frame)
{
    const bool is_own = reason == K_ERR_KERNEL_OOPS || reason == K_ERR_KERNEL_PANIC; /* assert() ends so too */
    report(reason == K_ERR_STACK_CHK_FAIL ? MT_FAULT_STACK : (is_own ? MT_FAULT_ASSERTION : MT_FAULT_EXCEPTION), reason,
         frame);
    restart();
}

static void expired(struct k_timer *timer)
{
    ARG_UNUSED(timer);
{% if cookiecutter.protect %}
    if (protect_expire()) {
        return;
    }
{% endif %}
    mt_server_fault(MT_FAULT_WATCHDOG, MT_MACHINE_NONE, NULL, 0);
    restart();
}

static K_TIMER_DEFINE(watchdog, expired, NULL);

void mt_guard_init(void)
{
}

void mt_guard_watch(uint32_t limit_ms)
{
    if (limit_ms > 0) {
        k_timer_start(&watchdog, K_MSEC(limit_ms), K_NO_WAIT);
    } else {
        k_timer_stop(&watchdog);
    }
}

void mt_port_abort(int32_t status)
{
    if (status != MT_OK) {
        mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_NONE, NULL, 0);
    }
    restart();
}
