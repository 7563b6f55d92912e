"""PlatformIO without its registry: Debian's compiler and core as packages, and a minimal platform."""

import json
import subprocess
import sys
from pathlib import Path

CORE = Path("/usr/share/arduino/hardware/arduino/avr")
VERSION = "1.0.0"

# The least that builds an AVR board: the compiler, the core as a library, the variant.
BUILDER = """
from SCons.Script import AlwaysBuild, Default, DefaultEnvironment
import os

env = DefaultEnvironment()
board = env.BoardConfig()
core = env.PioPlatform().get_package_dir("framework-arduino-avr")
mcu = "-mmcu=" + board.get("build.mcu")
env.Replace(
    AR="avr-gcc-ar", AS="avr-as", CC="avr-gcc", CXX="avr-g++", OBJCOPY="avr-objcopy", RANLIB="avr-gcc-ranlib",
    SIZETOOL="avr-size", PROGNAME="firmware", PROGSUFFIX=".elf", ARFLAGS=["rc"],
)
env.Append(
    ASPPFLAGS=["-x", "assembler-with-cpp", mcu],
    CCFLAGS=["-Os", "-w", "-ffunction-sections", "-fdata-sections", mcu],
    CFLAGS=["-std=gnu11"],
    CXXFLAGS=["-std=gnu++11", "-fno-exceptions", "-fno-threadsafe-statics", "-fpermissive"],
    CPPDEFINES=[
        ("F_CPU", board.get("build.f_cpu")), ("ARDUINO", 10819), "ARDUINO_ARCH_AVR", "DECIMAL_DIG=__DECIMAL_DIG__"
    ],
    CPPPATH=[os.path.join(core, "cores", "arduino"), os.path.join(core, "variants", board.get("build.variant"))],
    LINKFLAGS=["-Os", mcu, "-Wl,--gc-sections"],
    LIBS=["m"],
    BUILDERS=dict(
        ElfToHex=env.Builder(
            action=env.VerboseAction("$OBJCOPY -O ihex -R .eeprom $SOURCES $TARGET", "Building $TARGET"), suffix=".hex"
        )
    ),
)
program = env.BuildProgram()
Default([program, env.ElfToHex(os.path.join("$BUILD_DIR", "${PROGNAME}"), program)])
"""

FRAMEWORK = """
import os

Import("env")
core = env.PioPlatform().get_package_dir("framework-arduino-avr")
built = os.path.join("$BUILD_DIR", "FrameworkArduino")
sources = os.path.join(core, "cores", "arduino")
env.Prepend(LIBS=[env.BuildLibrary(built, sources, ["+<*>", "-<wiring_pulse.S>"])])  # beside a wiring_pulse.c
"""


def make(home: Path, pio: Path, *, board: str, mcu: str, hz: int, variant: str) -> tuple[str, dict[str, str]]:
    """Make the packages below `home`; return what platformio.ini has to say for `platform`, and the environment."""
    platform = home / "platform"
    packages = home / "core" / "packages"
    (platform / "boards").mkdir(parents=True)
    (platform / "builder").mkdir()
    packages.mkdir(parents=True)
    described = {
        "name": "local",
        "title": "local",
        "version": VERSION,
        "frameworks": {"arduino": {"package": "framework-arduino-avr", "script": "builder/arduino.py"}},
        "packages": {
            "framework-arduino-avr": {"type": "framework", "version": VERSION},
            "toolchain-atmelavr": {"type": "toolchain", "version": VERSION},
        },
    }
    (platform / "platform.json").write_text(json.dumps(described))
    (platform / "builder" / "main.py").write_text(BUILDER)
    (platform / "builder" / "arduino.py").write_text(FRAMEWORK)
    entry = {
        "build": {"core": "arduino", "f_cpu": f"{hz}L", "mcu": mcu, "variant": variant},
        "frameworks": ["arduino"],
        "name": board,
        "upload": {"maximum_ram_size": 2048, "maximum_size": 32256},
        "url": "",
        "vendor": "",
    }
    (platform / "boards" / f"{board}.json").write_text(json.dumps(entry))
    for name in ("framework-arduino-avr", "toolchain-atmelavr"):
        _package(packages / name, name, VERSION)
    for part in ("cores", "variants"):
        (packages / "framework-arduino-avr" / part).symlink_to(CORE / part)
    _package(packages / "tool-scons", "tool-scons", _scons_version(pio), owner="platformio")
    (packages / "tool-scons" / "scons.py").write_text("import SCons.Script\n\nSCons.Script.main()\n")
    return f"symlink://{platform}", {
        "PLATFORMIO_CORE_DIR": str(home / "core"),
        "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no",
    }


def _package(folder: Path, name: str, version: str, owner: str | None = None) -> None:
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))
    # With another owner than it is asked for by, it would be looked for in the registry.
    spec = {"owner": owner, "id": None, "name": name, "requirements": None, "uri": None}
    (folder / ".piopm").write_text(json.dumps({"type": "tool", "name": name, "version": version, "spec": spec}))


def _scons_version(pio: Path) -> str:
    """Return the version that this PlatformIO asks for."""
    python = pio.resolve().parent / "python"
    code = "from platformio.dependencies import *; print(get_core_dependencies()['tool-scons'].strip('~^='))"
    done = subprocess.run([python if python.exists() else sys.executable, "-c", code], capture_output=True, check=True)
    return done.stdout.decode().strip()
