"""What code asks the machine for, answered by the simulation: clocks, randomness, sockets and the name of the host.

Functions that modules have bound already, as a name or as the default of a parameter, are replaced as well.
"""

import gc
import os
import random
import socket
import ssl
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final
from unittest.mock import patch

import yaml
from dra_extender.runtime import garbage

from tests.simulation.loop import SimulationLoop
from tests.simulation.network import SimulatedSocket, address_info

START: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z in seconds since the epoch: when each simulation begins."""
REAL: Final = types.SimpleNamespace(
    collect=gc.collect,
    freeze=gc.freeze,
    unfreeze=gc.unfreeze,
    process_time=time.process_time,
    perf_counter=time.perf_counter,
)
"""What is asked of the real machine inside a simulation."""
_LOOK_SECONDS: Final = 60.0
_BOOT: Final = 1_000.0
"""Seconds that every machine runs before that."""


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", None)

_ASKED: Final[tuple[tuple[types.ModuleType, str], ...]] = (
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "thread_time"),
    (time, "process_time"),
    (time, "clock_gettime"),
    (os, "urandom"),
    (os, "getpid"),
    (gc, "get_count"),
    (gc, "collect"),
    (gc, "freeze"),
    (gc, "unfreeze"),
    (gc, "enable"),
    (socket, "socket"),
    (socket, "getaddrinfo"),
    (socket, "gethostname"),
)
"""What is replaced: modules, and names in them."""
_FUNCTIONS: Final = {asked: getattr(*asked) for asked in _ASKED}


class _Machine:
    """The answers, for the process that asks."""

    def __init__(self, loop: SimulationLoop, seed: int) -> None:
        self._loop = loop
        self._random = random.Random(f"machine {seed}")

    def time(self) -> float:
        return START + self._loop.read_clock() + self._loop.current.wall_offset

    def monotonic(self) -> float:
        """The clock that stands still while the machine sleeps."""
        return self._boot() - self._loop.current.suspended

    def _boot(self) -> float:
        return _BOOT + self._loop.read_clock()

    def clock_gettime(self, clock: int) -> float:
        if clock == _STEADY:
            return self._boot()
        return self.time() if clock == time.CLOCK_REALTIME else self.monotonic()

    def urandom(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def gethostname(self) -> str:
        return self._loop.current.name


@contextmanager
def simulated(loop: SimulationLoop, seed: int) -> Iterator[None]:
    """Inside the block the machine is simulated for this thread; other threads have the real one."""
    machine = _Machine(loop, seed)
    answers: dict[tuple[Any, str], Any] = {
        (time, "time"): machine.time,
        (time, "time_ns"): lambda: int(machine.time() * 1e9),
        (time, "monotonic"): machine.monotonic,
        (time, "monotonic_ns"): lambda: int(machine.monotonic() * 1e9),
        (time, "perf_counter"): machine.monotonic,
        (time, "perf_counter_ns"): lambda: int(machine.monotonic() * 1e9),
        (time, "thread_time"): machine.monotonic,
        (time, "process_time"): machine.monotonic,
        (time, "clock_gettime"): machine.clock_gettime,
        (os, "urandom"): machine.urandom,
        (os, "getpid"): lambda: 1,
        # Whether garbage is due depends on what else is in memory, and its collection may run code.
        (gc, "get_count"): lambda: (0, 0, 0),
        (gc, "collect"): lambda *_: 0,
        (gc, "freeze"): lambda: None,
        (gc, "unfreeze"): lambda: None,
        (gc, "enable"): _do_nothing,
        (socket, "socket"): SimulatedSocket,
        (socket, "getaddrinfo"): address_info,
        (socket, "gethostname"): machine.gethostname,
    }
    assert tuple(answers) == _ASKED
    real = {_FUNCTIONS[asked]: _for_this_thread(_FUNCTIONS[asked], answer) for asked, answer in answers.items()}
    state = random.getstate()
    with ExitStack() as stack:
        # Nothing here speaks TLS, and to load the certificates that a machine trusts takes long.
        stack.enter_context(patch.object(ssl.SSLContext, "set_default_verify_paths", lambda _: None))
        # Each replica reads its kubeconfig again every minute, and YAML's loader in Python takes ten times as long.
        stack.enter_context(patch.object(yaml, "SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        stack.enter_context(_without_garbage_collection())
        # As there is nothing to collect, nobody need look for it ten times a second.
        stack.enter_context(patch.object(garbage, "LOOK_SECONDS", _LOOK_SECONDS))
        for module, name in _names(frozenset(real), len(sys.modules)):
            stack.enter_context(patch.object(module, name, real[getattr(module, name)]))
        for function in _functions(frozenset(real), len(sys.modules)):
            stack.enter_context(_other_defaults(function, real))
        random.seed(f"random {seed}")
        try:
            yield
        finally:
            random.setstate(state)


@contextmanager
def collected() -> Iterator[None]:
    """Free at the end of the block what simulated processes leave, without a word of what they have left open or undone."""
    outermost = not gc.get_freeze_count()
    if outermost:
        # The collector does not list what it is told not to look at.
        _functions(frozenset(_FUNCTIONS.values()), len(sys.modules))
        # What was there before need not be looked at for garbage: in a process with many tests that takes seconds.
        gc.freeze()
    # A coroutine may end outside the simulation, and what a process does to the collector at its end is not for this machine.
    with (
        warnings.catch_warnings(),
        patch.object(gc, "unfreeze", _do_nothing),
        patch.object(gc, "enable", _do_nothing),
    ):
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
        try:
            yield
        finally:
            said, sys.unraisablehook = sys.unraisablehook, lambda _: None
            try:
                # A coroutine that the first collection ends lets go of its objects only then.
                REAL.collect()
                REAL.collect()
            finally:
                sys.unraisablehook = said
                if outermost:
                    REAL.unfreeze()


def _do_nothing() -> None:
    pass


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _for_this_thread(real: Any, answer: Any) -> Any:
    identify = threading.get_ident
    thread = identify()
    if isinstance(real, type):
        return answer

    def ask(*given: Any, **named: Any) -> Any:
        return (answer if identify() == thread else real)(*given, **named)

    return ask


@lru_cache(maxsize=1)
def _names(functions: frozenset[Any], _: int) -> list[tuple[types.ModuleType, str]]:
    """Where in modules these functions are, as long as no further module is imported."""
    wanted = {id(each) for each in functions}
    modules = dict.fromkeys(sys.modules.values())
    return [(module, name) for module in modules for name, value in vars(module).items() if id(value) in wanted]


@lru_cache(maxsize=1)
def _functions(functions: frozenset[Any], _: int) -> list[types.FunctionType]:
    """The functions that have one of these as a default, as long as no further module is imported."""
    wanted = {id(each) for each in functions}

    def has(function: types.FunctionType) -> bool:
        given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        return any(id(each) in wanted for each in given)

    # A module was imported since the collector was told not to look at what was there.  To tell it so again would keep what
    # has begun since for ever.
    REAL.unfreeze()
    return [each for each in gc.get_objects() if type(each) is types.FunctionType and has(each)]


@contextmanager
def _other_defaults(function: types.FunctionType, real: dict[Any, Any]) -> Iterator[None]:
    wanted = {id(each): answer for each, answer in real.items()}
    before = function.__defaults__, function.__kwdefaults__
    if before[0]:
        function.__defaults__ = tuple(wanted.get(id(each), each) for each in before[0])
    if before[1]:
        function.__kwdefaults__ = {name: wanted.get(id(each), each) for name, each in before[1].items()}
    try:
        yield
    finally:
        function.__defaults__, function.__kwdefaults__ = before
