{% include "host/{{cookiecutter.folder}}/src/guard.c" %}
