"""Objects with fields of any shape are answered about, or left out with a reason; none ends a command with a traceback."""

import copy
import random
from collections.abc import Iterator
from typing import Any, Final

from dra_extender.inspection.audit.report import audit_report
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.redaction.redact import redacted
from dra_extender.inspection.text.audit import audit_tree
from dra_extender.inspection.text.devices import (
    devices_csv,
    devices_tree,
    devices_wide,
    usage_csv,
    usage_tree,
    usage_wide,
)
from dra_extender.inspection.usage import usage_report

from tests.support.audit.sound_cluster import SoundCluster

SEEDS: Final = 80
VALUES: Final[tuple[Any, ...]] = (
    *(None, "", -1, 2**70, True, 1e308, "x" * 500, "\x00\x1b[2J", "=1+1", "a/b/c", "-5", "1e400", "9" * 20 + "Ei"),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"),
    *([], {}, [None], {"": None}, ["a", "a"], {"a": {"value": "-1"}}, {"a": ["x"]}),
)

SECRET: Final = "s3cret-of-a-tenant"  # noqa: S105 - planted to be looked for
SECRETS: Final[tuple[Any, ...]] = (
    *(SECRET, [SECRET], {SECRET: SECRET}, [{"name": SECRET}], f"a/{SECRET}", f'{{"digest":"{SECRET}"}}'),
    *(f'[["{SECRET}"', f'device.driver == "{SECRET}"', f'device.attributes["{SECRET}"].x'),
)


def paths(found: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in members:
        yield (*before, name)
        yield from paths(value, (*before, name))


def spoil(cluster: SoundCluster, chance: random.Random) -> None:
    """Give a field of an object another value, or none."""
    stored = [each for found in cluster.made.objects.values() for each in found]
    found: Any = chance.choice(stored)
    *above, last = chance.choice([each for each in paths(found) if each[0] not in ("kind", "apiVersion")])
    for name in above:
        found = found[name]
    if isinstance(found, dict) and chance.random() < 0.2:
        del found[last]
    else:
        found[last] = copy.deepcopy(chance.choice(VALUES))


def planted(cluster: SoundCluster, chance: random.Random) -> None:
    """Put the secret, in some shape, into a field of an object, or add a field of that name."""
    stored = [each for found in cluster.made.objects.values() for each in found]
    found: Any = chance.choice(stored)
    *above, last = chance.choice([each for each in paths(found) if each[0] not in ("kind", "apiVersion")])
    for name in above:
        found = found[name]
    found[SECRET if isinstance(found, dict) and chance.random() < 0.3 else last] = copy.deepcopy(chance.choice(SECRETS))


def answers(view: ClusterView) -> Iterator[str]:
    yield audit_tree(audit_report(view))
    devices = devices_report(view)
    yield from (devices_tree(devices), devices_wide(devices), devices_csv(devices))
    usage = usage_report(view)
    yield from (usage_tree(usage), usage_wide(usage), usage_csv(usage))


def test_every_answer_is_text_without_control_characters() -> None:
    for seed in range(SEEDS):
        cluster, chance = SoundCluster(seed), random.Random(seed)
        for _ in range(chance.randint(1, 4)):
            spoil(cluster, chance)
        for text in answers(cluster.made.view()):
            assert text.replace("\r", "").replace("\n", "").isprintable(), seed


def test_redacted_snapshot_of_objects_of_any_shape_has_nothing_that_was_planted() -> None:
    for seed in range(SEEDS):
        cluster, chance = SoundCluster(seed), random.Random(seed)
        for _ in range(chance.randint(1, 4)):
            chance.choice((spoil, planted))(cluster, chance)
        found = redacted(cluster.made.cluster(), chance)
        assert not any(SECRET.encode() in each for items in found.objects.by_kind.values() for each in items), seed
        assert SECRET not in found.kept_names
