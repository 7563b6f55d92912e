{% include "startup/" ~ cookiecutter.board.port.startup ~ ".c" %}
