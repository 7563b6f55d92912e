/* Internal to mtool: applications include mtool.h. */
/* Common parts of kernels for computers: vectors of floats, with an extension of GCC and Clang.
 *
 * MT_SIMD_BY_WIDTH chooses at run time: eight floats if a PC's processor has AVX, otherwise four (SSE, NEON). So a
 * program built on one PC runs on another. Products are rounded before they are added, on every processor: results
 * are the same everywhere. Integers are computed as floats where all sums are below 2^24, which is exact. Other
 * compilers, and MT_PORTABLE, get loops. */
#ifndef MT_SIMD_H
#define MT_SIMD_H

#include <stdint.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(MT_PORTABLE)
#define MT_SIMD_VECTORS 1
typedef float mt_simd_4 __attribute__((vector_size(16), aligned(4), may_alias));
#endif

/* GCC for Windows does not align vectors of eight floats that it spills to the stack. */
#if defined(MT_SIMD_VECTORS) && (defined(__x86_64__) || defined(__i386__)) && \
    (defined(__clang__) || !defined(_WIN32)) && !defined(MT_SIMD_NARROW)
#define MT_SIMD_WIDE 1
typedef float mt_simd_8 __attribute__((vector_size(32), aligned(4), may_alias));
#include <cpuid.h>
#endif

/* The following loop writes nothing that a later iteration reads. */
#if defined(__clang__)
#define MT_SIMD_LOOP MT_PRAGMA(clang loop vectorize(assume_safety))
#elif defined(__GNUC__)
#define MT_SIMD_LOOP MT_PRAGMA(GCC ivdep)
#else
#define MT_SIMD_LOOP
#endif

#ifdef MT_SIMD_WIDE
/* Whether the processor has AVX and the system saves its registers (Intel SDM volume 1, 14.3). */
static inline int mt_simd_is_wide(void)
{
    static int known; /* 0: unknown, 1: no, 2: yes; every caller computes the same */
    if (!known) {
        unsigned int a, b, c, d, saved = 0;
        if (__get_cpuid(1, &a, &b, &c, &d) && (c >> 27 & 3u) == 3u)
            __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
        known = (saved & 6u) == 6u ? 2 : 1;
    }
    return known == 2;
}

/* Define a function from a macro with a version for vectors of four and of eight, `kernel(attributes, name,
 * vector)`. */
#define MT_SIMD_BY_WIDTH(kernel, name, parameters, arguments)          \
    kernel(static MT_ALONE, name##_4, mt_simd_4)                       \
    kernel(static MT_ALONE __attribute__((target("avx"))), name##_8, mt_simd_8) \
    static inline void name parameters                                 \
    {                                                                  \
        if (mt_simd_is_wide())                                         \
            name##_8 arguments;                                        \
        else                                                           \
            name##_4 arguments;                                        \
    }
#elif defined(MT_SIMD_VECTORS)
#define MT_SIMD_BY_WIDTH(kernel, name, parameters, arguments) kernel(static MT_ALONE, name, mt_simd_4)
#endif

#endif
