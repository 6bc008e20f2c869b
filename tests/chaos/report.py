"""A run in words and numbers."""

from collections.abc import Iterator, Sequence

from tests.chaos.run import Result


def table(result: Result) -> str:
    """The summary, and everything that is wrong."""
    plan = result.plan
    rows = [
        ("seed", str(plan.seed)),
        ("seconds of trouble", f"{plan.seconds:g}"),
        ("nodes", str(plan.nodes)),
        *_pods(result),
        ("API calls of the extender", str(result.calls)),
        *((f"  met: {name}", str(count)) for name, count in sorted(result.faults.items())),
        *((f"trouble: {name}", str(count)) for name, count in sorted(result.troubles.items())),
        ("changes of the leader", str(result.terms)),
        *((f"given back: {name}", str(count)) for name, count in sorted(result.reclaims.items())),
        ("pods bound by another scheduler", str(result.foreign)),
        ("allocations given up to it", str(result.yielded)),
        ("looks at the invariants", str(result.looks)),
        ("violations", str(len(result.violations))),
        ("findings at rest", str(len(result.left))),
        ("pods stuck", str(len(result.stuck))),
        ("complaints in the logs", str(len(result.complaints))),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value:>8}" for name, value in rows]
    return "\n".join([*lines, *faults(result)])


def _pods(result: Result) -> Iterator[tuple[str, str]]:
    lives = result.lives.values()
    waits = sorted(each.bound - each.created for each in lives if each.bound)
    yield "pods made", str(len(lives))
    yield "pods bound", str(len(waits))
    yield "pods deleted before they were bound", str(sum(not each.bound and each.ended > 0 for each in lives))
    for name, share in (("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0)):
        yield f"seconds until bound, {name}", f"{_quantile(waits, share):.1f}"


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def faults(result: Result) -> Iterator[str]:
    """Everything that is wrong, a line each."""
    for title, found in (
        ("VIOLATION", result.violations),
        ("LEFT", result.left),
        ("STUCK", result.stuck),
        ("COMPLAINT", result.complaints[:20]),
    ):
        yield from (f"{title}: {each}" for each in found)
