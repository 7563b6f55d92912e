"""How a link's speed is measured."""

import pytest

from mtool.device.rpc.window import Speed


def test_the_first_measurement_counts_whole_and_later_ones_a_quarter() -> None:
    speed = Speed(11_520.0)
    speed.acknowledge(2000, 1.0)
    assert speed.bytes_per_second == 2000
    speed.acknowledge(4000, 1.0)
    assert speed.bytes_per_second == 2500
    speed.acknowledge(2500, 1.0)
    assert speed.bytes_per_second == 2500


def test_a_measurement_takes_a_kilobyte_and_some_time() -> None:
    speed = Speed(11_520.0)
    speed.acknowledge(1023, 1.0)
    assert speed.bytes_per_second == 11_520
    speed.acknowledge(1, 1.0)  # 1024 bytes in two seconds
    assert speed.bytes_per_second == 512
    speed.acknowledge(5000, 0.00009)
    assert speed.bytes_per_second == 512
    speed.acknowledge(5000, 0.00001)
    assert speed.bytes_per_second == pytest.approx(512 + (1e8 - 512) / 4)


def test_after_a_pause_a_measurement_restarts() -> None:
    speed = Speed(11_520.0)
    speed.acknowledge(1000, 1.0)
    speed.begin()
    speed.acknowledge(1023, 1.0)
    assert speed.bytes_per_second == 11_520
    speed.acknowledge(2049, 1.0)
    assert speed.bytes_per_second == 1536


def test_no_line_is_slower_than_fifty_bytes_a_second() -> None:
    speed = Speed(11_520.0)
    speed.acknowledge(2000, 1000.0)
    assert speed.bytes_per_second == 50
