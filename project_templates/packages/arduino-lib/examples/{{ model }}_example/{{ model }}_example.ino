{% set once = true %}
{% macro prints(name, values, count) %}
    for (int32_t i = 0; i < {{ count }}; ++i) {
        Serial.println({{ values }}[i] + 0);
    }
{% endmacro %}
{% include "shared/standalone.c" %}

void setup()
{
    Serial.begin(115200);
}

void loop()
{
    Serial.println(run_once() == 0 ? F("ok") : F("failed"));
    delay(1000);
}
