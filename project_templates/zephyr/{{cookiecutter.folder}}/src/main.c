/* Host-driven firmware: the RPC server runs the model when the host says so. */
#include <zephyr/kernel.h>

#include "mt_build.h"
#include "mtool.h"

static uint32_t buffer[{{ cookiecutter.options.rpc_buffer_bytes }} / 4];

{% if cookiecutter.protect %}
static void serve(void *first, void *second, void *third)
{
    ARG_UNUSED(first);
    ARG_UNUSED(second);
    ARG_UNUSED(third);
{% else %}
int main(void)
{
{% endif %}
    {{ "" if cookiecutter.modules else "const " }}struct mt_server_config config = {
        .model = &mt_model,
        .build_hash = MT_BUILD_HASH,
        .buffer = (uint8_t *)buffer,
        .buffer_bytes = sizeof buffer,
#ifdef CONFIG_THREAD_STACK_INFO
        /* Past the kernel's sentinel, and past a guard that grows with the FPU's registers. */
        .stack_low = (uint8_t *)k_current_get()->stack_info.start + 128,
#endif
{% if cookiecutter.options.channel == "rtt" %}
        .window_bytes = {{ cookiecutter.options.rtt_bytes }} - 1, /* what port.c's ring holds */
{% else %}
        .window_bytes = {{ cookiecutter.options.uart_ring_bytes }}, /* port.c's ring buffer */
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
    mt_port_abort(status);
{% if not cookiecutter.protect %}
    return 0;
{% endif %}
}
{% if cookiecutter.protect %}

/* A stack that memory protection can divide between the server and the models: protect.ld aligns it. */
static struct z_thread_stack_element stack[{{ cookiecutter.options.stack_bytes }}]
    __attribute__((section(".bss.mt_stack"), aligned(Z_KERNEL_STACK_OBJ_ALIGN)));
static struct k_thread server;

int main(void)
{
    (void)k_thread_create(&server, stack, K_KERNEL_STACK_SIZEOF(stack), serve, NULL, NULL, NULL,
                          CONFIG_MAIN_THREAD_PRIORITY, 0, K_NO_WAIT);
    return 0;
}
{% endif %}
