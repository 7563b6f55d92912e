"""Run MLCommons' runner (benchmark/runner of mlcommons/tiny) on a project: RUNNER DATA RESULT, in the project's folder.

The runner's own Python code drives the firmware; this file is the interface board: it passes commands on, plays
recordings (over the UART instead of I2S), and notes when the wake word was detected and how long hops took.
"""

import json
import sys
import wave
from pathlib import Path
from typing import Any

from mtool.commands import flashing, user_project
from mtool.device.transport.base import Transport
from mtool.plugins.mlperf import DeviceUnderTest

RUNNER, DATA, RESULT = (Path(word).resolve() for word in sys.argv[1:4])
sys.path.insert(0, str(RUNNER))
from interface_device import InterfaceDevice  # type: ignore[import-not-found] # noqa: E402

TICKS = 100_000  # a second, of the interface board's clock
THRESHOLD = 115


class InterfaceBoard(InterfaceDevice):  # type: ignore[misc]
    """The interface board, with the device's firmware in a process or an emulator."""

    def __init__(self, transport: Transport, samples: int, scale: float) -> None:
        self.device = DeviceUnderTest(transport, lambda who, line: None)
        self.samples, self.scale = samples, scale
        self.detected: list[int] = []
        self.times: list[tuple[int, int]] = []

    def __enter__(self) -> "InterfaceBoard":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send_command(self, command: str, end: Any = None, echo: bool = False, timeout: Any = None) -> list[str]:
        return [*self.device.ask(command), "m-ready"]

    def record_detections(self) -> None:
        self.detected, self.times = [0], []  # the device marks the beginning

    def play_wave(self, name: str, timeout: float) -> None:
        with wave.open(str(DATA / name), "rb") as file:
            count, data = file.getnchannels(), file.readframes(file.getnframes())
        channel = b"".join(data[at : at + 2] for at in range(0, len(data), 2 * count))
        size = 2 * self.samples
        for number, start in enumerate(range(0, len(channel) - size + 1, size)):
            self.device.load(channel[start : start + size])
            lines = self.device.ask("extract_uart_stream")
            laps = [int(line[len("m-lap-us-") :]) for line in lines if line.startswith("m-lap-us-")]
            (activations,) = (line for line in lines if line.startswith("m-activations-["))
            now = (number + 1) * self.samples / 16_000
            if int(activations[len("m-activations-[") :].split(",")[0]) > THRESHOLD:
                self.detected.append(round(1000 * now))
            busy = (laps[1] - laps[0]) * self.scale
            self.times.append((round(now * TICKS), round(now * TICKS + busy * TICKS / 1e6)))

    def print_detections(self) -> list[str]:
        return ["Detection Timestamps (ms)", *(f"{one}," for one in self.detected), "m-ready"]

    def print_dutycycle(self) -> list[str]:
        starts, stops = (",".join(str(pair[n]) for pair in self.times) for n in (0, 1))
        return ["Duty cycle start times (s)", starts, "Duty cycle stop times (s)", stops, "m-ready"]


def main() -> None:
    """Run the script of sww01, and write the runner's results."""
    import streaming_ww_utils  # type: ignore[import-not-found]
    import yaml
    from datasets import StreamingDataSet  # type: ignore[import-not-found]
    from device_under_test import DUT  # type: ignore[import-not-found]
    from script import Script  # type: ignore[import-not-found]

    job = user_project.require().job_for(sys.argv[4])
    with flashing.open_program(job) as (prepared, transport):
        board = InterfaceBoard(transport, prepared.manifest.inputs[0].shape[-1], float(sys.argv[5]))
        board.device.begin()
        device = DUT(board, 115200)
        script = Script(yaml.safe_load((RUNNER / "tests_performance.yaml").read_text())[device.get_model()])
        result = script.run(board, device, StreamingDataSet(DATA, sys.argv[6]), "p")
    right, missed, wrong = streaming_ww_utils.calc_detection_stats(
        result["infer"]["detections"], result["infer"]["detection_windows"]
    )
    RESULT.write_text(
        json.dumps(
            {
                "model": device.get_model(),
                "activations": result["activations"],
                "detections": result["infer"]["detections"],
                "true_positives": right,
                "false_negatives": missed,
                "false_positives": list(map(float, wrong)),
                "duty_cycle": float(result["dutycycle"]["duty_cycle"]),
                "period": float(result["dutycycle"]["period"]),
            }
        )
    )


if __name__ == "__main__":
    main()
