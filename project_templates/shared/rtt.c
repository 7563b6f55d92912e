/* The port's byte channel over RTT: a debugger reads and writes two ring buffers in RAM while the firmware runs. The
 * layout of the control block is SEGGER's (UM08001), so that J-Link, OpenOCD, pyOCD and gdb servers know it. Each side
 * writes one offset of a ring, after the bytes; equal offsets mean that it is empty. */
#define RTT_BYTES {{ cookiecutter.options.rtt_bytes }}u

struct rtt_ring {
    const char *name;
    uint8_t *bytes;
    uint32_t size;
    volatile uint32_t written;
    volatile uint32_t read;
    uint32_t flags; /* what a writer does if the buffer is full: 2, it waits */
};

extern volatile struct rtt_block {
    char id[16];
    int32_t up_count;
    int32_t down_count;
    struct rtt_ring up;
    struct rtt_ring down;
} _SEGGER_RTT; /* tools look for this symbol */
void mt_rtt_drain(void);

volatile struct rtt_block _SEGGER_RTT;
static volatile uint8_t rtt_up[RTT_BYTES];
static volatile uint8_t rtt_down[RTT_BYTES];

int32_t mt_port_init(void)
{
    static const char id[] = "SEGGER RTT";
    volatile struct rtt_block *const block = &_SEGGER_RTT;
    block->up = (struct rtt_ring){.name = "mtool", .bytes = (uint8_t *)rtt_up, .size = RTT_BYTES, .flags = 2};
    block->down = (struct rtt_ring){.name = "mtool", .bytes = (uint8_t *)rtt_down, .size = RTT_BYTES, .flags = 2};
    block->up_count = 1;
    block->down_count = 1;
    __sync_synchronize();
    for (uint32_t i = sizeof id; i-- > 0;) { /* written last, its first letter at the very end: then the block is complete */
        block->id[i] = id[i];
    }
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    volatile struct rtt_ring *const down = &_SEGGER_RTT.down;
    uint32_t at = down->read;
    const uint32_t end = down->written;
    __sync_synchronize();
    for (*count = 0; *count < capacity && at != end; ++*count) {
        bytes[*count] = rtt_down[at];
        at = at + 1u < RTT_BYTES ? at + 1u : 0u;
    }
    __sync_synchronize();
    down->read = at;
    return MT_OK;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    volatile struct rtt_ring *const up = &_SEGGER_RTT.up;
    uint32_t at = up->written;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t next = at + 1u < RTT_BYTES ? at + 1u : 0u;
        while (next == up->read) {
            __sync_synchronize();
            up->written = at; /* full: let the debugger read the bytes */
        }
        rtt_up[at] = bytes[i];
        at = next;
    }
    __sync_synchronize();
    up->written = at;
    return MT_OK;
}

/* Before a reset or the end: let the debugger read the remaining bytes, if there is one. */
void mt_rtt_drain(void)
{
    for (uint32_t patience = 10000000u; patience > 0 && _SEGGER_RTT.up.read != _SEGGER_RTT.up.written; --patience) {
    }
}
