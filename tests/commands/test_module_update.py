"""A module that updates an earlier one: what stays, what is refused, what is reported."""

from dataclasses import replace
from pathlib import Path

import pytest

import mtool
from mtool.base.errors import UsageError
from mtool.commands import Options, modules
from mtool.commands.modules import description_of
from mtool.compiler.plan.choice import Choice
from mtool.manifest import Tensor
from mtool.manifest.modules.format import Kind, Module, pack, unpack
from mtool.stages.compiling import CompiledModel
from tests.manifest.modules.test_format import MODULE

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


def compiled(options: Options) -> CompiledModel:
    return mtool.compile(DIGITS, board="host", options=options)


def module_of(model: CompiledModel) -> Module:
    return replace(MODULE, description=description_of(model.manifest))


def schedules(model: CompiledModel) -> dict[str, str]:
    return {one.name: one.schedule for one in model.manifest.operators}


@pytest.mark.slow
def test_schedules_stay_but_for_those_that_the_user_names(caplog: pytest.LogCaptureFixture) -> None:
    plain = compiled(Options())
    first, second = [name for name, schedule in schedules(plain).items() if name.startswith("conv_")][:2]
    turned = dict.fromkeys((first, second), Choice("c99_patch", {"opt": "O3"}))
    old = module_of(compiled(Options(schedules=turned)))
    assert schedules(plain)[first] != "c99_patch:opt=O3"
    assert modules.with_schedules_of(module_of(plain), plain, compiled) is plain
    kept = schedules(modules.with_schedules_of(old, plain, compiled))
    assert kept == {**schedules(plain), **dict.fromkeys((first, second), "c99_patch:opt=O3")}
    named = compiled(Options(schedules={first: Choice("c99_patch", {"opt": "Os"})}))
    kept = schedules(modules.with_schedules_of(old, named, compiled))
    assert (kept[first], kept[second]) == ("c99_patch:opt=Os", "c99_patch:opt=O3")
    notes = tuple(
        one.model_copy(update={"schedule": "mve_patch" if one.name == first else one.schedule})
        for one in old.description.operators
    )
    foreign = replace(old, description=old.description.model_copy(update={"operators": notes}))
    assert modules.with_schedules_of(foreign, plain, compiled) is plain
    assert "the code changes" in caplog.text


def test_another_interface_is_refused_and_another_quantization_reported(caplog: pytest.LogCaptureFixture) -> None:
    old = MODULE.description

    def turned(**changes: object) -> Tensor:
        return old.inputs[0].model_copy(update=changes)

    for changes in ({"name": "z"}, {"dtype": "uint8"}, {"shape": (4, 1)}):
        with pytest.raises(UsageError, match="the inputs differ"):
            modules.check_interface(old, old.model_copy(update={"inputs": (turned(**changes),)}))
    with pytest.raises(UsageError, match="the outputs differ"):
        modules.check_interface(old, old.model_copy(update={"outputs": ()}))
    assert not caplog.text
    modules.check_interface(old, old.model_copy(update={"inputs": (turned(scale=(0.3,), zero_point=(1,)),)}))
    assert "the quantization has changed" in caplog.text


def test_name_counter_and_kind_stay() -> None:
    old = replace(MODULE, counter=7, name="kws")
    assert modules.options_since(old, Options(), None) == (Options(name="kws"), 7)
    assert modules.options_since(old, Options(name="other"), 9) == (Options(name="other"), 9)
    with pytest.raises(UsageError, match="--counter 6 is below"):
        modules.options_since(old, Options(), 6)
    modules.check_kind(old, Kind.NATIVE)
    with pytest.raises(UsageError, match="is native, but this one is bytecode"):
        modules.check_kind(old, Kind.BYTECODE)


def test_the_reported_delta_is_the_sent_one() -> None:
    old = MODULE
    code, constants = old.image[: old.code_bytes], old.image[old.code_bytes :]
    new = replace(old, image=code + bytes(byte ^ 1 for byte in constants))
    found = modules.update_between((old, pack(old)), (unpack(pack(new)), pack(new)))
    assert found.has_same_code and sum(found.parts) == found.delta_bytes
    other = replace(old, image=bytes(byte ^ 1 for byte in code) + constants)
    found = modules.update_between((old, pack(old)), (other, pack(other)))
    assert not found.has_same_code and "for the code," in found.describe()


@pytest.mark.parametrize("board", ["nucleo_l4r5zi", "mps2_an386"])
def test_a_module_has_no_constants_or_code_in_ram(board: str) -> None:
    options = Options(optimize="speed")
    in_firmware = mtool.compile(DIGITS, board=board, options=options).manifest.in_ram
    assert ("weights" in in_firmware) == (board == "nucleo_l4r5zi"), "its flash is slow"
    assert modules.make_module(DIGITS, board=board, options=options).module.image
