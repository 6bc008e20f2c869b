"""Probes of the readers of files: a text is accepted, or refused in the reader's own words, and nothing else comes out."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dra_extender.config.policy_file import read_policy
from dra_extender.config.settings import InvalidSettingsError, load_settings

from tests.hostile.measuring import Stalls, forget_peak, peak, resident

_FILE = Path(tempfile.mkdtemp(prefix="dra-extender-hostile-")) / "file.yaml"


def policy(job: dict[str, Any]) -> dict[str, Any]:
    return _read(job["text"], read_policy)


def settings(job: dict[str, Any]) -> dict[str, Any]:
    """Read a file of settings."""
    return _read(job["text"], load_settings)


def _read(text: str, reader: Callable[[Path], Any]) -> dict[str, Any]:
    _FILE.write_bytes(text.encode(errors="surrogateescape"))
    before = resident()
    forget_peak()
    stalls = Stalls()
    values, note = {}, "accepted"
    try:
        reader(_FILE)
    except InvalidSettingsError:
        note = "refused"
    except Exception as problem:  # noqa: BLE001 - that nothing else comes out is what is asked
        values["broken"] = 1.0
        note = f"{type(problem).__name__}: {problem}"[:300]
    values["stall"] = stalls.end()[1]
    values["grown"] = float(max(0, peak() - before))
    return {"values": values, "note": note}
