"""What the kernel says about a process."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, its threads included; in steps of a clock tick (10 ms)."""
    # The name in parentheses may hold anything, so fields are counted from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def busy_seconds() -> float:
    """Processor time that the whole machine has spent on anything, since it started."""
    user, nice, system, _, _, irq, soft_irq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + soft_irq + steal) / _TICKS


def memory_megabytes(pid: int) -> tuple[float, float]:
    """(resident now, most that was ever resident), in 2**20 bytes."""
    found = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return tuple(int(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
