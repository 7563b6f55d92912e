{% include "host/{{cookiecutter.folder}}/src/port.c" %}
