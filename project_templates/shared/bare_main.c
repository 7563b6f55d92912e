/* Host-driven firmware: the RPC server runs the model when the host says so. */
#include "mt_build.h"
#include "mtool.h"

extern uint8_t mt_stack_low[];

static uint32_t buffer[{{ cookiecutter.options.rpc_buffer_bytes }} / 4];

int main(void)
{
    {{ "" if cookiecutter.modules else "const " }}struct mt_server_config config = {
        .model = &mt_model,
        .build_hash = MT_BUILD_HASH,
        .buffer = (uint8_t *)buffer,
        .buffer_bytes = sizeof buffer,
        .stack_low = mt_stack_low,
{% set ring = {"rtt": "rtt_bytes", "uart": "uart_ring_bytes"}.get(cookiecutter.options.get("channel")) %}
{% if ring %}
        .window_bytes = {{ cookiecutter.options[ring] }} - 1, /* what port.c's ring holds */
{% endif %}
        .watch = mt_guard_watch,
    };
    int32_t status = mt_port_init();
    if (status == MT_OK) {
        mt_guard_init();
{% if cookiecutter.modules %}
        config.extension = mt_port_modules();
{% endif %}
        status = mt_server_run(&config);
    }
    mt_port_abort(status == MT_IO ? MT_OK : status); /* the host closed the channel: a clean end */
    return 0;
}
