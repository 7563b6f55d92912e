/* The port over the chip's UART (crt/ports): its interrupt fills a ring, and the host never sends more bytes ahead than
 * that holds, as main.c reports its size. */
#define RING_BYTES {{ cookiecutter.options.uart_ring_bytes }}u

void mt_uart_interrupt(void);
void mt_port_drain(void);

static volatile uint8_t ring[RING_BYTES];
static volatile uint32_t ring_head; /* written by the interrupt */
static volatile uint32_t ring_tail;

void mt_uart_interrupt(void)
{
    uint8_t byte;
    while (mt_uart_receive(&byte)) {
        const uint32_t head = ring_head, next = head + 1u < RING_BYTES ? head + 1u : 0u;
        if (next != ring_tail) { /* else it is lost: the host sends it again */
            ring[head] = byte;
            ring_head = next;
        }
    }
}

int32_t mt_port_init(void)
{
{% if "pins" in cookiecutter.board.ports %}
    mt_pins_init();
{% endif %}
    mt_uart_init();
    MT_REGISTER(0xE000E100u + 4u * (MT_UART_IRQ / 32u)) = 1u << MT_UART_IRQ % 32u; /* NVIC_ISER */
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    uint32_t tail = ring_tail;
    for (*count = 0; *count < capacity && tail != ring_head; ++*count) {
        bytes[*count] = ring[tail];
        tail = tail + 1u < RING_BYTES ? tail + 1u : 0u;
    }
    ring_tail = tail;
    return MT_OK;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        mt_uart_send(bytes[i]);
    }
    return MT_OK;
}

/* Before a reset. */
void mt_port_drain(void)
{
    mt_uart_flush();
}

/* Sleep until a byte arrives: an interrupt that is pending ends WFI even while it is masked. */
void mt_port_idle(void)
{
    __asm__ volatile("cpsid i" ::: "memory");
    if (ring_tail == ring_head) {
        __asm__ volatile("dsb\n\twfi");
    }
    __asm__ volatile("cpsie i" ::: "memory");
}
