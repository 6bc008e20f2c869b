"""Lint of policy files: rules that cannot be read or change nothing, and neighbours that judge each other differently."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.overlay.policy_effects import asymmetric_rules, ineffective_rules, published_devices
from dra_extender.cel.lint.findings import LintFinding, error, warning
from dra_extender.config.policy_file import InvalidPolicyError, parse_policy
from dra_extender.lint.codes import ManifestCode
from dra_extender.lint.pools import PlacedSlice
from dra_extender.lint.read import (
    ANNOTATIONS,
    DELETE,
    DEMO,
    SLICE,
    LintFile,
    PlacedFinding,
    as_v1,
    is_checked,
    placed,
    value_at,
)
from dra_extender.manifests.documents import Position, YamlDocument
from dra_extender.manifests.problems import path_text
from dra_extender.model.api_json import ModelError
from dra_extender.model.resource_slice import ResourceSlice, SliceReader

_RULES: Final = "rules"
_PARTS: Final = frozenset({_RULES, "preferences"})
_START: Final = Position(1, 1)


class PolicyText(NamedTuple):
    """A policy in a file, with the name of the file."""

    file: str
    text: str
    document: YamlDocument

    def position_of(self, rule: str) -> Position:
        rules = self.document.value.get(_RULES)
        for index, declared in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(declared, dict) and declared.get("name") == rule:
                return self.document.position_of((_RULES, index))
        return self.document.position_of()


def is_policy(value: Any) -> bool:
    """Return whether a document is a policy and no manifest."""
    return isinstance(value, dict) and bool(_PARTS & set(value)) and not {"kind", "apiVersion"} & set(value)


def slices_in(file: LintFile) -> Iterator[PlacedSlice]:
    """Yield the ResourceSlices of a file; objects that cannot be read, and that a story deletes, are left out."""
    reader = SliceReader()
    for document in file.objects:
        item = document.value
        if is_checked(item) and item.get("kind") == SLICE and value_at(item, (*ANNOTATIONS, DEMO)) != DELETE:
            with suppress(ModelError):
                yield PlacedSlice(file.name, document.position_of(), reader.convert(as_v1(item)))


def policy_findings(
    policies: Sequence[PolicyText], slices: Sequence[PlacedSlice], of_cluster: Iterable[ResourceSlice] = ()
) -> Iterator[PlacedFinding]:
    """Yield the findings of each policy with all slices; without a policy, of the slices of each file alone.

    `of_cluster`: slices for which policies are, too; slices of the files replace those of the same name.
    """
    together = [published.slice_ for published in slices]
    names = {slice_.name for slice_ in together}
    together += [slice_ for slice_ in of_cluster if slice_.name not in names] if policies else ()
    for policy in policies:
        try:
            overlay = parse_policy(policy.text.encode(), "policy")
        except InvalidPolicyError as problem:
            for path, sentence in problem.problems or (((), str(problem).partition(": ")[2]),):
                finding = error(ManifestCode.POLICY, 0, sentence)
                position = policy.document.position_of(path)
                yield placed(policy.file, position, "policy", finding, path_text(path))
            continue
        for rule, finding in _policy_findings(overlay, together):
            yield placed(policy.file, policy.position_of(rule), "policy", finding)
    by_file: dict[str, list[PlacedSlice]] = defaultdict(list)
    for published in slices if not policies else ():
        by_file[published.file].append(published)
    for file, slices_of_file in by_file.items():
        places = {published.slice_.name: published.position for published in slices_of_file}
        for name, finding in _policy_findings(PolicyOverlay(()), [published.slice_ for published in slices_of_file]):
            yield placed(file, places.get(name, _START), f"ResourceSlice {name}", finding)


def _policy_findings(policy: PolicyOverlay, slices: Sequence[ResourceSlice]) -> Iterator[tuple[str, LintFinding]]:
    """Yield (rule, or slice without one, finding)."""
    devices = published_devices(policy.apply(published).effective for published in slices)
    for name, message in ineffective_rules(policy.rules, devices or ()):
        yield name, warning(ManifestCode.NO_EFFECT, 0, message)
    for refusing, neighbour in asymmetric_rules(devices or ()):
        owner = f"rule {refusing.supplied_by}" if refusing.supplied_by else refusing.name
        facing = f"rule {neighbour.supplied_by}" if neighbour.supplied_by else neighbour.name
        says = "says nothing" if neighbour.device.compatible_only_with is None else "has no objection"
        text = f"{owner} keeps {refusing.name} apart from {neighbour.name}, but {facing} {says}: write the rule on both sides"
        yield refusing.supplied_by or refusing.published.name, warning(ManifestCode.ASYMMETRIC, 0, text)
