"""Recordings through an application's program on a board, and the recording of its sensor."""

import contextlib
import io
import logging
import time
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool import boards
from mtool.base import files, plural
from mtool.base.errors import DeviceError, FitError, MismatchError, NoAnswerError, UsageError, of_os_error
from mtool.base.tensors import Array
from mtool.boards import Board
from mtool.commands import flashing
from mtool.commands.applications import Settings
from mtool.commands.user_project import UserProject
from mtool.device.cycles import cores
from mtool.device.transport.base import Transport

log = logging.getLogger(__name__)

HOST = "host"
CLIPS = "clips"
"""The folder of a project with its recordings."""

_ANSWER_S = 60.0  # the longest time of a hop, in an emulator
_BEGIN_S = 15.0
_LOOK_S = 0.5
_AFTER_S = 1.0  # a detection may come this long after the end of a label
_ROUNDING_S = 1e-3  # of a label's end
_NOTHING = -1


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording: its file, its samples (int16), and what is to be detected: start, end and keyword; None: unknown."""

    path: Path
    samples: Array
    labels: tuple[tuple[float, float, str], ...] | None


@dataclass(frozen=True, slots=True)
class Detection:
    """A detection: the keyword, and when the hop with it ended, in seconds."""

    keyword: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What a program made of a recording: its score after each hop, in its own unit, the detections and the times.

    `busy_ms` is the time of each hop at the board's clock; for an emulated board it is estimated from instructions.
    """

    clip: Clip
    scores: tuple[int, ...]
    detections: tuple[Detection, ...]
    busy_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """Recordings through a program on a board.

    Attributes:
        board: the board's name.
        hop_ms: the time from one hop to the next.
        heard: the results.
        host: those on this computer; empty: the board is this computer.
        is_estimated: the times are estimated.
    """

    board: str
    hop_ms: float
    heard: tuple[Heard, ...]
    host: tuple[Heard, ...]
    is_estimated: bool

    @property
    def hops(self) -> int:
        """The number of hops in all recordings."""
        return sum(len(recording.scores) for recording in self.heard)

    @property
    def missed(self) -> int:
        """The number of hops that were not processed before the next one was complete."""
        return sum(busy > self.hop_ms for recording in self.heard for busy in recording.busy_ms)

    @property
    def worst_ms(self) -> float:
        """The longest processing of a hop."""
        return max(busy for recording in self.heard for busy in recording.busy_ms)

    @property
    def duty(self) -> float:
        """The share of the time that is spent on processing."""
        return sum(busy for recording in self.heard for busy in recording.busy_ms) / (self.hops * self.hop_ms)

    def figures(self) -> dict[str, float]:
        """Return the figures that can have limits, by their names in limits.toml."""
        return {
            "missed_hops": self.missed,
            "duty_percent": 100 * self.duty,
            "worst_hop_us": 1e3 * self.worst_ms,
        }

    def check_host(self) -> None:
        """Check that scores and detections are those of this computer.

        Raises:
            MismatchError: they are not.
        """
        wrong = []
        for heard, expected in zip(self.heard, self.host, strict=False):
            if heard.detections != expected.detections:
                wrong += [heard.clip.path.name, f"  expected  {shown(expected)}", f"  found     {shown(heard)}"]
            elif heard.scores != expected.scores:
                number = next(
                    n for n, pair in enumerate(zip(heard.scores, expected.scores, strict=True)) if len({*pair}) > 1
                )
                wrong.append(
                    f"{heard.clip.path.name}: the score after hop {number} is {heard.scores[number]}, "
                    f"expected {expected.scores[number]}"
                )
        if wrong:
            raise MismatchError(f"detections on {self.board} differ from those on this computer", details=wrong)

    def check_in_time(self) -> None:
        """Check that no hop is missed; on this computer, which other programs interrupt, at most half of them.

        Raises:
            FitError: more are.
        """
        if self.missed > (self.hops // 2 if self.board == HOST else 0):
            about = "about " if self.is_estimated else ""
            raise FitError(
                f"{self.board} misses {self.missed} of {plural.count(self.hops, 'hop')}: it is too slow",
                details=[f"expected  at most {self.hop_ms:g} ms a hop", f"found     {about}{self.worst_ms:.3g} ms"],
                hint='try tuned schedules (mtool tune), optimize = "speed" in [options], or a faster board',
            )

    def check_labels(self) -> None:
        """Check that the detections are those that are labelled, in the recordings that have labels.

        Raises:
            MismatchError: one is missing, or there is one without a label.
        """
        wrong = [line for recording in self.heard if recording.clip.labels is not None for line in _unlike(recording)]
        if wrong:
            raise MismatchError(f"detections on {self.board} differ from the labels", details=wrong)


def shown(heard: Heard) -> str:
    """Return detections as text."""
    return ", ".join(f"{detection.keyword} at {detection.at_s:.2f} s" for detection in heard.detections) or "nothing"


def _unlike(heard: Heard) -> Iterator[str]:
    """Yield a line for each label without a detection, and for each detection without a label."""
    unmatched = list(heard.detections)
    for start, end, keyword in heard.clip.labels or ():
        hits = [hit for hit in unmatched if hit.keyword == keyword and start <= hit.at_s <= end + _AFTER_S]
        unmatched = [hit for hit in unmatched if hit not in hits]
        if not hits:
            yield f"{heard.clip.path.name}: {keyword} at {start:.2f} s is not detected; detected: {shown(heard)}"
    for hit in unmatched:
        yield f"{heard.clip.path.name}: {hit.keyword} is detected at {hit.at_s:.2f} s, where there is no label"


def replay(project: UserProject, paths: Sequence[Path], *, board: str = "", port: str = "", probe: str = "") -> Replay:
    """Send recordings through the program of a project, on a board and on this computer.

    Args:
        project: a project with an application.
        paths: .wav files, or folders of them.
        board: the board's name; empty: the project's test board.
        port: the port of an attached board, which is flashed first.
        probe: its probe.

    Raises:
        UsageError: the project is not an application; a file is not a recording that it can process.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    settings = settings_of(project)
    name = board or project.test_board
    project.check_model()
    clips = read_clips(paths, settings, is_fixed=bool(project.model_rate()))
    hop_ms, heard, is_estimated = _heard(project, settings, clips, name, port=port, probe=probe)
    host = () if name == HOST else _heard(project, settings, clips, HOST)[1]
    return Replay(name, hop_ms, heard, host, is_estimated)


def settings_of(project: UserProject) -> Settings:
    """Return the settings of a project's application.

    Raises:
        UsageError: it is not an application.
    """
    if project.settings is None:
        raise UsageError(
            f"this project's type is {project.type}, which does not process a sensor's data",
            hint="start an application with: mtool new FOLDER --app wakeword",
        )
    return project.settings


def _heard(
    project: UserProject, settings: Settings, clips: Sequence[Clip], board: str, *, port: str = "", probe: str = ""
) -> tuple[float, tuple[Heard, ...], bool]:
    """Return the milliseconds of a hop, what a board heard, and whether its times are estimated."""
    with open_application(project, board, port=port, probe=probe) as program:
        hop_bytes = program.begin()
        hop_ms = 1e3 * hop_bytes / clips[0].samples.itemsize / settings.rate
        runs = [program.replay(clip, hop_bytes) for clip in clips]
    scale, is_estimated = board_time(boards.get(board))
    names = [*settings.keywords]
    heard = []
    for clip, hops in zip(clips, runs, strict=True):
        detections = tuple(
            Detection(names[detected], round((number + 1) * hop_ms / 1e3, 6))
            for number, (_, detected, _) in enumerate(hops)
            if detected != _NOTHING
        )
        times = tuple(nanoseconds * scale for nanoseconds, _, _ in hops)
        heard.append(Heard(clip, tuple(score for _, _, score in hops), detections, times))
    return hop_ms, tuple(heard), is_estimated


def board_time(board: Board) -> tuple[float, bool]:
    """Return a board's milliseconds in a nanosecond of its timer, and whether they are estimated.

    The timer of an emulated board may count instructions; the estimate is the most cycles that they take.
    """
    if board.emulator is None or board.emulator.is_the_firmware or board.timer is None or board.timer.unit == "ns":
        return 1e-6, False
    most = next((max(core.per_instruction) for core in cores() if core.cpu == board.cpu and core.per_instruction), 1.0)
    return (most * 1e3 / board.clock_hz if board.clock_hz else 1e-6), True


class Program:
    """A running program of an application.

    Args:
        transport: the channel to it; the caller closes it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._received = b""

    def begin(self) -> int:
        """Begin a recording; return the bytes of a hop.

        Raises:
            CommunicationError: it does not answer.
        """
        self._transport.write(b"b", timeout_s=_ANSWER_S)
        return self._answer("mt-begin", 1, _BEGIN_S)[0]

    def replay(self, clip: Clip, hop_bytes: int) -> list[tuple[int, int, int]]:
        """Send a recording; return for each hop the nanoseconds, the detected keyword's index or -1, and the score."""
        self.begin()
        data = clip.samples.astype("<i2").tobytes()
        data += bytes(-len(data) % hop_bytes)
        results = []
        for start in range(0, len(data), hop_bytes):
            self._transport.write(b"h" + data[start : start + hop_bytes], timeout_s=_ANSWER_S)
            nanoseconds, detected, score = self._answer("mt-hop", 3, _ANSWER_S)
            results.append((nanoseconds, detected, score))
        return results

    def record(self, hop_bytes: int, seconds: float, rate: int) -> tuple[bytes, int]:
        """Take the sensor's samples; return them, and the number of hops that were lost."""
        self._transport.write(b"r", timeout_s=_ANSWER_S)
        data, lost, first = bytearray(), 0, True
        while len(data) < seconds * rate * 2:
            missing = self._answer("mt-sensor", 1, _BEGIN_S)[0]
            lost += 0 if first else missing
            first = False
            data += self._bytes(hop_bytes)
        self._transport.write(b"e", timeout_s=_ANSWER_S)
        return bytes(data), lost

    def _answer(self, word: str, count: int, timeout_s: float) -> list[int]:
        """Return the numbers of the next line that begins with a word."""
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                words = line.decode("ascii", "backslashreplace").split()
                if words[:1] == [word] and len(words) == count + 1:
                    return [int(word) for word in words[1:]]
                if words[:4] == ["the", "model", "failed", "with"]:
                    raise DeviceError(" ".join(words))
            self._read(deadline, f"{word} within {timeout_s:.3g} s")

    def _bytes(self, count: int) -> bytes:
        deadline = time.monotonic() + _BEGIN_S
        while len(self._received) < count:
            self._read(deadline, f"{count} bytes")
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _read(self, deadline: float, awaited: str) -> None:
        rest_s = deadline - time.monotonic()
        if rest_s <= 0:
            raise NoAnswerError(
                f"{self._transport.name} has not sent {awaited}",
                details=[f"it sent: {self._received[-80:]!r}"] if self._received else [],
                hint="check that its program is the application's: src/main.c with mt_hops_next and mt_hops_done",
            )
        self._received += self._transport.read(timeout_s=min(rest_s, _LOOK_S))


@contextlib.contextmanager
def open_application(project: UserProject, board: str, *, port: str = "", probe: str = "") -> Iterator[Program]:
    """Build the program of an application for a board, start or flash it, and open the channel to it.

    Raises:
        UsageError: the board's template can't build the program.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    job = project.job_for(board, port=port, probe=probe)
    if job.options.program is None:
        raise UsageError(f"{board} can't run the project's program", details=["its template is for another language"])
    with flashing.open_program(job) as (_, transport):
        yield Program(transport)


# Recordings.


def read_clips(paths: Sequence[Path], settings: Settings, *, is_fixed: bool = False) -> list[Clip]:
    """Read recordings, each once: the first channel of .wav files with 16 bits a sample, at the application's rate.

    `is_fixed`: the model's front end has only this rate.

    Raises:
        UsageError: there is none, or one can't be read or has another format.
    """
    listed = (sorted(path.iterdir()) if path.is_dir() else [path] for path in paths)
    recordings = [
        file
        for path, files in zip(paths, listed, strict=True)
        for file in files
        if file == path or file.suffix.lower() == ".wav"
    ]
    if not recordings:
        raise UsageError("there are no recordings", details=[f"no .wav in {path}" for path in paths])
    clips = []
    for path in {path.resolve(): path for path in recordings}.values():
        samples = samples_of(path, settings.rate, is_fixed=is_fixed)
        clips.append(Clip(path, samples, _labels(path, settings, len(samples) / settings.rate)))
    return clips


_EXTENSIBLE, _PCM = b"\xfe\xff", bytes.fromhex("0100000000001000800000aa00389b71")  # WAVE_FORMAT_EXTENSIBLE's


def samples_of(path: Path, rate: int, *, is_fixed: bool = False) -> Array:
    """Return the samples of a recording's first channel.

    Raises:
        UsageError: it can't be read, or is not a .wav with 16 bits a sample at this rate.
    """
    try:
        content = path.read_bytes()
        kind = content.find(b"fmt ") + 8
        if content[kind : kind + 2] == _EXTENSIBLE and content[kind + 24 : kind + 40] == _PCM:
            content = content[:kind] + b"\1\0" + content[kind + 2 :]
        with wave.open(io.BytesIO(content)) as file:
            channels, width, hz = file.getnchannels(), file.getsampwidth(), file.getframerate()
            promised = file.getnframes()
            data = file.readframes(promised)
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    except (wave.Error, EOFError) as wrong:
        why = str(wrong) or "it ends inside its header"
        raise UsageError(f"{path} is not a recording", details=[why], hint="expected: .wav with 16-bit PCM") from None
    if (width, hz) != (2, rate):
        raise UsageError(
            f"{path} has another format",
            details=[f"expected  16 bits a sample, {rate} Hz", f"found     {8 * width} bits a sample, {hz} Hz"],
            hint=f"convert it: sox {path.name} -b 16 -r {rate} out.wav"
            + ("" if is_fixed or width != 2 else "; or set rate in [app] of mtool.toml"),
        )
    frames = len(data) // (2 * channels)
    if not frames:
        raise UsageError(f"{path} has no samples", hint="record it again, or leave it out")
    if frames < promised:
        log.warning("%s ends after %d of the %d samples that its header promises", path, frames, promised)
    return np.frombuffer(data[: frames * 2 * channels], "<i2").reshape(-1, channels)[:, 0]


def _labels(path: Path, settings: Settings, seconds: float) -> tuple[tuple[float, float, str], ...] | None:
    """Return the labels beside a recording, in the form of Audacity's label tracks; None: there are none."""
    file = path.with_suffix(".txt")
    if not file.is_file():
        return None
    try:
        text = file.read_text("utf-8")
    except OSError as failed:
        raise of_os_error(failed, f"{file} can't be read") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8", hint="export it again from Audacity") from None
    labels = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("\t") if line.strip() else None
        if words is None:
            continue
        try:
            start, end, keyword = float(words[0]), float(words[1]), words[2].strip()
        except (ValueError, IndexError):
            raise UsageError(
                f"{file}:{number} is not a label", details=["expected: start, end, keyword, separated by tabs"]
            ) from None
        if keyword not in settings.keywords:
            details = [f"it has: {', '.join(settings.keywords)}"]
            raise UsageError(f"{file}:{number}: {keyword!r} is not in [app.keywords] of mtool.toml", details=details)
        if not 0 <= start <= end <= seconds + _ROUNDING_S:
            details = [f"the recording has {seconds:.3f} s"]
            raise UsageError(f"{file}:{number}: {words[0]} to {words[1]} s is not a part of it", details=details)
        labels.append((start, end, keyword))
    return tuple(labels)


def record(
    project: UserProject, path: Path, *, seconds: float, board: str = "", port: str = "", probe: str = ""
) -> tuple[float, int]:
    """Record what a board's sensor gives, through the application's program.

    Args:
        project: a project with an application.
        path: the .wav file to write.
        seconds: the length.
        board: the board's name; empty: the project's.
        port: the board's port.
        probe: its probe.

    Returns:
        The seconds that were recorded, and the number of hops that were lost.

    Raises:
        UsageError: the project is not an application, the board has no sensor, or the file can't be written.
        CommunicationError: the board does not answer.
    """
    settings, name = settings_of(project), board or project.board
    files.check_writable(path, makes_folder=True)
    if not project.has_sensor(name):
        raise UsageError(
            f"{name} has no sensor", details=["only the project's own board has one, and an emulated board does not"]
        )
    with open_application(project, name, port=port, probe=probe) as program:
        data, lost = program.record(program.begin(), seconds, settings.rate)
    wav = io.BytesIO()
    with wave.Wave_write(wav) as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(settings.rate)
        file.writeframes(data)
    files.write(path, wav.getvalue())
    return len(data) / 2 / settings.rate, lost
