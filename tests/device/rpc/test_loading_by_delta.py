"""Modules as deltas from the one in flash: over bad lines, in pieces, and with power cuts at every write."""

import amount
import numpy as np
import pytest

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import HEAD_BYTES, Place
from mtool.manifest.delta import delta
from tests.device.rpc.channels import Lossy
from tests.device.rpc.test_loading import CUT, Unplugged, added, flash, listed, module, process

PADDING = {Place.FLASH: 6000, Place.RAM: 2400}


__all__ = ["flash"]  # a fixture, for every test here too


def model(adds: int, counter: int = 1, place: Place = Place.FLASH) -> bytes:
    """Return a module of weights, of which the number moves each a little."""
    weights = np.random.default_rng(0).normal(0, 30, PADDING[place])
    steps = np.random.default_rng(adds).integers(-2, 3, PADDING[place])
    return module(adds, counter=counter, image=bytes([adds]) + (weights + steps).astype(np.int8).tobytes())


def between(old: bytes, new: bytes) -> bytes:
    return delta(old[HEAD_BYTES:], new[HEAD_BYTES:])


@pytest.mark.parametrize("place", [Place.FLASH, Place.RAM])
def test_a_delta_makes_the_whole_file(place: Place) -> None:
    old, new = model(5, place=place), model(6, place=place)
    made = between(old, new)
    assert len(made) < len(new) // 2
    with process() as transport:
        client = Client(transport, timeout_s=5)
        assert loading.module_limits(client, "adder").delta_base is None  # there is nothing to start from
        with pytest.raises(DeviceError, match="MT_NOT_SUPPORTED"):
            loading.load(client, new, place, delta=made)
        loading.load(client, old, Place.FLASH)
        assert loading.module_limits(client, "adder").delta_base == 1
        for _ in range(2):  # the second time it is there, or comes again
            loading.load(client, new, place, delta=made if place == Place.RAM else between(old, new))
            index = len(listed(client)) - 1
            assert added(client, index) == 6
            assert loading.fetch(client, index, 0, len(new)) == new
    with process() as transport:
        assert added(Client(transport, timeout_s=5), 1) == (6 if place == Place.FLASH else 5)


def test_a_delta_that_is_not_from_the_module_in_flash_leaves_that() -> None:
    with process() as transport:
        client = Client(transport, timeout_s=5)
        for place in (Place.RAM, Place.FLASH):
            old, other, new = (model(adds, place=place) for adds in (5, 7, 6))
            loading.load(client, old, Place.FLASH)
            good = between(old, new)
            wrong = [between(other, new), good + b"\0", b"", good[:-1], between(old, other)]
            for number, made in enumerate(wrong):
                if place == Place.RAM:
                    loading.load(client, module(1), Place.RAM)
                with pytest.raises(DeviceError, match=r"MT_BAD_DELTA|MT_BAD_MODULE|MT_BAD_ORDER") as refused:
                    loading.load(client, new, place, delta=made)
                assert ("MT_BAD_DELTA" in str(refused.value)) == (number < 2), (number, refused.value)
                assert added(client, 1) == 5
        assert loading.load(client, new, Place.FLASH) == 0 or added(client, 1) == 6
        assert added(client, 1) == 6


@pytest.mark.slow
def test_a_bad_line_changes_no_byte_and_a_lost_one_goes_on() -> None:
    old, new = model(5), model(6)
    made = between(old, new)
    with process("TEST_BUFFER_BYTES=1024") as transport:
        first = Client(Lossy(transport, rate=1e-3, seed=3), timeout_s=5)
        loading.load(first, old, Place.FLASH)
        with pytest.raises(CommunicationError, match="unplugged"):
            loading.load(Client(Unplugged(transport, 900), timeout_s=5, take_over=True), new, Place.FLASH, delta=made)
        reported: list[tuple[int, int]] = []
        second = Client(Lossy(transport, rate=1e-3, seed=4), timeout_s=5, take_over=True)
        loading.load(second, new, Place.FLASH, delta=made, progress=lambda *found: reported.append(found))
        assert 0 < reported[0][0] < len(made) and reported[-1] == (len(made), len(made))
        assert loading.fetch(second, 1, 0, len(new)) == new


def test_a_whole_file_goes_on_where_a_delta_broke_off_and_the_other_way() -> None:
    old, new = model(5), model(6)
    with process("TEST_BUFFER_BYTES=1024") as transport:
        loading.load(Client(transport, timeout_s=5), old, Place.FLASH)
        for file, base, bytes_ in ((new, old, 900), (old, new, 2400)):
            with pytest.raises(CommunicationError, match="unplugged"):
                broken = Client(Unplugged(transport, bytes_), timeout_s=5, take_over=True)
                if bytes_ == 900:
                    loading.load(broken, file, Place.FLASH, delta=between(base, file))
                else:
                    loading.load(broken, file, Place.FLASH)
            client = Client(transport, timeout_s=5, take_over=True)
            if bytes_ == 900:
                assert 0 < loading.load(client, file, Place.FLASH) < len(file)
            else:
                loading.load(client, file, Place.FLASH, delta=between(base, file))
            assert loading.fetch(client, 1, 0, len(file)) == file


@pytest.mark.slow
def test_power_that_is_cut_at_any_write_of_a_delta_leaves_a_good_model(monkeypatch: pytest.MonkeyPatch) -> None:
    old = model(5)
    with process() as transport:
        loading.load(Client(transport, timeout_s=5), old, Place.FLASH)
    cuts = 0
    for cut in range(0, 440, 1 if amount.IS_ALL else 37):
        new = model(20 + cut % 200, counter=cut + 1)
        monkeypatch.setenv("TEST_CUT", str(cut))
        try:
            with process() as transport:
                loading.load(Client(transport, timeout_s=5), new, Place.FLASH, delta=between(old, new))
        except CommunicationError as lost:
            assert f"ended with exit code {CUT}" in str(lost)
            cuts += 1
        monkeypatch.delenv("TEST_CUT")
        with process() as transport:
            client = Client(transport, timeout_s=5)
            found = loading.fetch(client, 1, 0, len(new))
            assert found in (old, new)
            if found == old:
                loading.load(client, new, Place.FLASH, delta=between(old, new))
            assert loading.fetch(client, 1, 0, len(new)) == new
            assert added(client, 1) == 20 + cut % 200
        old = new
    assert cuts > 8
