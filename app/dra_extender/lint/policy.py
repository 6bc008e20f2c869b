"""Lint of policy files: rules that cannot be read or change nothing, and neighbours that judge each other differently."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.overlay.policy_effects import asymmetric_rules, ineffective_rules, published_devices
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.config.policy_file import InvalidPolicyError, read_policy
from dra_extender.manifests.documents import read_documents
from dra_extender.model.api_json import ModelError
from dra_extender.model.resource_slice import ResourceSlice, SliceReader

_SLICE = "ResourceSlice"
_GROUP = "resource.k8s.io/"


class PolicyText(NamedTuple):
    """A policy in a file, with the name of the file."""

    file: str
    text: str


def is_policy(value: Any) -> bool:
    """Whether a document is a policy and no manifest."""
    return isinstance(value, dict) and "rules" in value and not {"kind", "apiVersion"} & set(value)


def slices_in(text: str) -> Iterator[ResourceSlice]:
    """The ResourceSlices of a file, those of a List too; objects that cannot be read are left out."""
    reader = SliceReader()
    for document in read_documents(text):
        for thing in _things(document.value):
            if str(thing.get("apiVersion")).startswith(_GROUP) and thing.get("kind") == _SLICE:
                try:
                    yield reader.convert(thing)
                except ModelError:
                    continue


def policy_findings(
    policies: Sequence[PolicyText], slices: Mapping[str, Sequence[ResourceSlice]]
) -> Iterator[tuple[str, LintFinding]]:
    """(file, finding) for each policy with all slices, by file; without a policy, for the slices of each file alone."""
    everything = [each for found in slices.values() for each in found]
    for policy in policies:
        try:
            overlay = _read(policy.text)
        except InvalidPolicyError as problem:
            yield policy.file, error(LintCode.POLICY, 0, str(problem).partition(": ")[2])
            continue
        for finding in _of(overlay, everything):
            yield policy.file, finding
    if not policies:
        for file, found in slices.items():
            for finding in _of(PolicyOverlay(()), found):
                yield file, finding


def _of(policy: PolicyOverlay, slices: Sequence[ResourceSlice]) -> Iterator[LintFinding]:
    devices = published_devices(policy.apply(each).effective for each in slices)
    for name, why in ineffective_rules(policy.rules, devices or ()):
        yield warning(LintCode.NO_EFFECT, 0, f"rule {name} has no effect: {why}")
    for refusing, other in asymmetric_rules(devices or ()):
        owner = f"rule {refusing.rule}" if refusing.rule else refusing.name
        facing = f"rule {other.rule}" if other.rule else other.name
        says = "says nothing" if other.device.compatible_only_with is None else "has no objection"
        yield warning(
            LintCode.ASYMMETRIC,
            0,
            f"{owner} keeps {refusing.name} apart from {other.name}, but {facing} {says}: write the rule on both sides",
        )


def _read(text: str) -> PolicyOverlay:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy"
        file.write_text(text, encoding="utf-8")
        return read_policy(file)


def _things(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _things(item)
    elif isinstance(value, dict):
        yield value
