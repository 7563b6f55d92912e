/* Modules of native machine code. */
#include "mt_module.h"
#include "mtool.h"

#if defined(__thumb__)
#define THUMB 1u
#else
#define THUMB 0u
#endif

/* The core's extensions that the code may need, and how floats are passed. */
uint32_t mt_module_machine(void)
{
    uint32_t machine = 0;
#if defined(__ARM_ARCH_6M__)
    machine |= MT_MACHINE_ARMV6M;
#elif defined(__ARM_ARCH_7M__)
    machine |= MT_MACHINE_ARMV7M;
#elif defined(__ARM_ARCH_7EM__)
    machine |= MT_MACHINE_ARMV7EM;
#elif defined(__ARM_ARCH_8M_BASE__)
    machine |= MT_MACHINE_ARMV8M_BASE;
#elif defined(__ARM_ARCH_8M_MAIN__)
    machine |= MT_MACHINE_ARMV8M_MAIN;
#elif defined(__ARM_ARCH_8_1M_MAIN__)
    machine |= MT_MACHINE_ARMV81M_MAIN;
#elif defined(__riscv) && __riscv_xlen == 32
    machine |= MT_MACHINE_RV32;
#else
    return MT_MACHINE_ANY; /* an unknown core: no native module is for it */
#endif
#if defined(__ARM_PCS_VFP) || defined(__riscv_float_abi_single) || defined(__riscv_float_abi_double)
    machine |= MT_MACHINE_HARD_FLOAT;
#endif
#if (defined(__ARM_FP) && (__ARM_FP & 4)) || defined(__riscv_flen)
    machine |= MT_MACHINE_FPU;
#endif
#if (defined(__ARM_FP) && (__ARM_FP & 8)) || (defined(__riscv_flen) && __riscv_flen >= 64)
    machine |= MT_MACHINE_DOUBLE;
#endif
#if defined(__ARM_FEATURE_DSP)
    machine |= MT_MACHINE_DSP;
#endif
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
    machine |= MT_MACHINE_MVE;
#endif
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    machine |= MT_MACHINE_MVE_FLOAT;
#endif
#if defined(__riscv_mul)
    machine |= MT_MACHINE_RV_M;
#endif
#if defined(__riscv_compressed)
    machine |= MT_MACHINE_RV_C;
#endif
#if defined(__riscv_vector) || defined(MT_RVV)
    machine |= MT_MACHINE_RV_VECTOR;
#endif
    return machine;
}

static int32_t check(const struct mt_module_view *view)
{
    return view->machine != MT_MACHINE_ANY && view->entry % 2u == 0 ? MT_OK : MT_BAD_MODULE;
}

static int32_t call(const struct mt_module *module, uint32_t number)
{
    typedef int32_t entry(void *arena, uint32_t number, void (*const *table)(void));
    const uintptr_t address = (uintptr_t)(module->view.image + module->view.entry) | THUMB;
    return ((entry *)address)(module->model.arena, number, module->table);
}

const struct mt_module_kind mt_module_native = {MT_MODULE_NATIVE, check, call};
