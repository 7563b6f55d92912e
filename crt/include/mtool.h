/* mtool: what a firmware includes that runs a model, implements a port or serves a host. All other headers of this folder
 * are internal, and change from one version to the next.
 *
 *     status codes, models, devices that compute a part of a model,
 *     the platform: port, storage of modules, faults and guards, the fence around a model,
 *     the RPC server
 */
#ifndef MTOOL_H
#define MTOOL_H

#include <stddef.h>
#include <stdint.h>

struct mt_extension; /* requests of a part that not every firmware has: mt_requests.h */
struct mt_functions; /* what a host can call by name: mt_functions.h */
struct mt_device_failure;
struct mt_protect_area;

/* Status codes of the runtime and of generated models.
 *
 * Every function that can fail returns an int32_t: 0 is success, anything else one of these.
 * The list is the only place where a code, its name and its meaning stand; the Python side reads
 * the same list (mtool/device/rpc/protocol.py) and a test holds the two together. */

/* clang-format off */
#define MT_STATUS_LIST(X)                                                              \
    X(MT_OK,                 0, "success")                                             \
    X(MT_BAD_FRAME,          1, "a frame is malformed or its checksum is wrong")       \
    X(MT_BAD_MESSAGE,        2, "a message is too short or its fields make no sense")  \
    X(MT_UNKNOWN_MESSAGE,    3, "the message type is unknown to this firmware")        \
    X(MT_BAD_INDEX,          4, "there is no tensor, operator or model with that index") \
    X(MT_BAD_RANGE,          5, "the range lies outside the tensor")                   \
    X(MT_NO_SESSION,         6, "no session is open")                                  \
    X(MT_TOO_LARGE,          7, "the frame is larger than the receive buffer")         \
    X(MT_TIMER_NOT_STARTED,  8, "the timer was stopped before it was started")         \
    X(MT_TIMER_RUNNING,      9, "the timer was started while it was running")          \
    X(MT_TIMER_OVERFLOW,    10, "the timer ran over its range")                        \
    X(MT_NOT_SUPPORTED,     11, "the platform has no such function")                   \
    X(MT_IO,                12, "the platform could not read or write")                \
    X(MT_MODEL,             13, "the model failed")                                    \
    X(MT_STACK_OVERFLOW,    14, "the stack went over its end")                         \
    X(MT_BUSY,              15, "another host has a session open")                     \
    X(MT_UNKNOWN_FUNCTION,  16, "there is no function of that name")                   \
    X(MT_BAD_COUNT,         17, "a function takes another number of arguments")        \
    X(MT_BAD_TYPE,          18, "an argument is of another type")                      \
    X(MT_BAD_SHAPE,         19, "a tensor has another shape")                          \
    X(MT_BAD_GRAPH,         20, "the graph's JSON is malformed, or of another model")  \
    X(MT_BAD_SIZE,          21, "a size is smaller or larger than the model takes")    \
    X(MT_DEVICE,            22, "a device that computes a part of the model failed")   \
    X(MT_BAD_ORDER,         23, "an inference has not begun, or rows of it are missing") \
    X(MT_BAD_MODULE,        24, "a module is malformed, or not whole") \
    X(MT_BAD_SIGNATURE,     25, "a module is not signed by a key that the firmware knows") \
    X(MT_OLD_MODULE,        26, "a module is older than the least that the device takes") \
    X(MT_WRONG_MACHINE,     27, "a module is for another machine, or of a kind that the firmware does not run") \
    X(MT_NO_MEMORY,         28, "there is not enough memory, or it is not aligned") \
    X(MT_MISSING_IMPORT,    29, "a module calls a function that the firmware does not have") \
    X(MT_BAD_DELTA,         30, "a delta is malformed, of other bytes than are there, or too large") \
    X(MT_STOPPED,           31, "the model was stopped at a fault, and the firmware goes on")
/* clang-format on */

enum {
#define MT_STATUS_ENUM(name, code, meaning) name = (code),
    MT_STATUS_LIST(MT_STATUS_ENUM)
#undef MT_STATUS_ENUM
};

/* A compiled model, as the RPC server sees it. The code generator writes one for each model, in
 * <model>_rpc.c; a standalone firmware does not link it. */

struct mt_tensor {
    void *data;
    uint32_t bytes;
};

/* An input that the model takes by rows, so that it is never whole in memory. */
struct mt_stream {
    uint8_t input;              /* which of the inputs */
    uint16_t rows;              /* of it, at least 2 */
    void *row;                  /* memory for one, which `inputs` has in its place */
    uint32_t row_bytes;
    int32_t (*begin)(void);     /* begins an inference, and forgets one that is under way; 0 on success */
    int32_t (*feed)(void);      /* computes what the row in memory makes possible: the next one, in their order */
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
     * a stream, the rest of one, behind the last row; MT_BAD_ORDER: rows are missing. */
    int32_t (*run)(const struct mt_model *model);
    int32_t (*step)(const struct mt_model *model, uint16_t number); /* the same in steps: one operator, from 0 in order */
    const struct mt_functions *functions;   /* what a host can call by name; NULL: nothing */
    const struct mt_device_failure *failure;    /* what failed where `run` or `step` returns MT_DEVICE; NULL: they
                                                 * do not */
    const struct mt_stream *stream;     /* NULL: all inputs are whole */
    const struct mt_protect_area *areas;    /* what it may have while it runs, in a firmware with a fence */
    uint8_t area_count;
    const struct mt_model *next;        /* another model of the same firmware; NULL: there is none */
    const struct mt_tensor *pools;      /* an arena in several memories: those after the first */
    uint8_t pool_count;                 /* how many */
};

extern const struct mt_model mt_model; /* the first model of the firmware */

/* The `index`-th model of a firmware, from the first on; NULL: it has fewer. */
const struct mt_model *mt_model_at(const struct mt_model *first, uint8_t index);

/* Find `length` bytes, `offset` bytes from the start of an input, an output or a pool of the arena: the `index`-th of
 * `kind`, as in mt_protocol.h; an arena in one piece is the first. An empty piece may be nowhere: then *bytes stays as it is. MT_BAD_INDEX: there is no such tensor.
 * MT_BAD_RANGE: it has fewer bytes. */
int32_t mt_model_find(const struct mt_model *model, uint8_t kind, uint8_t index, uint32_t offset, uint32_t length,
                      uint8_t **bytes);

/* Devices that compute regions of a model: how they fail, and what is called around their work.
 *
 * A region's C function may return a status: 0, or a number of the device's own. Then the inference ends, whoever runs
 * it, with MT_DEVICE, and <model>_failure says what failed.
 *
 * A backend may name functions of type `int32_t f(void)`, which return 0 or a status that ends the inference alike:
 *
 *     activate    once before the first inference: power, clocks
 *     open        once after that: firmware, queues
 *     before      before each inference: not before each region
 *     after       after each inference, also after one that failed
 *     close       at <model>_close
 *     deactivate  after that
 *
 * Functions of a backend that says so are of type `int32_t f(void *resource)`, and its regions know `resource` too: what
 * the model's caller gave (--interface-api pointers, packed functions), NULL where it has none to give. What is opened
 * stays open when another resource is given: <model>_close first, if that is another device.
 *
 * Regions that name the same function for the same occasion share one call. An activate or open that failed is called
 * again by the next inference. <model>_close lets go of the devices; the next inference activates them again. */

/* How a piece of one of the board's memories is declared that regions have besides the arena, or that is a pool of an
 * arena in several memories: in a section of its own, ".bss.mt_lent.<memory>", which a linker script has to put there.
 * What it begins with is undefined. */
#ifndef MT_LENT_SECTION
#define MT_LENT_SECTION(memory) ".bss.mt_lent." #memory
#endif
#define MT_LENT(memory, alignment) MT_PLACED(MT_LENT_SECTION(memory), alignment)

/* The same in a section by its name. */
#if defined(__GNUC__) && defined(__ELF__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment), section(name)))
#elif defined(__GNUC__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment)))
#else
#define MT_PLACED(name, alignment)
#endif

/* What failed last. */
struct mt_device_failure {
    const char *region; /* the region whose function, or a hook for which, failed; NULL: none has */
    const char *nodes;  /* the model's nodes that it computes */
    int32_t status;     /* what the function returned */
    uint16_t number;    /* of the model's operator that it is, or that it stands in */
    uint16_t key;       /* no other region's: the operator's number, or one behind all operators' */
};

/* The platform, as the runtime sees it: port.c implements these functions, or a timer.c and a guard.c beside it do.
 *
 * All return MT_OK or a status. None allocates, none is re-entrant. */

/* Bring up clocks, the byte channel and the timer. Called once, first. */
int32_t mt_port_init(void);

/* Read up to `capacity` bytes that the host sent; *count says how many came. May block until at
 * least one is there; may also return MT_OK with *count 0, upon which mt_port_idle is called.
 * MT_IO: the host closed the channel, nothing more will come. */
int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count);

/* Send `count` bytes, all of them, in order. Blocks until the channel has taken them. */
int32_t mt_port_write(const uint8_t *bytes, size_t count);

/* Start the timer. MT_TIMER_RUNNING: it was running. */
int32_t mt_port_timer_start(void);

/* Stop the timer; *elapsed_ns is the wall-clock time since the start, in nanoseconds.
 * MT_TIMER_NOT_STARTED: it was not running. MT_TIMER_OVERFLOW: it ran over its range, and
 * *elapsed_ns is 0. */
int32_t mt_port_timer_stop(uint64_t *elapsed_ns);

/* Smallest step of the timer, in nanoseconds, at least 1. */
uint32_t mt_port_timer_granularity_ns(void);

/* Fill `bytes` with numbers that differ from one reset to the next: a nonce, not a key. */
int32_t mt_port_random(uint8_t *bytes, size_t count);

/* Stop for good (or reset): the session is over, or `status` can't be handled. Does not return. */
void mt_port_abort(int32_t status);

/* Nothing to do: sleep until something happens, or return at once. */
void mt_port_idle(void);

/* Memory that keeps modules across a reset: flash, as a port lends it to the slots of mt_slots.h.
 *
 * It is NOR flash, or behaves like it: what is erased reads 0xFF, and each byte is programmed once after that. It can be
 * read like any memory, and a processor that has to run a module from it can fetch instructions there. */

/* What is programmed at once: a multiple of every flash's own unit. */
#define MT_STORAGE_CHUNK 64u

struct mt_storage {
    const uint8_t *memory;  /* where it is read, aligned to 64 bytes or more */
    uint32_t bytes;         /* of the whole: a multiple of a sector */
    uint32_t sector_bytes;  /* what is erased at once: a power of two, MT_STORAGE_CHUNK or more */

    /* Erase the sector that begins `offset` bytes from the start. MT_IO: it could not be. */
    int32_t (*erase)(uint32_t offset);

    /* Program `count` bytes, a multiple of MT_STORAGE_CHUNK, `offset` bytes from the start, a multiple as well; `bytes`
     * lie in RAM, at any address. Returns when `memory` shows them, through caches too. MT_IO: something was programmed
     * there already, or could not be. */
    int32_t (*program)(uint32_t offset, const uint8_t *bytes, uint32_t count);
};

/* The port's storage, ready to be used; NULL: it has none. */
const struct mt_storage *mt_port_storage(void);

/* Faults, and what a port does about them: report it to the host (mt_server_fault), then end or restart. guard.c of a
 * template implements these functions, as far as the processor can; a firmware may do without. */

/* Catch faults from now on: exceptions of the processor, a stack that goes over its end, accesses outside the board's
 * memory. Called once, after mt_port_init. */
void mt_guard_init(void);

/* Take it for a fault if this function is not called again within `limit_ms` milliseconds; 0: no longer. For the
 * server's configuration. Nothing interrupts the model more often than every 20 ms. */
void mt_guard_watch(uint32_t limit_ms);

/* Faults, as a port's exception handler reports them to mt_server_fault; crt/PROTOCOL.md has the lists. */

/* What happened. */
enum {
    MT_FAULT_EXCEPTION = 1,  /* the processor refused an instruction or an access */
    MT_FAULT_STACK = 2,      /* the stack went over its end, and the processor noticed */
    MT_FAULT_ASSERTION = 3,  /* the firmware itself found that it can't go on */
    MT_FAULT_WATCHDOG = 4    /* the model took longer than the host's limit */
};

/* Added to the kind: the fault has stopped the model alone, and the firmware goes on. */
#define MT_FAULT_SURVIVED 0x80u

/* Whose registers follow; one that is not known is 0. */
enum {
    MT_MACHINE_NONE = 0,     /* none */
    MT_MACHINE_CORTEX_M = 1, /* pc, lr, xpsr, sp, CFSR, HFSR, MMFAR, BFAR, lowest address of the stack */
    MT_MACHINE_RISCV = 2,    /* mepc, ra, mstatus, sp, mcause, mtval, lowest address of the stack */
    MT_MACHINE_PROCESS = 3   /* the signal's number; the upper and the lower half of pc from the image's start, then of
                              * the address that was accessed */
};

/* A fence around a model: while it runs the processor's memory protection lets it have what is listed here, code and
 * constants in flash, and its own part of the stack; all else, peripherals included, is a fault. The fault ends the
 * model and nothing more. protect.c of a template implements it, as far as the processor can (docs/protect.md).
 *
 * Macros: MT_PROTECT is defined where a firmware has the fence; MT_PROTECT_INPUTS is how an input is declared that lies
 * outside of the arena, so that a linker script can put it where the model may only read. */

#define MT_PROTECT_INPUTS __attribute__((section(".bss.mt_inputs")))

/* What a model may do in an area. */
enum { MT_PROTECT_READ = 0, MT_PROTECT_WRITE = 1, MT_PROTECT_EXECUTE = 2 }; /* write and execute: and read */

/* From `start` to before `end`, both multiples of the processor's granule (they are rounded outwards); empty if they are
 * equal. Areas overlap neither each other nor the firmware's own code and constants, which every model may read. */
struct mt_protect_area {
    const void *start;
    const void *end;
    uint32_t access;
};

typedef void mt_protect_function(void);

/* Call `function`, whatever its type, with the arguments `first` and `second`, inside the fence: unprivileged, with the
 * areas of `areas`. *result is what it returned. Below the caller's frame some bytes of the stack are left out, up to
 * its granule. Calls don't nest.
 *
 * MT_STOPPED: it did what it may not, or took longer than mt_guard_watch allows; it has been reported to the host
 * (mt_server_fault, with MT_FAULT_SURVIVED), and the firmware goes on. What it has written, in its own areas alone, stays
 * as it is: a model with states is to be reset.
 * MT_NOT_SUPPORTED: the areas need more of the processor's regions than there are, or the processor has none; nothing
 * was called. */
int32_t mt_protect_call(const struct mt_protect_area *areas, uint8_t count, mt_protect_function *function,
                        uintptr_t first, uintptr_t second, int32_t *result);

/* The RPC server: lets a host drive the model over the port's byte channel. crt/PROTOCOL.md has the bytes. */

/* Least size of the server's buffer. Half of it receives, half sends; a frame is a little smaller than
 * a half, so that larger buffers make for fewer and larger frames. */
#define MT_SERVER_MIN_BUFFER 256u

struct mt_server_config {
    const struct mt_model *model; /* the firmware's first */
    const char *build_hash;     /* 64 hex digits; the host compares it with its own */
    uint8_t *buffer;            /* the server's receive and send buffers; it uses no other memory of this size */
    uint32_t buffer_bytes;      /* at least MT_SERVER_MIN_BUFFER */
    uint8_t *stack_low;         /* lowest address of the stack, for the watermark and the canary; NULL: not measured */
    uint32_t window_bytes;      /* how many bytes the port holds between calls of mt_port_read (the size of its
                                 * interrupt's ring buffer); 0: any number, as the channel holds back the host itself */
    void (*watch)(uint32_t limit_ms); /* mt_guard_watch, around each CALL that has a limit; NULL: the
                                       * host alone notices that a model does not end */
    struct mt_extension *extension; /* requests of a part that not every firmware has: mt_port_modules; NULL: none */
};

/* The extension of a firmware that takes modules, by its options: start its loader, for the server's configuration. */
struct mt_extension *mt_port_modules(void);

/* Serve until the port says that the channel is closed (returns MT_IO or another status of the port), or
 * the host asks for a reset (returns MT_OK). MT_TOO_LARGE: the buffer is smaller than MT_SERVER_MIN_BUFFER. */
int32_t mt_server_run(const struct mt_server_config *config);

/* Send a line of text to the host, cut to what fits into a frame; for instance from within the model.
 * Nothing is sent while no session is open. */
void mt_server_log(const char *text);

/* Tell the host of a fault, with the operator that was running; for a port's exception handler, which resets or
 * ends the firmware afterwards. Uses mt_port_write and some 100 bytes of stack; nothing is sent while no session is
 * open. `registers`: in the order of the machine's list in crt/PROTOCOL.md. */
void mt_server_fault(uint8_t kind, uint8_t machine, const uint32_t *registers, uint8_t count);

#endif
