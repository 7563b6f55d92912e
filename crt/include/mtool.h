/* mtool: the header for firmware that runs a model, implements a port or serves a host. mt_rpc.h is for an application
 * that contains the RPC server. All other headers in this folder are internal and may change with every version.
 *
 *     status codes, models, devices that compute a part of a model,
 *     the platform: port, storage of modules, faults and guards, memory protection,
 *     the RPC server
 */
#ifndef MTOOL_H
#define MTOOL_H

#include <stddef.h>
#include <stdint.h>

#include "mt_place.h"

struct mt_extension; /* requests of a part that not every firmware has: mt_requests.h */
struct mt_functions; /* what a host can call by name: mt_functions.h */
struct mt_device_failure;
struct mt_protect_area;

/* ---- Status ----
 *
 * Status codes of the runtime and of generated models.
 *
 * Every function that can fail returns an int32_t: 0 is success, anything else one of these. */

/* The only place for a code, its name and its meaning; the Python side reads it (mtool/device/rpc/protocol.py). */
/* clang-format off */
#define MT_STATUS_LIST(X)                                                              \
    X(MT_OK,                 0, "success")                                             \
    X(MT_BAD_FRAME,          1, "a frame is malformed or its checksum is wrong")       \
    X(MT_BAD_MESSAGE,        2, "a message is too short or its fields are invalid")    \
    X(MT_UNKNOWN_MESSAGE,    3, "the message type is unknown to this firmware")        \
    X(MT_BAD_INDEX,          4, "there is no tensor, operator or model with that index") \
    X(MT_BAD_RANGE,          5, "the range is outside the tensor")                     \
    X(MT_NO_SESSION,         6, "no session is open")                                  \
    X(MT_TOO_LARGE,          7, "the frame is larger than the receive buffer")         \
    X(MT_TIMER_NOT_STARTED,  8, "the timer was stopped before it was started")         \
    X(MT_TIMER_RUNNING,      9, "the timer was started while it was running")          \
    X(MT_TIMER_OVERFLOW,    10, "the timer overflowed")                                \
    X(MT_NOT_SUPPORTED,     11, "the platform does not support it")                    \
    X(MT_IO,                12, "the platform failed to read or write")                \
    X(MT_MODEL,             13, "the model failed")                                    \
    X(MT_STACK_OVERFLOW,    14, "the stack overflowed")                                \
    X(MT_BUSY,              15, "another host has a session open")                     \
    X(MT_UNKNOWN_FUNCTION,  16, "there is no function of that name")                   \
    X(MT_BAD_COUNT,         17, "the number of arguments is wrong")                    \
    X(MT_BAD_TYPE,          18, "an argument has the wrong type")                      \
    X(MT_BAD_SHAPE,         19, "a tensor has the wrong shape")                        \
    X(MT_BAD_GRAPH,         20, "the graph's JSON is malformed, or another model's")   \
    X(MT_BAD_SIZE,          21, "a size is outside of the model's range")              \
    X(MT_DEVICE,            22, "a device that computes a part of the model failed")   \
    X(MT_BAD_ORDER,         23, "no inference was started, or rows of it are missing") \
    X(MT_BAD_MODULE,        24, "a module is malformed or incomplete") \
    X(MT_BAD_SIGNATURE,     25, "a module is not signed with a key of the firmware") \
    X(MT_OLD_MODULE,        26, "a module's counter is below the device's") \
    X(MT_WRONG_MACHINE,     27, "a module is for another machine, or of a kind that the firmware does not support") \
    X(MT_NO_MEMORY,         28, "there is not enough memory, or it is not aligned") \
    X(MT_MISSING_IMPORT,    29, "a module calls a function that the firmware does not have") \
    X(MT_BAD_DELTA,         30, "a delta is malformed, too large, or starts from other bytes") \
    X(MT_STOPPED,           31, "a fault stopped the model, and the firmware continues") \
    X(MT_UNAUTHENTICATED,   32, "the firmware opens a session only for a host with its link key") \
    X(MT_BAD_CONSTANT,      33, "the model's constants have changed in memory") \
    X(MT_BAD_ARENA,         34, "the bytes beside the model's arena were overwritten") \
    X(MT_BAD_FLOW,          35, "the model's operators did not all run in order")
/* clang-format on */

enum {
#define MT_STATUS_ENUM(name, code, meaning) name = (code),
    MT_STATUS_LIST(MT_STATUS_ENUM)
#undef MT_STATUS_ENUM
};

/* ---- Models ----
 *
 * A compiled model, as the RPC server sees it. The code generator writes one for each model, in
 * <model>_rpc.c; a standalone firmware does not link it. */

struct mt_tensor {
    void *data;
    uint32_t bytes;
};

/* An input that the model takes by rows, so that it is never whole in memory. */
struct mt_stream {
    uint8_t input;              /* which of the inputs */
    uint16_t rows;              /* the number of rows, at least 2 */
    void *row;                  /* memory for one row, listed in `inputs` instead of the whole */
    uint32_t row_bytes;
    int32_t (*begin)(void);     /* starts an inference and discards an unfinished one; 0 on success */
    int32_t (*feed)(void);      /* processes the next row, which is in memory */
};

struct mt_model {
    const char *name;
    const char *model_hash;             /* SHA-256 of the ONNX file, 64 hex digits */
    const struct mt_tensor *inputs;     /* in the model's order */
    const struct mt_tensor *outputs;
    uint8_t input_count;
    uint8_t output_count;
    uint16_t operator_count;
    uint8_t *arena;                     /* NULL: the model has none */
    uint32_t arena_bytes;
    /* One inference of this model: reads the inputs, writes the outputs; 0 on success. It may overwrite the inputs. With
     * a stream, the rest of an inference, after the last row; MT_BAD_ORDER: rows are missing. */
    int32_t (*run)(const struct mt_model *model);
    int32_t (*step)(const struct mt_model *model, uint16_t number); /* the same in steps: one operator, from 0 in order */
    const struct mt_functions *functions;   /* functions that a host can call by name; NULL: none */
    const struct mt_device_failure *failure;    /* what failed if `run` or `step` returns MT_DEVICE; NULL: they
                                                 * never do */
    const struct mt_stream *stream;     /* NULL: no input is taken by rows */
    const struct mt_protect_area *areas;    /* memory that it may access while it runs, with memory protection */
    uint8_t area_count;
    const struct mt_model *next;        /* another model of the same firmware; NULL: there is none */
    const struct mt_tensor *pools;      /* an arena in several memories: those after the first */
    uint8_t pool_count;                 /* the number of pools */
};

extern const struct mt_model mt_model; /* the first model of the firmware */

/* Return the `index`-th model of a firmware, starting from `first`; NULL: there are fewer. */
const struct mt_model *mt_model_at(const struct mt_model *first, uint8_t index);

/* Find `length` bytes, `offset` bytes from the start of an input, an output or a pool of the arena: the `index`-th of
 * `kind`, as in mt_protocol.h; an arena in one piece is the first. An empty tensor may have no address: then *bytes is
 * not changed. MT_BAD_INDEX: there is no such tensor. MT_BAD_RANGE: it has fewer bytes. */
int32_t mt_model_find(const struct mt_model *model, uint8_t kind, uint8_t index, uint32_t offset, uint32_t length,
                      uint8_t **bytes);

/* ---- Devices ----
 *
 * Devices that compute regions of a model: how they report failures, and which functions are called around their work.
 *
 * A region's C function may return a status: 0, or the device's own number. The latter ends the inference
 * with MT_DEVICE, and <model>_failure says what failed.
 *
 * A backend may name functions of type `int32_t f(void)`, which return 0 or a status that also ends the inference:
 *
 *     activate    once before the first inference: power, clocks
 *     open        once after that: firmware, queues
 *     before      before each inference, not before each region
 *     after       after each inference, also after one that failed
 *     close       at <model>_close
 *     deactivate  after that
 *
 * If a backend requests it, its functions have the type `int32_t f(void *resource)`, and its regions also receive
 * `resource`: the pointer from the model's caller (--interface-api pointers, packed functions), else NULL. An open
 * device stays open when another resource is passed: call <model>_close first if that is another device.
 *
 * Regions that name the same function for the same occasion share one call. An activate or open that failed is called
 * again by the next inference. <model>_close releases the devices; the next inference activates them again. */

/* The last failure. */
struct mt_device_failure {
    const char *region; /* the region whose function or hook failed; NULL: none */
    const char *nodes;  /* the model's nodes that it computes */
    int32_t status;     /* the function's status */
    uint16_t number;    /* of the model's operator that it is, or that contains it */
    uint16_t key;       /* unique to the region: the operator's number, or one after all operators' */
};

/* ---- Platform ----
 *
 * port.c implements these functions, or a timer.c and a guard.c beside it do.
 *
 * All return MT_OK or a status. None allocates, none is re-entrant. */

/* Initialize clocks, the byte channel and the timer. Called once, first. */
int32_t mt_port_init(void);

/* Read up to `capacity` bytes from the host; *count is the number read. May block until there is at
 * least one; may also return MT_OK with *count 0, and then mt_port_idle is called.
 * MT_IO: the host closed the channel. */
int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count);

/* Send all `count` bytes, in order. Blocks until the channel has accepted them. */
int32_t mt_port_write(const uint8_t *bytes, size_t count);

/* Start the timer. MT_TIMER_RUNNING: it was running. */
/*@ assigns \result \from \nothing; */
int32_t mt_port_timer_start(void);

/* Stop the timer; *elapsed_ns is the wall-clock time since the start, in nanoseconds.
 * MT_TIMER_NOT_STARTED: it was not running. MT_TIMER_OVERFLOW: it overflowed, and
 * *elapsed_ns is 0. */
/*@ requires \valid(elapsed_ns);
    assigns *elapsed_ns, \result \from \nothing;
    ensures \initialized(elapsed_ns); */
int32_t mt_port_timer_stop(uint64_t *elapsed_ns);

/* Smallest step of the timer, in nanoseconds, at least 1. */
/*@ assigns \result \from \nothing;
    ensures \result >= 1; */
uint32_t mt_port_timer_granularity_ns(void);

/* Fill `bytes` with numbers that differ from one reset to the next: a nonce, not a key. */
int32_t mt_port_random(uint8_t *bytes, size_t count);

/* Stop permanently (or reset): the session is over, or `status` can't be handled. Does not return. */
void mt_port_abort(int32_t status);

/* Nothing to do: sleep until something happens, or return at once. */
void mt_port_idle(void);

/* ---- Storage ----
 *
 * Memory that keeps modules across a reset: flash that a port provides for the slots of mt_slots.h.
 *
 * It is NOR flash, or behaves like it: erased bytes read 0xFF, and each byte is programmed once after that. It can be
 * read like any memory, and a processor that runs a module from it can fetch instructions there. */

/* The unit of programming: a multiple of every flash's own unit. */
#define MT_STORAGE_CHUNK 64u

struct mt_storage {
    const uint8_t *memory;  /* its address for reading, aligned to 64 bytes or more */
    uint32_t bytes;         /* the total size: a multiple of a sector */
    uint32_t sector_bytes;  /* the unit of erasing: a power of two, MT_STORAGE_CHUNK or more */

    /* Erase the sector that starts `offset` bytes from the start. MT_IO: it failed. */
    int32_t (*erase)(uint32_t offset);

    /* Program `count` bytes, a multiple of MT_STORAGE_CHUNK, at `offset`, also a multiple; `bytes`
     * are in RAM, at any address. Returns when they can be read from `memory`, also through caches. MT_IO: the area was
     * not erased, or programming failed. */
    int32_t (*program)(uint32_t offset, const uint8_t *bytes, uint32_t count);
};

/* The port's storage, ready to be used; NULL: it has none. */
const struct mt_storage *mt_port_storage(void);

/* ---- Faults ----
 *
 * A port reports faults to the host (mt_server_fault), then ends or restarts. A template's guard.c
 * implements these functions, as far as the processor can; they are optional. crt/PROTOCOL.md lists the registers. */

/* Start to catch faults: processor exceptions, stack overflows, accesses outside the board's
 * memory. Called once, after mt_port_init. */
void mt_guard_init(void);

/* Report a fault unless this function is called again within `limit_ms` milliseconds; 0: stop watching. For the
 * server's configuration. The model is interrupted at most every 20 ms. */
void mt_guard_watch(uint32_t limit_ms);

/* Kinds of faults. */
enum {
    MT_FAULT_EXCEPTION = 1,  /* the processor refused an instruction or an access */
    MT_FAULT_STACK = 2,      /* a stack overflow that the processor detected */
    MT_FAULT_ASSERTION = 3,  /* the firmware itself found that it can't continue */
    MT_FAULT_WATCHDOG = 4    /* the model took longer than the host's limit */
};

/* Added to the kind: the fault stopped only the model, and the firmware continues. */
#define MT_FAULT_SURVIVED 0x80u

/* The machine of the registers that follow; an unknown register is 0. */
enum {
    MT_MACHINE_NONE = 0,     /* none */
    MT_MACHINE_CORTEX_M = 1, /* pc, lr, xpsr, sp, CFSR, HFSR, MMFAR, BFAR, lowest address of the stack */
    MT_MACHINE_RISCV = 2,    /* mepc, ra, mstatus, sp, mcause, mtval, lowest address of the stack */
    MT_MACHINE_PROCESS = 3   /* the signal's number; the upper and the lower half of pc from the image's start, then of
                              * the address that was accessed */
};

/* ---- Protection ----
 *
 * Memory protection of a model: while it runs, it can access only the areas listed here, code and
 * constants in flash, and its own part of the stack; any other access, also to peripherals, is a fault. The fault ends
 * only the model. A template's protect.c implements it, as far as the processor can (docs/protect.md).
 *
 * Macros: MT_PROTECT is defined in firmware with memory protection; MT_PROTECT_INPUTS declares an input
 * outside of the arena, so that a linker script can place it where the model may only read. */

#define MT_PROTECT_INPUTS __attribute__((section(".bss.mt_inputs")))

/* A model's permissions in an area. */
enum { MT_PROTECT_READ = 0, MT_PROTECT_WRITE = 1, MT_PROTECT_EXECUTE = 2 }; /* write and execute: and read */

/* From `start` to before `end`, both multiples of the processor's granule (they are rounded outwards); empty if they
 * are equal. Areas must not overlap each other or the firmware's own code and constants, which every model may read. */
struct mt_protect_area {
    const void *start;
    const void *end;
    uint32_t access;
};

typedef void mt_protect_function(void);

/* Call `function`, whatever its type, with the arguments `first` and `second`, under memory protection: unprivileged,
 * with access to `areas`. *result is its result. Below the caller's frame, up to a granule of the stack is skipped.
 * Calls don't nest.
 *
 * MT_STOPPED: it made a forbidden access, or took longer than mt_guard_watch allows; this was reported to the host
 * (mt_server_fault, with MT_FAULT_SURVIVED), and the firmware continues. What it wrote, only to its own areas, is
 * kept: reset a model with states.
 * MT_NOT_SUPPORTED: the areas need more regions than the processor has, or it has no memory protection; nothing
 * was called. */
int32_t mt_protect_call(const struct mt_protect_area *areas, uint8_t count, mt_protect_function *function,
                        uintptr_t first, uintptr_t second, int32_t *result);

/* ---- Server ----
 *
 * The RPC server lets a host drive the model over the port's byte channel. crt/PROTOCOL.md has the bytes. */

/* The least size of the server's buffer. Half of it receives, half sends; a frame is a little smaller than
 * a half, so larger buffers lead to fewer and larger frames. */
#define MT_SERVER_MIN_BUFFER 256u

struct mt_server_config {
    const struct mt_model *model; /* the firmware's first */
    const char *build_hash;     /* 64 hex digits; the host compares it with its own */
    uint8_t *buffer;            /* the server's receive and send buffers; it uses no other memory of this size */
    uint32_t buffer_bytes;      /* at least MT_SERVER_MIN_BUFFER */
    uint8_t *stack_low;         /* lowest address of the stack, for the watermark and the canary; NULL: not measured */
    uint32_t window_bytes;      /* the bytes that the port buffers between calls of mt_port_read (the size of its
                                 * interrupt's ring buffer); 0: any number, as the channel has flow control */
    void (*watch)(uint32_t limit_ms); /* mt_guard_watch, around each CALL that has a limit; NULL: only the
                                       * host notices that a model does not end */
    struct mt_extension *extension; /* requests of a part that not every firmware has: mt_port_modules; NULL: none */
};

/* Start the module loader of firmware with modules; return its extension for the server's configuration. */
struct mt_extension *mt_port_modules(void);

/* Serve until the port reports that the channel is closed (returns MT_IO or another status of the port), or
 * the host requests a reset (returns MT_OK). MT_TOO_LARGE: the buffer is smaller than MT_SERVER_MIN_BUFFER. */
int32_t mt_server_run(const struct mt_server_config *config);

/* The same in pieces, for a main loop that does more than serve: start once, then poll. A poll reads from the port once
 * and executes the next complete request, if there is one; *is_over: the host requested a reset. */
int32_t mt_server_start(const struct mt_server_config *config);
int32_t mt_server_poll(uint8_t *is_over);

/* Send a line of text to the host, truncated to a frame; for instance from within the model.
 * Nothing is sent while no session is open. */
void mt_server_log(const char *text);

/* Report a fault to the host, with the running operator; for a port's exception handler, which resets or
 * ends the firmware afterwards. Uses mt_port_write and about 100 bytes of stack; nothing is sent while no session is
 * open. `registers`: in the order of the machine's list in crt/PROTOCOL.md. */
void mt_server_fault(uint8_t kind, uint8_t machine, const uint32_t *registers, uint8_t count);

#endif
