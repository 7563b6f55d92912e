/* Code and constants, and read-only data in RAM, from the linker script. */
extern uint8_t mt_constants_start[], mt_constants_end[];
{% if cookiecutter.regions.weights == cookiecutter.regions.code %}
extern uint8_t mt_weights_start[], mt_text_end[];
static const struct mt_protect_area flash[] = {
    {mt_weights_start, mt_text_end, MT_PROTECT_EXECUTE},
    {mt_constants_start, mt_constants_end, MT_PROTECT_READ},
};
{% else %}
extern uint8_t mt_weights_start[], mt_weights_end[], mt_text_start[], mt_text_end[];
static const struct mt_protect_area flash[] = {
    {mt_text_start, mt_text_end, MT_PROTECT_EXECUTE},
    {mt_weights_start, mt_weights_end, MT_PROTECT_READ},
    {mt_constants_start, mt_constants_end, MT_PROTECT_READ},
};
{% endif %}
