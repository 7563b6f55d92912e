"""Sending a module as a delta from the one in flash, if that one's file is available."""

from pathlib import Path

import pytest

from mtool.base.errors import UsageError
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import Place
from mtool.device.session import delta_update
from tests.device.rpc.test_loading import added, module, process
from tests.device.rpc.test_loading_by_delta import flash, model

__all__ = ["flash"]  # a fixture that each test has


@pytest.mark.slow
def test_what_was_loaded_from_here_is_what_the_next_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "cache"
    monkeypatch.setenv("MTOOL_CACHE", str(kept))
    files = [model(adds, counter=adds) for adds in range(5, 9)]
    with process() as transport:
        client = Client(transport, timeout_s=5)
        sent = [delta_update.send(client, file, Place.FLASH) for file in files[:2]]
        assert (sent[0].delta_bytes, sent[1].there_bytes) == (0, 0) and 0 < sent[1].delta_bytes < len(files[1]) // 2
        assert delta_update.send(client, files[1], Place.FLASH) == delta_update.Transfer(len(files[1]))  # it is there
        for path in kept.rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-1] + b"?")
        assert delta_update.send(client, files[2], Place.FLASH).delta_bytes == 0  # what is damaged is not used
        monkeypatch.setenv("MTOOL_CACHE", "off")
        assert delta_update.send(client, files[3], Place.FLASH).delta_bytes == 0
        assert added(client, 1) == 8


def test_a_file_that_is_named_has_to_be_the_one_in_flash(caplog: pytest.LogCaptureFixture) -> None:
    old, new, other = model(5), model(6), model(7)
    with process() as transport:
        client = Client(transport, timeout_s=5)
        assert delta_update.send(client, old, Place.FLASH, since=other).delta_bytes == 0
        for place, trial in ((Place.FLASH, 256), (Place.RAM, 1)):
            with pytest.raises(UsageError, match="can't be on trial"):
                delta_update.send(client, old, place, trial=trial)
        assert "the device has no module of that name in flash" in caplog.text
        with pytest.raises(UsageError, match="is not the one of --since"):
            delta_update.send(client, new, Place.FLASH, since=other)
        assert delta_update.send(client, new, Place.FLASH, since=old).delta_bytes > 0
        assert loading.fetch(client, 1, 0, len(new)) == new
        caplog.clear()
        assert delta_update.send(client, module(9, name="other"), Place.FLASH).replaced == "adder"
        assert "other replaces adder: the device only keeps 1 module in flash" in caplog.text
