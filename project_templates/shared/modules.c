/* The module loader: the accepted signers, and the modules' memory. */
#include <stddef.h>

#include "mt_loader.h"
#include "mtool.h"

{% if cookiecutter.modules.public_keys %}
static const uint8_t keys[][32] = {
{% for key in cookiecutter.modules.public_keys %}
    { {{ key | join(", ") }} },
{% endfor %}
};

{% endif %}
static const struct mt_module_kind *const kinds[] = {
{%- for kind in cookiecutter.modules.kinds %}&mt_module_{{ kind }}, {% endfor %}NULL};

/* Its contents are not used after a reset. */
static uint8_t ram[{{ cookiecutter.modules.ram_bytes }}]
    __attribute__((aligned(4096), section("{{ module_ram_section | default(".bss.mt_module_ram") }}")));

struct mt_extension *mt_port_modules(void)
{
    static struct mt_loader loader;
    loader.host.exports = mt_module_exports;
    loader.host.export_count = mt_module_export_count;
    loader.host.machine = mt_module_machine();
{% if cookiecutter.modules.public_keys %}
    loader.host.keys = keys;
    loader.host.key_count = sizeof keys / sizeof keys[0];
{% endif %}
    loader.host.takes_unsigned = {{ 1 if cookiecutter.modules.takes_unsigned else 0 }};
    loader.host.kinds = kinds;
    loader.host.ram = ram;
    loader.host.ram_bytes = sizeof ram;
    loader.storage = mt_port_storage();
    loader.slot_bytes = {{ cookiecutter.modules.slot_bytes }};
    loader.delta = &mt_loader_delta;
    (void)mt_loader_start(&loader); /* an unusable module is ignored */
    return &loader.extension;
}
