/* A QEMU TCG plugin: how often each block of code ran during an inference, for whom, and where it went from there.
 *
 *     -plugin blocks.so,begin=HEX,size=HEX,end=HEX,end=HEX,...,out=FILE
 *
 * Counting starts where the function at `begin`, of `size` bytes, is entered and stops after the instruction at an `end`
 * (a return) has left it. An inference of several calls has several functions: `begin` and `size` are given for each, and
 * what runs between their calls is not counted. A function "through=BEGIN:SIZE" that they call counts as theirs: what it
 * calls, they call. FILE gets three kinds of lines, addresses in hexadecimal:
 *
 *     runs STARTED ENDED                       for each function, in order
 *     call NUMBER ADDRESS                      what the function called, from 1
 *     block CALL FIRST LAST COUNT PLUS2 PLUS4 UNALIGNED
 *                                              what ran in a call (0: in the function itself): its first and last
 *                                              instruction, and how often the code 2 and 4 bytes after the last came next;
 *                                              the accesses that unaligned ones are made of, beyond one each;
 *                                              then for each flash JUMPED FOLLOWED DATA: reads of the flash that its
 *                                              caches did not save, of code after a jump, of code that follows what
 *                                              was read before, and of data
 *
 * A flash is given as "flash=BASE:SIZE:WIDTH:CODE_LINES:CODE_WAYS:DATA_LINES:DATA_WAYS:LINE", in hexadecimal: what
 * memory stands for it, how many bytes it reads at once, its caches' lines (of LINE bytes; data lines 0: one cache for
 * both). The oldest line goes; a line is filled by reads of WIDTH bytes, as they are needed.
 *
 * How long the last instruction is QEMU does not say reliably: at the end of a page it takes the bytes that it looks ahead
 * for the instruction's own.
 *
 * Distributions ship QEMU without qemu-plugin.h, so the few functions that are needed are declared here, as the QEMU
 * documentation ("QEMU TCG Plugins") gives them. Only those are used that every API version so far has had; calls per
 * block, not the inline counters, whose functions were replaced in version 2.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_FUNCTIONS 4
#define MAX_ENDS 32
#define MAX_FLASHES 8
#define MAX_LINES 2048
#define READS_AND_WRITES 3 /* QEMU 7.2 omits some reads if writes are not requested too; flash is never written */

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*call)(unsigned int, void *),
                                                 int flags, void *data);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void *), void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
                                             void (*call)(unsigned int, uint32_t, uint64_t, void *), int flags, int rw,
                                             void *data);
extern unsigned int qemu_plugin_mem_size_shift(uint32_t info);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern int qemu_plugin_num_vcpus(void) __attribute__((weak)); /* since API version 2 */

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);

struct line {
    uint64_t address;
    uint64_t used; /* when; 0: never */
    uint32_t filled; /* a bit for each read that it holds */
};

struct cache {
    uint64_t lines; /* 0: the other cache has it */
    uint64_t ways;
    struct line line[MAX_LINES];
};

struct flash {
    uint64_t base;
    uint64_t size;
    uint64_t width;
    uint64_t line;
    struct cache code;
    struct cache data;
    uint64_t fetched; /* the read that code came from last */
};

struct misses {
    uint64_t jumped;
    uint64_t followed;
    uint64_t data;
};

/* The counts of a block during one call. */
struct tally {
    struct misses misses[MAX_FLASHES];
    unsigned long call;
    uint64_t count;
    uint64_t after_2;
    uint64_t after_4;
    uint64_t unaligned;
    struct tally *older;
};

/* A counted function. */
struct function {
    uint64_t begin;
    uint64_t size;
    unsigned long started;
    unsigned long ended;
};

struct block {
    uint64_t first;
    uint64_t last;
    uint64_t after; /* the end of its last instruction */
    const struct function *in; /* NULL: not in a counted function */
    bool through;
    bool ends;
    struct tally *newest;
    struct block *older;
};

static struct function functions[MAX_FUNCTIONS];
static size_t function_count;
static struct function through[MAX_FUNCTIONS];
static size_t through_count;
static struct function *running; /* the one being counted */
static uint64_t ends[MAX_ENDS];
static size_t end_count;
static const char *out_path;
static FILE *out;
static struct block *blocks;
static struct block *before;
static unsigned long calls;
static struct flash *flashes[MAX_FLASHES];
static size_t flash_count;
static uint64_t now;

/* QEMU 9 and newer refuse version 1, older ones version 2; QEMU reads it after the library is loaded. */
__attribute__((constructor)) static void choose_version(void)
{
    if (qemu_plugin_num_vcpus != NULL) {
        qemu_plugin_version = 2;
    }
}

static void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* Read an address through a cache; returns whether the flash was read. */
static bool misses(const struct flash *flash, struct cache *cache, uint64_t address)
{
    uint64_t sets = cache->lines / cache->ways;
    uint64_t start = address / flash->line;
    uint32_t part = (uint32_t)1 << (address % flash->line / flash->width);
    struct line *set = &cache->line[start % sets * cache->ways];
    struct line *line = set;
    for (uint64_t way = 0; way < cache->ways; way++) {
        if (set[way].used != 0 && set[way].address == start) {
            line = &set[way];
            break;
        }
        if (set[way].used < line->used) {
            line = &set[way];
        }
    }
    if (line->used == 0 || line->address != start) {
        line->address = start;
        line->filled = 0;
    }
    line->used = ++now;
    bool missed = (line->filled & part) == 0;
    line->filled |= part;
    return missed;
}

static bool holds(const struct flash *flash, uint64_t address)
{
    return address >= flash->base && address - flash->base < flash->size;
}

static void fetch(const struct block *block)
{
    for (size_t i = 0; i < flash_count; i++) {
        struct flash *flash = flashes[i];
        if (!holds(flash, block->first)) {
            continue;
        }
        for (uint64_t read = block->first / flash->width; read * flash->width < block->after; read++) {
            if (misses(flash, &flash->code, read * flash->width)) {
                struct misses *counts = &block->newest->misses[i];
                *(read == flash->fetched + 1 ? &counts->followed : &counts->jumped) += 1;
            }
            flash->fetched = read;
        }
    }
}

static void on_access(unsigned int cpu, uint32_t info, uint64_t address, void *data)
{
    struct block *block = data;
    (void)cpu;
    if (running == NULL || block->newest == NULL) {
        return;
    }
    unsigned int shift = qemu_plugin_mem_size_shift(info);
    if (shift == 1 || shift == 2) { /* a word is read as two halfwords, or as a byte, a halfword and a byte */
        block->newest->unaligned += (address & 1) != 0 ? shift : shift == 2 && (address & 2) != 0;
    }
    for (size_t i = 0; i < flash_count; i++) {
        struct flash *flash = flashes[i];
        if (holds(flash, address)) {
            struct cache *cache = flash->data.lines != 0 ? &flash->data : &flash->code;
            block->newest->misses[i].data += misses(flash, cache, address);
        }
    }
}

static bool inside(const struct block *block)
{
    return block->in == running || block->through;
}

static void leave(struct block *from, const struct block *to)
{
    if (to->first == from->last + 2) {
        from->newest->after_2++;
    } else if (to->first == from->last + 4) {
        from->newest->after_4++;
    } else if (from->ends && from->in == running) {
        running->ended++;
        running = NULL;
    } else if (inside(from) && !inside(to)) {
        fprintf(out, "call %lu %" PRIx64 "\n", ++calls, to->first);
    }
}

static void on_block(unsigned int cpu, void *data)
{
    struct block *block = data;
    (void)cpu;
    if (before != NULL) {
        leave(before, block);
    }
    before = NULL;
    for (size_t i = 0; running == NULL && i < function_count; i++) {
        if (block->first == functions[i].begin) {
            running = &functions[i];
            running->started++;
        }
    }
    if (running != NULL) {
        unsigned long call = inside(block) ? 0 : calls;
        if (block->newest == NULL || block->newest->call != call) {
            struct tally *tally = zeroed(sizeof *tally);
            tally->call = call;
            tally->older = block->newest;
            block->newest = tally;
        }
        block->newest->count++;
        before = block;
        fetch(block);
    }
}

static bool lies_in(const struct block *block, const struct function *function)
{
    return block->first >= function->begin && block->first - function->begin < function->size;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb)
{
    struct block *block = zeroed(sizeof *block);
    (void)id;
    block->first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    block->last = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1));
    block->after = block->last + qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1));
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_access, 0, READS_AND_WRITES, block);
    }
    for (size_t i = 0; i < function_count; i++) {
        if (lies_in(block, &functions[i])) {
            block->in = &functions[i];
        }
    }
    for (size_t i = 0; i < through_count; i++) {
        block->through = block->through || lies_in(block, &through[i]);
    }
    for (size_t i = 0; i < end_count; i++) {
        block->ends = block->ends || ends[i] == block->last;
    }
    block->older = blocks;
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, 0, block);
}

static void on_exit_of_qemu(uint64_t id, void *data)
{
    (void)id;
    (void)data;
    for (size_t i = 0; i < function_count; i++) {
        fprintf(out, "runs %lu %lu\n", functions[i].started, functions[i].ended);
    }
    for (const struct block *block = blocks; block != NULL; block = block->older) {
        for (const struct tally *tally = block->newest; tally != NULL; tally = tally->older) {
            fprintf(out, "block %lu %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, tally->call,
                    block->first, block->last, tally->count, tally->after_2, tally->after_4, tally->unaligned);
            for (size_t i = 0; i < flash_count; i++) {
                const struct misses *counts = &tally->misses[i];
                fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64, counts->jumped, counts->followed, counts->data);
            }
            fputc('\n', out);
        }
    }
    fclose(out);
}

/* Add a flash from its description; returns whether that is valid. */
static bool add_flash(const char *text)
{
    if (flash_count == MAX_FLASHES) {
        return false;
    }
    struct flash *flash = zeroed(sizeof *flash);
    int read = sscanf(text,
                      "%" SCNx64 ":%" SCNx64 ":%" SCNx64 ":%" SCNx64 ":%" SCNx64 ":%" SCNx64 ":%" SCNx64 ":%" SCNx64,
                      &flash->base, &flash->size, &flash->width, &flash->code.lines, &flash->code.ways,
                      &flash->data.lines, &flash->data.ways, &flash->line);
    flashes[flash_count++] = flash;
    return read == 8 && flash->width != 0 && flash->line / flash->width >= 1 && flash->line / flash->width <= 32 &&
           flash->code.ways != 0 && flash->code.lines >= flash->code.ways && flash->code.lines <= MAX_LINES &&
           flash->data.lines <= MAX_LINES && (flash->data.lines == 0 || flash->data.ways != 0);
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "begin=", 6) == 0 && function_count < MAX_FUNCTIONS) {
            functions[function_count++].begin = strtoull(argv[i] + 6, NULL, 16);
        } else if (strncmp(argv[i], "size=", 5) == 0 && function_count != 0) {
            functions[function_count - 1].size = strtoull(argv[i] + 5, NULL, 16);
        } else if (strncmp(argv[i], "through=", 8) == 0 && through_count < MAX_FUNCTIONS &&
                   sscanf(argv[i] + 8, "%" SCNx64 ":%" SCNx64, &through[through_count].begin,
                          &through[through_count].size) == 2) {
            through_count++;
        } else if (strncmp(argv[i], "end=", 4) == 0 && end_count < MAX_ENDS) {
            ends[end_count++] = strtoull(argv[i] + 4, NULL, 16);
        } else if (strncmp(argv[i], "flash=", 6) == 0 && add_flash(argv[i] + 6)) {
            continue;
        } else if (strncmp(argv[i], "out=", 4) == 0) {
            out_path = argv[i] + 4;
        } else {
            fprintf(stderr, "blocks: unknown or too many: %s\n", argv[i]);
            return 1;
        }
    }
    if (out_path == NULL || end_count == 0 || function_count == 0 || functions[function_count - 1].size == 0) {
        fprintf(stderr, "blocks: begin, size, end and out are needed\n");
        return 1;
    }
    out = fopen(out_path, "w");
    if (out == NULL) {
        perror(out_path);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
    return 0;
}
