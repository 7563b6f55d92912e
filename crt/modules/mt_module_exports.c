/* Written by mtool/manifest/modules/exports.py, and a test holds the two together.
 *
 * The functions that modules may call: their addresses, by a rising hash of the declaration. MT_MODULE_MATH says how
 * many of the mathematical library are among them, and so in the firmware: 0 none, 1 the usual ones, 2 all. */
#include <math.h>
#include <string.h>

#include "mt_module.h"

#ifndef MT_MODULE_MATH
#define MT_MODULE_MATH 1
#endif

#define EXPORT(hash, name) {hash, (void (*)(void))(name)},

const struct mt_export mt_module_exports[] = {
#if MT_MODULE_MATH >= 2
    EXPORT(0x04EC56A8u, atanhf) /* float atanhf(float) */
    EXPORT(0x06033782u, acosf) /* float acosf(float) */
    EXPORT(0x07413616u, fmodf) /* float fmodf(float, float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0x08D7FA61u, expf) /* float expf(float) */
#endif
#if MT_MODULE_MATH >= 2
    EXPORT(0x0CE16327u, expm1f) /* float expm1f(float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0x0FBA5904u, floorf) /* float floorf(float) */
#endif
#if MT_MODULE_MATH >= 2
    EXPORT(0x10445032u, atanf) /* float atanf(float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0x13E89150u, truncf) /* float truncf(float) */
#endif
#if MT_MODULE_MATH >= 2
    EXPORT(0x1558F493u, remainderf) /* float remainderf(float, float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0x18CA3161u, ceilf) /* float ceilf(float) */
#endif
#if MT_MODULE_MATH >= 2
    EXPORT(0x2BE39296u, sinhf) /* float sinhf(float) */
    EXPORT(0x3596AE41u, erff) /* float erff(float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0x45713881u, tanhf) /* float tanhf(float) */
    EXPORT(0x57DC5758u, logf) /* float logf(float) */
#endif
#if MT_MODULE_MATH >= 2
    EXPORT(0x5CB69D9Du, tanf) /* float tanf(float) */
    EXPORT(0x6E513AC9u, log1pf) /* float log1pf(float) */
    EXPORT(0x7D0B3DE1u, cosf) /* float cosf(float) */
    EXPORT(0x819B68E0u, powf) /* float powf(float, float) */
    EXPORT(0x887132ECu, sinf) /* float sinf(float) */
#endif
    EXPORT(0x8F4A6AB6u, memcpy) /* void *memcpy(void *, const void *, size_t) */
    EXPORT(0x9E131648u, memset) /* void *memset(void *, int, size_t) */
#if MT_MODULE_MATH >= 1
    EXPORT(0xB970476Fu, rintf) /* float rintf(float) */
    EXPORT(0xBBB208C2u, roundf) /* float roundf(float) */
#endif
    EXPORT(0xC2789D15u, memmove) /* void *memmove(void *, const void *, size_t) */
#if MT_MODULE_MATH >= 2
    EXPORT(0xCF5EAC07u, asinhf) /* float asinhf(float) */
#endif
    EXPORT(0xE22DDA4Cu, memcmp) /* int memcmp(const void *, const void *, size_t) */
#if MT_MODULE_MATH >= 2
    EXPORT(0xE33CDAEFu, asinf) /* float asinf(float) */
    EXPORT(0xF78C5D86u, fmaf) /* float fmaf(float, float, float) */
    EXPORT(0xFA9F6C98u, acoshf) /* float acoshf(float) */
    EXPORT(0xFC75409Du, coshf) /* float coshf(float) */
#endif
#if MT_MODULE_MATH >= 1
    EXPORT(0xFF877F16u, sqrtf) /* float sqrtf(float) */
#endif
};

const uint32_t mt_module_export_count = sizeof mt_module_exports / sizeof mt_module_exports[0];
