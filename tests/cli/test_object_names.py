import pytest
import typer
from dra_extender.cli.object_names import NamedKind, node_name, object_name, pod_key, pod_text
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", ("ml", "a")),
        ("vdi/a", ("vdi", "a")),
        ("pod/a", ("ml", "a")),
        ("pods/a", ("ml", "a")),
        ("po/a", ("ml", "a")),
        ("Pod/a", ("ml", "a")),
        ("pod/vdi/a", ("vdi", "a")),
        ("pod/pods/a", ("pods", "a")),
        ("-a", ("ml", "-a")),
    ],
)
def test_pods_are_named_as_answers_print_them_and_as_kubectl_names_them(text: str, key: tuple[str, str]) -> None:
    assert pod_key(text, "ml") == key


@pytest.mark.parametrize("key", [("ml", "a"), ("pod", "a"), ("pods", "a"), ("node", "a"), ("resourceclaim", "a")])
def test_pod_is_written_so_that_it_is_read_again(key: tuple[str, str]) -> None:
    assert pod_key(pod_text("/".join(key)), "other") == key


def test_nodes_are_named_as_kubectl_names_them() -> None:
    assert [node_name(text) for text in ("n1", "node/n1", "nodes/n1", "no/n1")] == ["n1"] * 4


@pytest.mark.parametrize(
    "text",
    [
        "resourceclaim/c",
        "resourceclaims/c",
        "resourceclaim.resource.k8s.io/c",
        "resourceclaims.resource.k8s.io/ml/c",
        "ResourceClaim/c",
    ],
)
def test_claims_are_named_with_their_kind_where_a_name_alone_is_a_pod(text: str) -> None:
    found = object_name(text, "ml", NamedKind.POD, NamedKind.CLAIM)
    assert (found.kind, found.key) == (NamedKind.CLAIM, ("ml", "c"))
    assert object_name("c", "ml", NamedKind.POD, NamedKind.CLAIM).kind is NamedKind.POD


@pytest.mark.parametrize("text", ["", "pod/", "a/", "/a", "a/b/c", "pod/a/b/c", "pod//a", "node/n1", "resourceclaim/c"])
def test_what_names_no_pod_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME, NAMESPACE/NAME or pod/NAME, got"):
        pod_key(text, "ml")


@pytest.mark.parametrize("text", ["", "node/", "ml/n1", "node/ml/n1", "pod/a"])
def test_what_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME or node/NAME, got"):
        node_name(text)


def test_name_of_a_megabyte_is_not_repeated() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        pod_key("a/" * 500_000, "ml")
    assert len(str(refused.value)) < 200


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    kinds = (NamedKind.POD, NamedKind.CLAIM, NamedKind.NODE)
    try:
        found = object_name(text, "ml", *kinds)
    except typer.BadParameter:
        return
    assert found.name
    assert bool(found.namespace) == (found.kind is not NamedKind.NODE)
    spelled = "/".join(filter(None, (found.kind.value, *found.key)))
    assert object_name(spelled, "", *kinds) == found
