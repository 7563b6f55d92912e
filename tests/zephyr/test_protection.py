"""Memory protection on Zephyr: what a model may not do ends it alone, as on bare metal."""

from pathlib import Path

import pytest

from tests.device.session import protected, test_protected_modules
from tests.zephyr.test_zephyr import need, pytestmark  # noqa: F401


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mps2_an386", "mps2_an385", "mps2_an500", "mps3_an547", "mps2_an521", "qemu_cortex_m3"]
)
def test_what_a_model_may_not_do_ends_it_alone(name: str, tmp_path: Path) -> None:
    protected.check(protected.make(need(name).name, tmp_path, "zephyr"))


@pytest.mark.slow
def test_modules_run_under_memory_protection(tmp_path: Path) -> None:
    need(test_protected_modules.BOARD)
    test_protected_modules.check(tmp_path, "zephyr")
