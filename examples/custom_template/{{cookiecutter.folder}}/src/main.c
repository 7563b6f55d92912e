{% include "host/{{cookiecutter.folder}}/src/main.c" %}
