/* Internal to mtool: applications include mtool.h. */
/* Linking objects with different calling conventions fails, with this symbol in the linker's message.
 *
 * Every object that includes a model's header has an empty section in a group named after the model's conventions.
 * The linker keeps one section of a group; groups with different names define the symbol more than once. This adds
 * nothing to the firmware. Works with GCC and Clang for every ELF target; nothing is checked elsewhere. */
#ifndef MT_CONVENTION_H
#define MT_CONVENTION_H

#if defined(__GNUC__) && defined(__ELF__)
#define MT_CONVENTION(name)                                                                                    \
    __asm__(".ifndef .Lmt_convention_" #name "\n"                                                              \
            ".set .Lmt_convention_" #name ", 1\n"                                                              \
            ".pushsection .rodata.mt_convention,\"aG\",%progbits,mt_convention_" #name ",comdat\n"             \
            ".global mt_models_have_different_calling_conventions\n"                                           \
            "mt_models_have_different_calling_conventions:\n"                                                  \
            ".popsection\n"                                                                                    \
            ".endif\n")
#else
#define MT_CONVENTION(name) extern int mt_convention_##name
#endif

#endif
