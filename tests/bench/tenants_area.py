import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.bench import contenders
from tests.bench.contenders import IN_TREE
from tests.bench.rows import Goal, Row, compare, within
from tests.bench.scale import Scale
from tests.bench.tenants_run import ATTACKER, Suffered, kept, p99, suffer
from tests.controlplane.attacks import ATTACKS, HOPELESS, Attack

AREA: Final = "tenants"
LIVEZ_MILLISECONDS: Final = 250.0
MEGABYTES_OF_A_LARGE_CLAIM: Final = 0.02
_WITHOUT: Final = "without the attacker"
_LATENCY: Final = Goal("<=", 3.0)
_FILTER: Final = Goal("<=", 2.0)
_RATE: Final = Goal(">=", 0.7)
_LOG = logging.getLogger("tests.bench")

_Runs = Sequence[tuple[Suffered, Suffered]]


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """What a namespace user who means ill does to everybody else's pods: each attack beside a run without it, ours and in-tree."""
    ours = contenders.ours()
    own = await _rounds(ours, HOPELESS, scale, workdir)
    rows = _suffered(HOPELESS.name, own, None, None)
    for peer in (contenders.refusing(ATTACKER), IN_TREE)[: scale.peers]:
        runs = await _rounds(peer, HOPELESS, scale, workdir)
        rows += _suffered(f"{peer.name}, {HOPELESS.name}", runs, None, None)
        rows.append(_attempts(own, runs, peer.name))
    for attack in ATTACKS[: scale.attacks]:
        rows += _ours(attack, await _rounds(ours, attack, scale, workdir))
        in_tree = await _rounds(IN_TREE, attack, scale, workdir)
        rows += _suffered(f"in-tree plugin, {attack.name}", in_tree, None, None)
    claims = scale.large_claims
    grown, bound = [await kept(ours, claims, scale, workdir)], MEGABYTES_OF_A_LARGE_CLAIM * claims
    rows.append(within(AREA, f"{claims} claims of 10 KiB: memory", "MB", grown, bound))
    return rows


async def _rounds(contender: contenders.Contender, attack: Attack, scale: Scale, workdir: Path) -> _Runs:
    return [await _pair(contender, attack, scale, workdir) for _ in range(scale.runs)]


async def _pair(
    contender: contenders.Contender, attack: Attack, scale: Scale, workdir: Path
) -> tuple[Suffered, Suffered]:
    """The same load with the attack and without it, one after the other."""
    attacked, quiet = [await suffer(contender, each, scale, workdir) for each in (attack, None)]
    _LOG.info(
        "%s, %s: p99 %.2f s beside %.2f s, %.0f beside %.0f pods/s, %d of %d bound, filter p99 %.1f beside %.1f ms, livez %.0f ms",
        contender.name,
        attack.name,
        p99(attacked.latencies),
        p99(quiet.latencies),
        attacked.rate,
        quiet.rate,
        attacked.bound,
        attacked.pods,
        1000 * p99(attacked.filters),
        1000 * p99(quiet.filters),
        1000 * max(attacked.livez, default=0.0),
    )
    return attacked, quiet


def _attempts(ours: _Runs, peer: _Runs, peer_name: str) -> Row:
    """How often kube-scheduler tries each pod that no node suits, beside the victim's pods."""
    pairs = [
        (mine.attempts / mine.accepted, theirs.attempts / theirs.accepted)
        for (mine, _), (theirs, _) in zip(ours, peer, strict=True)
    ]
    return compare(AREA, f"{HOPELESS.name}: attempts", "attempts per pod", pairs, peer_name)


def _ours(attack: Attack, runs: _Runs) -> list[Row]:
    slowest = [1000 * max(attacked.livez) for attacked, _ in runs]
    return [
        *_suffered(attack.name, runs, _LATENCY, _RATE),
        _beside(f"{attack.name}: filter", "ms p99", runs, lambda each: 1000 * p99(each.filters), _FILTER),
        within(AREA, f"{attack.name}: slowest /livez", "ms", slowest, LIVEZ_MILLISECONDS),
    ]


def _suffered(case: str, runs: _Runs, latency: Goal | None, rate: Goal | None) -> list[Row]:
    return [
        _beside(f"{case}: created to bound", "ms p99", runs, lambda each: 1000 * p99(each.latencies), latency),
        _beside(f"{case}: bound in a burst", "pods/s", runs, lambda each: each.rate, rate),
    ]


def _beside(case: str, unit: str, runs: _Runs, figure: Callable[[Suffered], float], goal: Goal | None) -> Row:
    pairs = [(figure(attacked), figure(quiet)) for attacked, quiet in runs]
    details = {
        "pods bound": min(attacked.bound for attacked, _ in runs),
        "pods": runs[0][0].pods,
        "attacking pods accepted": min(attacked.accepted for attacked, _ in runs),
    }
    return compare(AREA, case, unit, pairs, _WITHOUT, goal=goal, details=details)
