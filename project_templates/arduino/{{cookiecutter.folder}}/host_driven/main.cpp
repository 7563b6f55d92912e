/* Host-driven sketch: the RPC server runs the model when the host says so. */
#include <Arduino.h>

extern "C" {
#include <mt_build.h>
#include <mtool.h>

#ifdef __AVR__
extern uint8_t __heap_start; /* after .bss; the sketch has no heap, so the stack may grow down to here */
#endif
}

#ifdef SERIAL_RX_BUFFER_SIZE
#define WINDOW_BYTES (SERIAL_RX_BUFFER_SIZE - 1) /* the ring buffer of the UART's interrupt */
#else
#define WINDOW_BYTES 63
#endif

static uint32_t buffer[{{ cookiecutter.options.rpc_buffer_bytes }} / 4];

void setup()
{
    mt_port_init();
}

void loop()
{
    static mt_server_config config;
    config.model = &mt_model;
    config.build_hash = MT_BUILD_HASH;
    config.buffer = (uint8_t *)buffer;
    config.buffer_bytes = sizeof buffer;
    config.window_bytes = WINDOW_BYTES;
#ifdef __AVR__
    config.stack_low = &__heap_start;
#endif
    mt_server_run(&config); /* returns when the host requests a reset; loop() then starts it again */
}
