/* Internal to mtool: applications include mtool.h. */
/* Copies with Helium. Plain C where mt_mve.h is. */
#ifndef MT_MVE_MOVE_H
#define MT_MVE_MOVE_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* memmove, fast if the target is below the source or does not overlap it. */
MT_MVE_INLINE void mt_mve_move(void *output, const void *input, uint32_t bytes)
{
#ifdef MT_MVE_ASM
    if ((uintptr_t)output > (uintptr_t)input && (uintptr_t)output - (uintptr_t)input < bytes)
        memmove(output, input, bytes);
    else
        __asm__ volatile("wlstp.8 lr, %[n], 2f\n\t"
                         "1:\n\t"
                         "vldrb.u8 q0, [%[i]], #16\n\t"
                         "vstrb.8 q0, [%[o]], #16\n\t"
                         "letp lr, 1b\n\t"
                         "2:"
                         : [i] "+&r"(input), [o] "+&r"(output)
                         : [n] "r"(bytes)
                         : "lr", "q0", "cc", "memory");
#else
    memmove(output, input, bytes);
#endif
}

#ifdef __cplusplus
}
#endif

#endif
