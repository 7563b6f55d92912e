    const volatile uint32_t *load = mt_data_load;
    for (volatile uint32_t *word = mt_data_start; word < mt_data_end; ++word) {
        *word = *load++;
    }
{% if cookiecutter.sources.hot %}
    load = mt_hot_code_load;
    for (volatile uint32_t *word = mt_hot_code_start; word < mt_hot_code_end; ++word) {
        *word = *load++;
    }
{% endif %}
