"""Claims that ask for more devices than a claim may have."""

import pytest
from dra_extender.inspection.never_fits import never_fits
from dra_extender.lint.lint_files import lint_files
from dra_extender.lint.read import read_files

from tests.controlplane.objects import device, device_class
from tests.support.inspection.made_cluster import MadeCluster


def claim(*requests: str, version: str = "v1", kind: str = "ResourceClaim") -> str:
    devices = f"{{devices: {{requests: [{', '.join(requests)}]}}}}"
    spec = devices if kind == "ResourceClaim" else f"{{spec: {devices}}}"
    return f"apiVersion: resource.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: c}}\nspec: {spec}\n"


def exactly(fields: str, name: str = "r") -> str:
    return f"{{name: {name}, exactly: {{deviceClassName: gpu, {fields}}}}}"


def either(*counts: int) -> str:
    alternatives = ", ".join(
        f"{{name: a{index}, deviceClassName: c{index}, count: {count}}}" for index, count in enumerate(counts)
    )
    return f"{{name: e, firstAvailable: [{alternatives}]}}"


def found(text: str) -> list[tuple[str, str, str]]:
    """Return field, code and message of each finding."""
    findings = lint_files(read_files([("c.yaml", text)])).findings
    return [(finding.field, finding.code, finding.message) for finding in findings]


@pytest.mark.parametrize(
    ("requests", "asked"),
    [
        pytest.param([exactly("count: 40")], 40, id="one-request"),
        pytest.param([exactly("count: 32"), exactly("", "s")], 33, id="one-device-by-default"),
        pytest.param([exactly("count: 20"), either(33, 13)], 33, id="smallest-alternative"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_a_claim_for_more_devices_than_a_claim_may_have_is_found_without_slices(
    requests: list[str], asked: int, version: str
) -> None:
    message = f"no node can serve the claim: it asks for {asked} devices, a claim may have 32"
    assert found(claim(*requests, version=version)) == [("spec.devices.requests", "never-fits", message)]
    template = claim(*requests, version=version, kind="ResourceClaimTemplate")
    assert found(template) == [("spec.spec.devices.requests", "never-fits", message)]


def test_the_fields_of_requests_in_v1beta1_count() -> None:
    message = "no node can serve the claim: it asks for 40 devices, a claim may have 32"
    text = claim("{name: r, deviceClassName: gpu, count: 40}", version="v1beta1")
    assert found(text) == [("spec.devices.requests", "never-fits", message)]


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([exactly("count: 32")], id="as-many-as-allowed"),
        pytest.param([exactly("count: 31"), exactly("allocationMode: All", "s")], id="all"),
        pytest.param([either(32, 1)], id="alternatives"),
    ],
)
def test_nothing_is_said_of_as_many_devices_as_a_claim_may_have(requests: list[str]) -> None:
    assert found(claim(*requests)) == []


def test_an_alternative_with_which_a_claim_asks_for_too_many_devices_is_never_taken() -> None:
    def never_taken(place: str, asked: int) -> tuple[str, str, str]:
        message = f"this alternative is never taken: with it, the claim asks for {asked} devices, a claim may have 32"
        return f"spec.devices.requests{place}", "never-fits", message

    assert found(claim(either(40, 8, 2))) == [never_taken("[0].firstAvailable[0]", 40)]
    assert found(claim(exactly("count: 30"), either(1, 3))) == [never_taken("[1].firstAvailable[1]", 33)]


@pytest.mark.parametrize("requests", ["requests: 5", "requests: [5, {name: r, exactly: 5}]", "requests: [{name: r}]"])
def test_requests_that_cannot_be_read_ask_for_no_device_too_many(requests: str) -> None:
    text = claim().replace("requests: []", requests)
    assert "never-fits" not in [code for _, code, _ in found(text)]


def test_a_cluster_is_not_asked_what_no_cluster_has() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1")
    made.gpus("n1", *(device(f"gpu-{index}") for index in range(3)))
    too_many = claim(exactly("count: 40"))
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}], resourceClaims: "
        "[{name: one, resourceClaimName: c}, {name: two, resourceClaimName: d}]}\n"
    )
    text = "---\n".join((too_many, claim(exactly("count: 1")).replace("name: c}", "name: d}"), pod))
    assert list(never_fits(made.cluster(), read_files([("c.yaml", text)]))) == []
    alternatives = claim(either(40, 1).replace("c0", "gpu").replace("c1", "gpu"))
    assert list(never_fits(made.cluster(), read_files([("c.yaml", alternatives)]))) == []
