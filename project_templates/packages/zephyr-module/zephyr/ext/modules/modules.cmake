# Zephyr includes this before it reads Kconfig. The newlib of some distributions lacks the locks that Zephyr
# requires; use picolibc if such a compiler (not from Zephyr's SDK) has it.
set(SYSTEM_GCC_gnuarmemb $ENV{GNUARMEMB_TOOLCHAIN_PATH}/bin/arm-none-eabi-gcc)
set(SYSTEM_GCC_cross-compile $ENV{CROSS_COMPILE}gcc)
if(DEFINED SYSTEM_GCC_$ENV{ZEPHYR_TOOLCHAIN_VARIANT})
  execute_process(COMMAND ${SYSTEM_GCC_$ENV{ZEPHYR_TOOLCHAIN_VARIANT}} -print-file-name=picolibc.specs
    OUTPUT_VARIABLE PICOLIBC_SPECS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(IS_ABSOLUTE "${PICOLIBC_SPECS}")
    set(TOOLCHAIN_HAS_PICOLIBC ON CACHE BOOL "The compiler has picolibc.")
  endif()
endif()
