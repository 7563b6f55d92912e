{% include "timer/" ~ cookiecutter.board.timer.kind ~ ".c" %}
