"""C names of a model and of its tensors, whatever they are called: they build as C99 and as C++17, and differ.

A name that is plainly safe stays as it is but for what no C name has: "kws", "input_1". Others get a beginning that
nothing else has: "model_math", "t_NULL"; long ones are shortened, with a hash of the whole.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

# Names that generated C must not use: keywords, macros, headers, targets of build systems.
#
# `mtool.base.identifiers` gives a name that is here another beginning. Macros of headers are known by their form where
# they have one (capitals): vendors' headers have ten thousands. tests/compiler/codegen/test_names.py holds the lists
# against the toolchains that are installed.


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


KEYWORDS = _words(
    # C99, C11 and C23
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas
    alignof bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual
    """,
    # C++20 and its technical specifications, with the words that stand for operators
    """
    and and_eq asm atomic_cancel atomic_commit atomic_noexcept bitand bitor catch char8_t char16_t char32_t class
    compl concept consteval constinit const_cast co_await co_return co_yield decltype delete dynamic_cast explicit
    export friend mutable namespace new noexcept not not_eq operator or or_eq private protected public reflexpr
    reinterpret_cast requires static_cast synchronized template this throw try typeid typename using virtual wchar_t
    xor xor_eq
    """,
    # types of <stdint.h>, which C++ lets no member hide that a structure has used
    "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t",
    # of compilers
    "far fortran interrupt near",
)
# Macros in small letters: of compilers, of the C library (avr-libc has `#define sinf sin`), of POSIX's structures.
_MACROS = _words(
    """
    hpux i386 linux mips sparc sun unix vax complex errno imaginary math_errhandling noreturn stderr stdin stdout
    acosf asinf atan2f atanf cbrtf ceilf copysignf cosf coshf expf fabsf fdimf floorf fmaf fmaxf fminf fmodf frexpf
    hypotf isfinitef isinff isnanf ldexpf log10f logf lrintf lroundf powf roundf signbitf sinf sinhf squaref tanf
    tanhf truncf fd_set fds_bits physadr quad signgam strtodf tzname d_fileno d_ino h_addr h_errno s_addr sa_handler
    sa_sigaction sched_priority st_atime st_birthtime st_ctime st_mtime CoreDebug SCnSCB SysTick Arduino_h Binary_h
    Character_h HardwareSerial_h IPAddress_h Pins_Arduino_h Print_h Printable_h Stream_h String_class_h
    """,
)
_MACRO_FORMS = re.compile(
    r"I"  # <complex.h>
    r"|[A-Z][A-Z0-9_]+"  # as macros are written
    r"|[A-Z]\w*_(vect|vect_num|[bg][mp]|Msk|Pos)"  # interrupts and bits of AVR's and CMSIS's registers
    r"|(PRI|SCN)[diouxX]\w+|[MLP]_\w+|(AF|PF)_\w+"  # <inttypes.h>, <math.h>, <stdio.h>
    r"|(ifa|ifc|ifr|s6|si|sigev)_\w+"  # <net/if.h>, <netinet/in.h>, <signal.h>
)
_HEADERS = _words(
    # ISO C
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
    """,
    # POSIX, and what C libraries (glibc, newlib, picolibc, avr-libc) and compilers add
    """
    aio aliases alloca auto_ptr backward_warning binders ar argp argz byteswap cpio crypt devctl dirent dlfcn elf
    endian envlock envz err error execinfo fastmath fcntl features fmtmsg fnmatch fpu_control fstab fts ftw gconv gcov
    getopt glob grp gshadow hash_fun hashtable iconv ieeefp ifaddrs langinfo lastlog libgen libintl libio link malloc
    mcheck memory mntent monetary mqueue ndbm netdb newlib nl_types nss obstack paths picolibc picotls poll printf
    pthread pty pwd re_comp reent regdef regex regexp resolv sched search semaphore semihost sgtty shadow spawn stab
    stdfix strings syscall sysexits syslog tar termio termios thread_db ttyent ucontext ulimit unctrl unistd unwind
    utime utmp utmpx values varargs wait wordexp cpuid mm_malloc omp openacc proc_service quadmath stdio_ext syslimits
    arm_acle arm_bf16 arm_cde arm_cmse arm_fp16 arm_math arm_mve arm_mve_types arm_neon arm_nn_types arm_nnfunctions
    arm_nnsupportfunctions arm_sve riscv_vector
    """,
    # libraries in crt
    "monocypher",
    # Arduino's cores and their libraries
    """
    arduino abi binary client dma eeprom ethernet hardwareserial hid hooks ipaddress new pins_arduino platformio
    pluggableusb print printable sd server servo softwareserial spi stream tone udp usbapi usbcore usbdesc variant
    wcharacter wifi winterrupts wire wiring wiring_private wmath wprogram wstring
    """,
    # Zephyr, CMSIS and vendors
    """
    arch autoconf cmsis_compiler cmsis_gcc cmsis_os cmsis_os2 cmsis_version device devicetree kernel linker
    linker_defs offsets sdkconfig soc syscalls sys_clock toolchain version zephyr
    """,
    # what functions of Zephyr begin with that end as a model's do (_start, _reset)
    "counter k_thread k_timer",
    # a project's own files
    "arena guard main platform port port_windows project runner standalone startup submitter timer",
)
_HEADER_FORMS = re.compile(r"mt(_.*)?|\w*intrin|cmsis_.*|core_(ca|cm|sc|star)\w*")
# Targets of CMake, libraries whose file a lib<target>.a would hide, and words of YAML.
_TARGETS = _words(
    """
    all all_build app cmake clean default depend docs edit_cache flash_all help install install_local install_strip
    list package package_source run_tests src test tests uninstall zero_check atomic c dl g gcc gloss m nosys rt util
    false ignore n no notfound null off on true y yes
    """,
    # Symbols of Zephyr's Kconfig that are one word (CONFIG_<TARGET> chooses a model there), and names of its modules.
    """
    acpi adc arc arm arm64 assert audio auxdisplay bindesc board bt bluetooth cache can cbprintf charger clock_control
    coap comparator console coredump counter cpp crc crypto dac dai debug demand_paging disk display dma dsp edac
    eeprom emul entropy errno espi ethernet events fcb file_system firmware flash fpga fpu fuel_gauge gdbstub gnss
    gpio gpu haptics hwinfo hwspinlock i2c i2s i3c input instrumentation intc ipm irq isr_tables itim jwt kscan led
    led_strip lib linker llext logging log lora lorawan lvgl mbedtls mbox mcumgr mctp mdio mem_attr memc mfd mic midi
    mips mm mmu modbus modem module modules mpu mqtt multithreading nanopb net networking nios2 nvs openthread opamp
    p4wq pcie peci picolibc pinctrl pipes pm poll power posix printk profiling ps2 psci ptp pwm ram rand regulator
    reset retention riscv rtc rtio sdhc sensing sensor serial settings shell sip_svc smbus smf smp sntp soc sparc spi
    sram stack stats stepper stream_flash syscon task_wdt tee tensorflow timer timing_functions tracing uart
    uart_console usb usbc userspace uuid video w1 watchdog wdt websocket wifi win32 x86 xip xtensa zbus zms zephyr
    """,
)
_WINDOWS = re.compile(r"con|prn|aux|nul|(com|lpt)\d")  # no file may be called so there


def is_macro(name: str) -> bool:
    """Whether a name may be a macro of some header."""
    return name in _MACROS or _MACRO_FORMS.fullmatch(name) is not None


def is_taken_by_a_file(stem: str) -> bool:
    """Whether files <stem>.h and <stem>.c may hide others, or can't be there."""
    return stem in _HEADERS or any(form.fullmatch(stem) is not None for form in (_HEADER_FORMS, _WINDOWS))


def is_taken_by_a_target(name: str) -> bool:
    """Whether a build system may have a target, a library, a module or an option of this name."""
    return name in _TARGETS


LONGEST_MODEL = 55  # with "_example" the longest name that Arduino gives a sketch, 63
LONGEST_TENSOR = 100
_HASH = 8


def model_name(stem: str) -> str:
    """Return the C name of a model: its files' name, and the beginning of its symbols."""
    name = re.sub(r"[^a-z0-9_]", "_", re.sub(r"[^\x00-\x7f]", "_", stem).lower()).strip("_")
    if not name or name[0].isdigit() or is_taken_by_a_file(name):
        name = f"model_{name}".rstrip("_")
    return _shortened(name, stem, LONGEST_MODEL)


def firmware_name(models: Sequence[str]) -> str:
    """Return the C name of a firmware of several models: of the file that includes them, of their arena."""
    name = "_".join(models)
    return _shortened(name, name, LONGEST_MODEL)


def target_name(model: str) -> str:
    """Return what a build system calls a model of this C name: CMake's target, Zephyr's module and option."""
    return f"model_{model}" if is_taken_by_a_target(model) else model


def tensor_names(names: Iterable[str]) -> list[str]:
    """Return a C identifier for each name; all differ, also where a macro has them in capitals."""
    made: list[str] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "tensor"
        if stem[0].isdigit() or stem in KEYWORDS or is_macro(stem):
            stem = f"t_{stem}"
        stem = _shortened(stem, name, LONGEST_TENSOR)
        unique, number = stem, numbers.get(stem.upper(), 1)
        while unique.upper() in taken:
            number += 1
            unique = f"t_{stem}_{number}" if is_macro(f"{stem}_{number}") else f"{stem}_{number}"
        numbers[stem.upper()] = number
        taken.add(unique.upper())
        made.append(unique)
    return made


def _shortened(name: str, whole: str, most: int) -> str:
    """Return a name of at most `most` characters; `whole` is what it was made of."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: most - _HASH - 1].rstrip('_')}_{digest}"
