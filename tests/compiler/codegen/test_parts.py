"""C files are lists of parts: reading them returns the parts that were written."""

from mtool.compiler.codegen import c_text
from mtool.compiler.kernels.target import Target

AVR, HOST = Target("avr5", frozenset()), Target("host", frozenset())
HEAD = f"int32_t f({', '.join(f'const MT_FLASH int8_t *argument_{number}' for number in range(6))})"


def test_parts_are_read_as_they_were_written() -> None:
    lines = [
        *c_text.include("a.h"),
        "",
        c_text.declaration(HEAD, "/* What it does. */"),
        c_text.variable("static const int8_t table[2]", " = {1, 2}"),
        c_text.function(f"MT_ALONE {HEAD}", "    return 0;"),
    ]
    for target in (AVR, HOST):
        files = c_text.written({"a.c": lines}, target)
        parts = c_text.parts_of(files, "a.c")
        assert "\n".join(parts) == files.text("a.c")
        assert [(part.kind, part.name) for part in parts] == [
            ("include", "a.h"), ("text", ""), ("declaration", "f"), ("object", "table"), ("function", "f"),
        ]  # fmt: skip
        assert ("MT_FLASH" in files.text("a.c")) == (target is AVR)
        assert all(len(line) <= c_text.WIDTH for line in files.text("a.c").split("\n"))
        assert [part.is_static for part in parts] == [False, False, False, True, False]


def test_what_becomes_static_keeps_its_comment_above_it() -> None:
    part = c_text.declaration("extern const int8_t table[2]", "/* Two numbers. */")
    assert part.static == "/* Two numbers. */\nstatic const int8_t table[2];"
    assert part.static.is_static and part.static.name == "table"
    definition = c_text.function("int32_t f(int32_t a,\n          int32_t b)", "    return a + b;")
    assert definition.static.split("\n")[1] == " " * len("static int32_t f(") + "int32_t b)"


def test_a_name_in_a_string_a_comment_or_a_structure_is_not_renamed() -> None:
    code = 'run(); /* run */ x.run = run_2("run", y->run, run);'
    assert c_text.renamed(code, {"run": "m_run"}) == 'm_run(); /* run */ x.run = run_2("run", y->run, m_run);'
