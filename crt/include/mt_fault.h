/* Faults, as a port's exception handler tells them to mt_server_fault; crt/PROTOCOL.md has the lists. */
#ifndef MT_FAULT_H
#define MT_FAULT_H

/* What happened. */
enum {
    MT_FAULT_EXCEPTION = 1,  /* the processor refused an instruction or an access */
    MT_FAULT_STACK = 2,      /* the stack went over its end, and the processor noticed */
    MT_FAULT_ASSERTION = 3,  /* the firmware itself found that it can't go on */
    MT_FAULT_WATCHDOG = 4    /* the model took longer than the host's limit */
};

/* Added to the kind: the fault has stopped the model alone, and the firmware goes on (mt_protect.h). */
#define MT_FAULT_SURVIVED 0x80u

/* Whose registers follow; one that is not known is 0. */
enum {
    MT_MACHINE_NONE = 0,     /* none */
    MT_MACHINE_CORTEX_M = 1, /* pc, lr, xpsr, sp, CFSR, HFSR, MMFAR, BFAR, lowest address of the stack */
    MT_MACHINE_RISCV = 2,    /* mepc, ra, mstatus, sp, mcause, mtval, lowest address of the stack */
    MT_MACHINE_PROCESS = 3   /* the signal's number; the upper and the lower half of pc from the image's start, then of
                              * the address that was accessed */
};

#endif
