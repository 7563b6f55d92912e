{# How a firmware ends whose guard can tell the host why. #}
void mt_port_abort(int32_t status)
{
    if (status != MT_OK) {
        mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_NONE, NULL, 0);
    }
    platform_exit(status);
}
