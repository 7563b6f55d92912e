/* The model as a filter: bytes of the inputs in, bytes of the outputs out. */
#include <stdio.h>

#include "{{ cookiecutter.model }}.h"

int main(void)
{
    fputs("{{ cookiecutter.options.greeting }}\n", stderr);
    for (;;) {
{% for tensor in cookiecutter.manifest.inputs %}
        if (fread({{ cookiecutter.model }}_arena_inputs.{{ tensor.c_name }}, 1, {{ tensor.bytes }}, stdin) != {{ tensor.bytes }}) {
            return 0;
        }
{% endfor %}
        if ({{ cookiecutter.model }}_run(&{{ cookiecutter.model }}_arena_inputs, &{{ cookiecutter.model }}_arena_outputs) != 0) {
            return 1;
        }
{% for tensor in cookiecutter.manifest.outputs %}
        fwrite({{ cookiecutter.model }}_arena_outputs.{{ tensor.c_name }}, 1, {{ tensor.bytes }}, stdout);
{% endfor %}
        fflush(stdout);
    }
}
