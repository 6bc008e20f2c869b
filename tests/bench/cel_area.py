import asyncio
import gc
import hashlib
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from statistics import geometric_mean, median
from time import thread_time
from typing import Any, Final

from dra_extender.cel.device import Attribute, DeviceActivation, prepare_device
from dra_extender.cel.errors import CelError
from dra_extender.cel.program import ProgramCache, compile_expression

from tests.bench.cel_peers import DEVICE, seconds_each
from tests.bench.rows import BenchError, Goal, Row, compare, within
from tests.bench.scale import Scale
from tests.controlplane.build import cache_folder
from tests.controlplane.extender import REPOSITORY
from tests.support.cel.hostile import ALL as HOSTILE

AREA: Final = "cel"
LOCK: Final = REPOSITORY / "requirements-bench.lock"
PROGRAM_MEGABYTES: Final = 24.0 / 4096
HOSTILE_MILLISECONDS: Final = 100.0
HOSTILE_MEGABYTES: Final = 64.0
_EACH: Final = Goal(">=", 1.3)
_MEAN: Final = Goal(">=", 4.0)
_COMPILE: Final = Goal("<=", 1.2)
_A: Final = 'device.attributes["gpu.nvidia.com"]'
SELECTORS: Final = {
    "driver": 'device.driver == "gpu.nvidia.com"',
    "driver and type": f'device.driver == "gpu.nvidia.com" && {_A}.type == "gpu"',
    "quantity": f'device.driver == "gpu.nvidia.com" && {_A}.type == "gpu" && '
    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0',
    "pattern": f'{_A}.productName.lowerAscii().matches("^nvidia.*a100")',
    "semver": f'{_A}.driverVersion.compareTo(semver("535.0.0")) > 0',
    "has and in": f'has({_A}.architecture) && {_A}.architecture in ["Ampere", "Hopper"]',
    "ternary": f'{_A}.brand == "Nvidia" ? {_A}.index > 2 : {_A}.index == 0',
    "exists": 'device.attributes.exists(k, k == "gpu.nvidia.com")',
    "ten terms": " && ".join(
        [f"{_A}.index != {number}" for number in range(10, 16)]
        + [f'{_A}.type == "gpu"', f'{_A}.brand == "Nvidia"', f"{_A}.minor == 3", f"{_A}.healthy"]
    ),
}


async def measure(scale: Scale, _: Path) -> list[Row]:
    """Evaluations and compilations of nine selectors beside the fastest other library, cached programs, hostile expressions."""
    python = await asyncio.to_thread(_environment)
    device = _device()
    seconds = scale.cel_seconds
    rounds = [
        (
            await asyncio.to_thread(_peers, python, seconds),
            {name: _ours(text, device, seconds) for name, text in SELECTORS.items()},
        )
        for _ in range(scale.cel_rounds)
    ]
    rows = []
    for name in SELECTORS:
        pairs = [(1 / mine[name][0], 1 / _fastest(peers[name], 0)) for peers, mine in rounds]
        library = min(rounds[0][0][name], key=lambda each: rounds[0][0][name][each][0])
        rows.append(compare(AREA, f"{name}: evaluations", "per s", pairs, library, goal=_EACH))
    for what, place, goal in (("evaluations", 0, _MEAN), ("compilation", 1, _COMPILE)):
        means = [
            (
                geometric_mean(mine[name][place] for name in SELECTORS),
                geometric_mean(_fastest(peers[name], place) for name in SELECTORS),
            )
            for peers, mine in rounds
        ]
        pairs = [(1 / mine, 1 / theirs) if place == 0 else (1e6 * mine, 1e6 * theirs) for mine, theirs in means]
        unit = "per s" if place == 0 else "us"
        rows.append(compare(AREA, f"geometric mean: {what}", unit, pairs, "fastest of each", goal=goal))
    programs = scale.cel_programs
    size, bound = [_cached_megabytes(programs)], PROGRAM_MEGABYTES * programs
    rows.append(within(AREA, f"{programs} cached programs", "MB", size, bound))
    hostile = dict(list(HOSTILE.items())[:: scale.hostile_step])
    slowest = [_slowest_hostile(hostile, device, scale.hostile_rounds) for _ in rounds]
    spent = [milliseconds for _, milliseconds in slowest]
    aim = f"goal; slowest: {max(slowest, key=itemgetter(1))[0]}"
    case = f"slowest of {len(hostile)} hostile expressions"
    rows.append(within(AREA, case, "ms CPU", spent, HOSTILE_MILLISECONDS, peer_name=aim))
    held = [max(_hostile_megabytes(text, device) for text in hostile.values())]
    rows.append(within(AREA, f"largest of {len(hostile)} hostile expressions", "MB", held, HOSTILE_MEGABYTES))
    return rows


def _answer(text: str, device: DeviceActivation) -> None:
    with suppress(CelError):
        compile_expression(text).matches(device)


def _slowest_hostile(hostile: Mapping[str, str], device: DeviceActivation, rounds: int) -> tuple[str, float]:
    """The expression that takes longest, and the milliseconds of processor time it takes to compile and evaluate it.

    Of each expression the median of all rounds counts. All are asked before any is asked again, because what else runs on the
    machine makes processor time longer, too, for as long as a few expressions take.
    """
    spent: dict[str, list[float]] = {name: [] for name in hostile}
    for _ in range(rounds):
        for name, text in hostile.items():
            begun = thread_time()
            _answer(text, device)
            spent[name].append(1e3 * (thread_time() - begun))
    return max(((name, median(times)) for name, times in spent.items()), key=itemgetter(1))


def _hostile_megabytes(text: str, device: DeviceActivation) -> float:
    """The most that Python's objects took at once while it was answered."""
    gc.collect()
    tracemalloc.start()
    try:
        _answer(text, device)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def _fastest(libraries: dict[str, list[float]], place: int) -> float:
    if not libraries:
        raise BenchError("No other library answers one of the selectors, so there is nothing to compare with.")
    return min(each[place] for each in libraries.values())


def _device() -> DeviceActivation:
    attributes: dict[str, Attribute] = {}
    for name, value in DEVICE["attributes"]["gpu.nvidia.com"].items():
        field = {bool: "bool_value", int: "int_value", str: "string_value"}[type(value)]
        values: dict[str, Any] = {"version_value" if name.endswith("Version") else field: value}
        attributes[name] = Attribute(**values)
    return prepare_device("gpu.nvidia.com", attributes, {"memory": "40Gi"}, False)


def _ours(text: str, device: DeviceActivation, seconds: float) -> tuple[float, float]:
    """Seconds for an evaluation and for a compilation."""
    program = compile_expression(text)
    if not program.matches(device):
        raise BenchError(f"Our answer to {text} is not true.")
    return (
        seconds_each(lambda: program.matches(device), seconds),
        seconds_each(lambda: compile_expression(text), seconds),
    )


def _cached_megabytes(programs: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = ProgramCache()
        for number in range(programs):
            cache.compile(f"{SELECTORS['quantity']} && {_A}.index != {number + 100}")
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / 2**20
    finally:
        tracemalloc.stop()


def _environment() -> Path:
    """The python of an environment with the other libraries, made once and kept in the cache folder."""
    folder = cache_folder() / "bench-venv" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    python = folder / "bin" / "python"
    finished = folder / "complete"
    if not finished.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "--require-hashes", "-r", str(LOCK)])
        finished.touch()
    return python


def _peers(python: Path, seconds: float) -> dict[str, dict[str, list[float]]]:
    question = json.dumps({"selectors": SELECTORS, "seconds": seconds})
    answer: dict[str, dict[str, list[float]]] = json.loads(
        _run([str(python), str(Path(__file__).with_name("cel_peers.py"))], question)
    )
    return answer


def _run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stdout
