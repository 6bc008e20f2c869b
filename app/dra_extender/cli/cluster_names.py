"""Names of pods, nodes and namespaces for completion, as kubectl lists them.

kubectl is asked because it starts in a fraction of the time that a client of Python takes, and has its own login.  Without kubectl
on the PATH, and where it does not answer in time, there are no names.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

SECONDS: Final = 2.0
"""As long as kubectl may take."""
MOST_NAMES: Final = 1_000
_MOST_CHARACTERS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@:/-]{0,251}[A-Za-z0-9])?\Z")
_PODS: Final = ("get", "pods", "--output=name")
_WAITING: Final = (*_PODS, "--field-selector=status.phase=Pending")
_NODES: Final = ("get", "nodes", "--output=name")
_OF_PARAMETER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pod": _WAITING,
        "without": _PODS,
        "fill": _PODS,
        "node": _NODES,
        "drain": _NODES,
        "namespace": ("get", "namespaces", "--output=name"),
        "context": ("config", "get-contexts", "--output=name"),
    }
)
"""What kubectl is asked for the values of a parameter of this name."""
_HANDED_ON: Final[Mapping[str, str]] = MappingProxyType(
    {
        "-n": "--namespace",
        "--namespace": "--namespace",
        "--kubeconfig": "--kubeconfig",
        "--context": "--context",
        "--as": "--as",
        "--as-group": "--as-group",
    }
)


def names_for(parameter: str, typed: Sequence[str]) -> Sequence[str]:
    """Ask kubectl for names that may stand for the parameter; `typed` are the words of the command line before it.

    A command line that asks a snapshot has none.
    """
    asked = _OF_PARAMETER.get(parameter)
    program = None if asked is None else shutil.which("kubectl")
    if asked is None or program is None or any(each.partition("=")[0] == "--snapshot" for each in typed):
        return ()
    timeout = () if asked[0] == "config" else (f"--request-timeout={SECONDS:g}s",)
    command = [program, *asked, *timeout, *_options(typed)]
    try:
        done = subprocess.run(  # noqa: S603 - kubectl of the person who types, and no shell between
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ()
    lines = done.stdout[:_MOST_CHARACTERS].decode(errors="replace").splitlines() if done.returncode == 0 else []
    names = (each.partition("/")[2] if asked[0] == "get" else each for each in lines)
    return [each for each in names if _NAME.match(each)][:MOST_NAMES]


def _options(typed: Sequence[str]) -> list[str]:
    """Return the options that say which cluster and namespace is meant, each with its value in one word."""
    found: list[str] = []
    for place, word in enumerate(typed):
        name, given, value = word.partition("=")
        if name not in _HANDED_ON:
            continue
        if not given and place + 1 < len(typed):
            value = typed[place + 1]
        if value:
            found.append(f"{_HANDED_ON[name]}={value}")
    return found
