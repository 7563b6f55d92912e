/* A QEMU TCG plugin: how often each block of code ran during an inference, for whom, and where it went from there.
 *
 *     -plugin blocks.so,begin=HEX,size=HEX,end=HEX,end=HEX,...,out=FILE
 *
 * Counting starts where the function at `begin`, of `size` bytes, is entered and stops after the instruction at an `end`
 * (a return) has left it. FILE gets three kinds of lines, addresses in hexadecimal:
 *
 *     runs STARTED ENDED
 *     call NUMBER ADDRESS                      what the function called, from 1
 *     block CALL FIRST LAST COUNT PLUS2 PLUS4  what ran in a call (0: in the function itself): its first and last
 *                                              instruction, and how often the code 2 and 4 bytes after the last came next
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
#define MAX_ENDS 32

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*call)(unsigned int, void *),
                                                 int flags, void *data);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void *), void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern int qemu_plugin_num_vcpus(void) __attribute__((weak)); /* since API version 2 */

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);

/* What a block did during one call. */
struct tally {
    unsigned long call;
    uint64_t count;
    uint64_t after_2;
    uint64_t after_4;
    struct tally *older;
};

struct block {
    uint64_t first;
    uint64_t last;
    bool inside; /* the function at `begin` */
    bool ends;
    struct tally *newest;
    struct block *older;
};

static uint64_t begin;
static uint64_t size;
static uint64_t ends[MAX_ENDS];
static size_t end_count;
static const char *out_path;
static FILE *out;
static struct block *blocks;
static struct block *before;
static bool active;
static unsigned long calls;
static unsigned long started;
static unsigned long ended;

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

static void leave(struct block *from, const struct block *to)
{
    if (to->first == from->last + 2) {
        from->newest->after_2++;
    } else if (to->first == from->last + 4) {
        from->newest->after_4++;
    } else if (from->ends) {
        active = false;
        ended++;
    } else if (from->inside && !to->inside) {
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
    if (!active && block->first == begin) {
        active = true;
        started++;
    }
    if (active) {
        unsigned long call = block->inside ? 0 : calls;
        if (block->newest == NULL || block->newest->call != call) {
            struct tally *tally = zeroed(sizeof *tally);
            tally->call = call;
            tally->older = block->newest;
            block->newest = tally;
        }
        block->newest->count++;
        before = block;
    }
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb)
{
    struct block *block = zeroed(sizeof *block);
    (void)id;
    block->first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    block->last = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1));
    block->inside = block->first >= begin && block->first < begin + size;
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
    fprintf(out, "runs %lu %lu\n", started, ended);
    for (const struct block *block = blocks; block != NULL; block = block->older) {
        for (const struct tally *tally = block->newest; tally != NULL; tally = tally->older) {
            fprintf(out, "block %lu %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", tally->call,
                    block->first, block->last, tally->count, tally->after_2, tally->after_4);
        }
    }
    fclose(out);
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "begin=", 6) == 0) {
            begin = strtoull(argv[i] + 6, NULL, 16);
        } else if (strncmp(argv[i], "size=", 5) == 0) {
            size = strtoull(argv[i] + 5, NULL, 16);
        } else if (strncmp(argv[i], "end=", 4) == 0 && end_count < MAX_ENDS) {
            ends[end_count++] = strtoull(argv[i] + 4, NULL, 16);
        } else if (strncmp(argv[i], "out=", 4) == 0) {
            out_path = argv[i] + 4;
        } else {
            fprintf(stderr, "blocks: unknown or too many: %s\n", argv[i]);
            return 1;
        }
    }
    if (out_path == NULL || end_count == 0 || size == 0) {
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
