/* The caches of a Cortex-M7. Armv7-M ARM, B2.2.7 and B4.8 (cache maintenance), B3.2.8 (CCR); DDI 0489, 5.3. */
#include "mt_board.h"
#include "mt_ports.h"

#define CCR MT_REGISTER(0xE000ED14u)
#define CCSIDR MT_REGISTER(0xE000ED80u)
#define CSSELR MT_REGISTER(0xE000ED84u)
#define ICIALLU MT_REGISTER(0xE000EF50u)
#define DCISW MT_REGISTER(0xE000EF60u)

#define CCR_DC (1u << 16)
#define CCR_IC (1u << 17)
#define WAY_AT 30u /* four ways */
#define SET_AT 5u  /* lines of 32 bytes */

void mt_cache_init(void)
{
    ICIALLU = 0;
    CSSELR = 0; /* the data cache's size */
    __asm__ volatile("dsb" ::: "memory");
    const uint32_t size = CCSIDR, last_set = size >> 13 & 0x7FFFu, last_way = size >> 3 & 0x3FFu;
    for (uint32_t set = 0; set <= last_set; ++set) {
        for (uint32_t way = 0; way <= last_way; ++way) {
            DCISW = way << WAY_AT | set << SET_AT; /* what it holds after power-on is undefined */
        }
    }
    __asm__ volatile("dsb" ::: "memory");
    CCR |= CCR_DC | CCR_IC;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}
