/* Run a firmware in simavr: UART 0 is standard input and output. Ends when its input does, or the CPU crashes.
 *
 *     simavr_uart MCU HZ FIRMWARE.elf
 *
 * A firmware that writes to GPIOR0 when it looks for bytes gets none while it does not look: what the host sends during
 * an inference would interrupt it, and be counted.
 */
#include <poll.h>
#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_EVERY 2000 /* instructions between two looks at the input */
#define GPIOR0 0x3E     /* of every AVR of mtool's Arduino boards */
#define ATTENTIVE 16000 /* cycles after the firmware looked for bytes in which it gets some */

static int may_send = 1; /* the UART's input buffer has room */

static int asks; /* the firmware says when it looks for bytes */
static avr_cycle_count_t asked;

static void on_look(struct avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    (void)context;
    avr->data[address] = value;
    asks = 1;
    asked = avr->cycle;
}

static void on_byte(struct avr_irq_t *irq, uint32_t value, void *context)
{
    const unsigned char byte = (unsigned char)value;
    (void)irq;
    (void)context;
    if (write(STDOUT_FILENO, &byte, 1) != 1) {
        exit(0);
    }
}

static void on_xon(struct avr_irq_t *irq, uint32_t value, void *context)
{
    (void)irq;
    (void)context;
    may_send = value != 0;
}

static void on_xoff(struct avr_irq_t *irq, uint32_t value, void *context)
{
    (void)irq;
    (void)context;
    may_send = value == 0;
}

/* Pass on received bytes, as far as they fit. Returns 0 at the end of the input. */
static int feed(const avr_t *avr, avr_irq_t *input)
{
    unsigned char byte;
    struct pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    if (asks && avr->cycle - asked > ATTENTIVE) {
        return 1;
    }
    while (may_send && poll(&waiting, 1, 0) > 0) {
        if (read(STDIN_FILENO, &byte, 1) != 1) {
            return 0;
        }
        avr_raise_irq(input, byte);
    }
    return 1;
}

int main(int count, char **arguments)
{
    elf_firmware_t firmware;
    memset(&firmware, 0, sizeof firmware);
    if (count != 4 || elf_read_firmware(arguments[3], &firmware) != 0) {
        fprintf(stderr, "usage: %s MCU HZ FIRMWARE.elf\n", arguments[0]);
        return 2;
    }
    avr_t *avr = avr_make_mcu_by_name(arguments[1]);
    if (avr == NULL) {
        fprintf(stderr, "simavr has no %s\n", arguments[1]);
        return 2;
    }
    avr_init(avr);
    avr->log = LOG_ERROR;
    avr_load_firmware(avr, &firmware);
    avr->frequency = (uint32_t)strtoul(arguments[2], NULL, 10);

    avr_register_io_write(avr, GPIOR0, on_look, NULL);
    uint32_t flags = 0; /* neither sleep while polled nor print sent bytes */
    avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
    avr_irq_t *input = avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_INPUT);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), on_byte, NULL);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUT_XON), on_xon, NULL);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUT_XOFF), on_xoff, NULL);

    for (unsigned long step = 0;; ++step) {
        const int state = avr_run(avr);
        if (state == cpu_Done || state == cpu_Crashed) {
            return state == cpu_Crashed;
        }
        if (step % LOOK_EVERY == 0 && !feed(avr, input)) {
            return 0;
        }
    }
}
