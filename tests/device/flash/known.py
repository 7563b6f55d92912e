"""The expected behaviour of each runner: settings, commands, and its message if no board is attached."""

ELF, HEX, BIN = "/p/build/zephyr/zephyr.elf", "/p/build/zephyr/zephyr.hex", "/p/build/zephyr/zephyr.bin"
TO_HEX = f"arm-none-eabi-objcopy -O ihex {ELF} {HEX}"
TO_BIN = f"arm-none-eabi-objcopy -O binary {ELF} {BIN}"
OPTIONS = "chip_erase_mode=ERASE_RANGES_TOUCHED_BY_FIRMWARE,verify=VERIFY_READ,reset=RESET_SYSTEM"

SETTINGS: dict[str, dict[str, str | int]] = {
    "west": {"runner": "openocd"},
    "openocd": {"config": "board/stm32f746g-disco.cfg"},
    "pyocd": {"target": "stm32f746zg"},
    "st-flash": {},
    "stm32cubeprogrammer": {},
    "nrfutil": {},
    "nrfjprog": {"family": "NRF52"},
    "jlink": {"device": "nRF52840_xxAA"},
    "avrdude": {"part": "atmega328p", "programmer": "arduino"},
    "bossac": {"offset": 0x2000, "touch": 1},
    "dfu-util": {"id": "0483:df11"},
    "picotool": {},
    "uf2": {"volume": "RPI-RP2", "family": "0xe48bff56"},
    "esptool": {"chip": "esp32s3", "address": 0x10000},
    "arduino-cli": {},
    "gdb": {},
    "command": {"run": "'lab tool' write --to={port} {elf} '{folder}/a b' {0} $HOME;reboot"},
}
"""Of the board that the tests flash, as its entry in boards.yaml would have them."""

LINES = {
    "west": [
        "west flash --skip-rebuild --build-dir /p/build --runner openocd --verify"
        " --cmd-pre-init 'adapter serial 0671FF'"
    ],
    "openocd": [
        f"openocd -f board/stm32f746g-disco.cfg -c 'adapter serial 0671FF' -c 'program {{{ELF}}} verify reset exit'"
    ],
    "pyocd": [f"pyocd flash --no-wait --target stm32f746zg --uid 0671FF {ELF}"],
    "st-flash": [TO_BIN, f"st-flash --serial 0671FF --reset write {BIN} 0x08000000"],
    "stm32cubeprogrammer": [
        f"STM32_Programmer_CLI --connect port=SWD mode=UR reset=HWrst sn=0671FF --download {ELF} --verify -hardRst"
    ],
    "nrfutil": [TO_HEX, f"nrfutil device program --firmware {HEX} --options {OPTIONS} --serial-number 0671FF"],
    "nrfjprog": [
        TO_HEX,
        f"nrfjprog --family NRF52 --program {HEX} --sectorerase --verify --reset --snr 0671FF",
    ],
    "jlink": [
        f'# /p/build/flash.jlink holds: r; loadfile "{ELF}"; r; g; q',
        "JLinkExe -nogui 1 -if SWD -speed 4000 -device nRF52840_xxAA -USB 671FF -autoconnect 1 -ExitOnError 1"
        " -CommandFile /p/build/flash.jlink",
    ],
    "avrdude": [
        TO_HEX,
        f"avrdude -q -p atmega328p -c arduino -P /dev/ttyACM7 -b 115200 -D -U flash:w:{HEX}:i",
    ],
    "bossac": [
        TO_BIN,
        "stty -F /dev/ttyACM7 1200 hupcl && sleep 2.5",
        f"bossac --port=ttyACM7 --erase --write --verify --offset=0x00002000 --reset {BIN}",
    ],
    "dfu-util": [TO_BIN, f"dfu-util -d 0483:df11 -a 0 -S 0671FF -s 0x08000000:leave -D {BIN}"],
    "picotool": [f"picotool load --verify --execute {ELF} -t elf -f --ser 0671FF"],
    "esptool": [
        TO_BIN,
        "esptool --chip esp32s3 --port /dev/ttyACM7 --baud 921600 --before default-reset --after hard-reset"
        f" write-flash 0x00010000 {BIN}",
    ],
    "arduino-cli": [
        "arduino-cli upload --fqbn vendor:arch:board --port /dev/ttyACM7 --verify --input-dir /p/build/zephyr /p/zephyr"
    ],
    "gdb": [
        "gdb-multiarch -nx -batch -ex 'set confirm off' -ex 'set remotetimeout 10'"
        " -ex 'target extended-remote /dev/ttyACM7' -ex load -ex compare-sections -ex 'monitor system_reset'"
        f" -ex detach {ELF}"
    ],
    "command": [f"'lab tool' write --to=/dev/ttyACM7 {ELF} '/p/a b' '{{0}}' '$HOME;reboot'"],
}
"""Of a job with the probe 0671FF and the port /dev/ttyACM7; uf2 copies a file."""

NO_PROBE = {
    "west": "Error: open failed\nFATAL ERROR: command exited with status 1: openocd",
    "openocd": "Error: open failed\nin procedure 'program'\n** OpenOCD init failed **",
    "pyocd": "0000123 W No available debug probes are connected [__main__]",
    "st-flash": "2026-01-01T00:00:00 WARN usb.c: Couldn't find any ST-Link devices",
    "stm32cubeprogrammer": "Error: No debug probe detected.",
    "nrfutil": "Error: No devices found (Could not find any matching devices)",
    "nrfjprog": "ERROR: There is no debugger connected to the PC.",
    "jlink": "Connecting to J-Link via USB...FAILED: Cannot connect to J-Link.",
    "avrdude": "avrdude error: cannot open port /dev/ttyACM7: No such file or directory",
    "bossac": "No device found on ttyACM7",
    "dfu-util": "dfu-util: No DFU capable USB device available",
    "picotool": "No accessible RP-series devices in BOOTSEL mode were found.",
    "uf2": "cp: cannot create regular file '/media/me/RPI-RP2/': No such file or directory",
    "esptool": "A fatal error occurred: Failed to connect to ESP32-S3: No serial data received.",
    "arduino-cli": "Failed uploading: no upload port provided\navrdude: ser_open(): can't open device",
    "gdb": "127.0.0.1:3333: Connection refused.\nYou can't do that when your target is `exec'",
}
