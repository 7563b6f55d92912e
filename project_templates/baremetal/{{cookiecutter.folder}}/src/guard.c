{% include "guard/" ~ cookiecutter.board.port.startup ~ ".c" %}
