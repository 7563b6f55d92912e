/* Internal to mtool: applications include mtool.h. */
/* Copies of many words with an instruction. Plain C where mt_dsp.h is. */
#ifndef MT_DSP_MOVE_H
#define MT_DSP_MOVE_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* memmove, fast between words if the target is below the source or does not overlap it. */
MT_DSP_INLINE void mt_dsp_move(void *output, const void *input, uint32_t bytes)
{
#ifdef MT_DSP_ASM
    uint32_t turns = bytes / 32;
    const uint32_t ahead = (uint32_t)((uintptr_t)output - (uintptr_t)input);
    if (turns && ahead >= bytes && (((uintptr_t)output | (uintptr_t)input) & 3) == 0) {
        __asm__ volatile("1:\n\t"
                         "ldmia %[i]!, {r3, r4, r5, r6, r8, r10, r12, lr}\n\t"
                         "subs %[n], %[n], #1\n\t"
                         "stmia %[o]!, {r3, r4, r5, r6, r8, r10, r12, lr}\n\t"
                         "bne 1b"
                         : [i] "+&r"(input), [o] "+&r"(output), [n] "+&r"(turns)
                         :
                         : "r3", "r4", "r5", "r6", "r8", "r10", "r12", "lr", "cc", "memory");
        memcpy(output, input, bytes & 31);
        return;
    }
#endif
    memmove(output, input, bytes);
}

#ifdef __cplusplus
}
#endif

#endif
