/* Internal to mtool: applications include <model>.h or mtool.h. */
/* Where variables lie: the arena, the pools of an arena in several memories, buffers of devices. */
#ifndef MT_PLACE_H
#define MT_PLACE_H

/* Declares a model's arena: in its own section, so that a linker script can place it in a memory that is large
 * enough. Default linker scripts treat it as .bss. It must be zero at the start. */
#ifndef MT_ARENA_SECTION
#define MT_ARENA_SECTION ".bss.mtool_arena"
#endif
#if defined(__GNUC__) && defined(__ELF__)
#define MT_ARENA __attribute__((aligned(16), section(MT_ARENA_SECTION)))
#elif defined(__GNUC__)
#define MT_ARENA __attribute__((aligned(16)))
#else
#define MT_ARENA
#endif

/* Its alignment, if a device needs more. */
#if defined(__GNUC__)
#define MT_ARENA_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#define MT_ARENA_ALIGNED(bytes)
#endif

/* Declare a buffer in one of the board's memories, for regions in addition to the arena, or as a pool of an
 * arena in several memories: in the section ".bss.mt_memory.<memory>", which a linker script must place there.
 * Its initial contents are undefined. */
#ifndef MT_MEMORY_SECTION
#define MT_MEMORY_SECTION(memory) ".bss.mt_memory." #memory
#endif
#define MT_IN_MEMORY(memory, alignment) MT_PLACED(MT_MEMORY_SECTION(memory), alignment)

/* The same in a named section. */
#if defined(__GNUC__) && defined(__ELF__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment), section(name)))
#elif defined(__GNUC__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment)))
#else
#define MT_PLACED(name, alignment)
#endif

#endif
