"""The tests of `scripts/test --quick`: every package has its tests where it looks for them."""

import pytest
import quick


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("tests/crt/test_server.py", ["tests/crt/test_server.py"]),
        ("tests/crt/firmware.py", ["tests/crt"]),
        ("tests/golden/small/small.c", []),
        ("tests/graphs.py", []),
        ("mtool/device/rpc/client.py", ["tests/device/rpc/test_client.py", "tests/device/rpc"]),
        ("mtool/compiler/kernels/dsp/tiles.py", ["tests/compiler/kernels/test_tiles.py", "tests/compiler/kernels"]),
        ("mtool/python.py", ["tests/python"]),
        ("project_templates/arduino/src/main.c", ["tests/arduino"]),
        ("project_templates/host/main.c", ["tests/project"]),
        ("README.md", []),
    ],
)
def test_the_tests_of_a_file(source: str, tests: list[str]) -> None:
    assert list(quick.tests_of(source)) == tests


def test_the_smoke_set_comes_first_and_nothing_twice() -> None:
    found = quick.chosen(["mtool/device/rpc/client.py", "tests/device/rpc/test_client.py", quick.SMOKE[0], "gone.py"])
    assert found == [*quick.SMOKE, "tests/device/rpc/test_client.py", "tests/device/rpc"]


def test_every_source_has_tests() -> None:
    sources = [str(path.relative_to(quick.ROOT)) for path in sorted((quick.ROOT / "mtool").glob("*/**/*.py"))]
    assert len(sources) > 300
    assert [one for one in sources if not any((quick.ROOT / test).exists() for test in quick.tests_of(one))] == []
    assert all((quick.ROOT / test).exists() for tests in (quick.SMOKE, *quick.ELSEWHERE.values()) for test in tests)
