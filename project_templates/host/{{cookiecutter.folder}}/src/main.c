/* Host-driven program: the RPC server runs the model when the other end of the pipe says so. */
#include "mt_build.h"
#include "mtool.h"

static uint64_t buffer[{{ cookiecutter.options.rpc_buffer_bytes }} / 8];

int main(void)
{
    const struct mt_server_config config = {
        .model = &mt_model,
        .build_hash = MT_BUILD_HASH,
        .buffer = (uint8_t *)buffer,
        .buffer_bytes = sizeof buffer,
        .stack_low = 0, /* the operating system's stack: not measured */
        .watch = mt_guard_watch,
    };
    int32_t status = mt_port_init();
    if (status == MT_OK) {
        mt_guard_init();
        status = mt_server_run(&config);
    }
    return status == MT_IO ? MT_OK : (int)status; /* the pipe was closed: a clean end */
}
