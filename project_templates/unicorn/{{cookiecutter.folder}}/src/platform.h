/* The registers through which the firmware talks to the emulator (mtool/device/transport/unicorn/machine.py). */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#define PLATFORM_FAULT 100 /* exit status of a fault: this plus the number of the exception */

#define PLATFORM_REGISTER(offset) (*(volatile uint32_t *)({{ "0x%08Xu" % cookiecutter.board.timer.base }} + (offset)))
#define PLATFORM_ADDRESS PLATFORM_REGISTER(0x00u) /* of the bytes that a command moves */
#define PLATFORM_COUNT PLATFORM_REGISTER(0x04u)   /* the most bytes to move; PLATFORM_EXIT: the status */
#define PLATFORM_COMMAND PLATFORM_REGISTER(0x08u)
#define PLATFORM_DONE PLATFORM_REGISTER(0x0Cu)      /* the number of bytes moved */
#define PLATFORM_TIME_LOW PLATFORM_REGISTER(0x10u)  /* instructions so far; the high half is of the same moment */
#define PLATFORM_TIME_HIGH PLATFORM_REGISTER(0x14u)
#define PLATFORM_WATCH PLATFORM_REGISTER(0x18u)         /* milliseconds of 1,000,000 instructions until a fault; 0: none */
#define PLATFORM_FAULT_WORDS PLATFORM_REGISTER(0x1Cu)   /* where a fault's kind, number and registers are written */
#define PLATFORM_FAULT_STACK PLATFORM_REGISTER(0x20u)   /* the stack pointer of its handler */
#define PLATFORM_FAULT_HANDLER PLATFORM_REGISTER(0x24u) /* where the core continues then */

enum { PLATFORM_READ = 1, PLATFORM_WRITE = 2, PLATFORM_RANDOM = 3, PLATFORM_EXIT = 4 };

static inline void platform_exit(int32_t status)
{
    PLATFORM_COUNT = (uint32_t)status;
    for (;;) {
        PLATFORM_COMMAND = PLATFORM_EXIT;
    }
}

#endif
