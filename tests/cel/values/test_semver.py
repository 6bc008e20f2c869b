import pytest
from dra_extender.cel.values.semver import SemverError, parse_lenient, parse_semver
from hypothesis import given
from hypothesis import strategies as st

ASCENDING = [
    "0.0.0",
    "0.0.1",
    "0.1.0",
    "1.0.0-1",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "2.0.0",
    "10.0.0",
]
REFUSED = [
    "",
    "1",
    "1.2",
    "v1.2.3",
    "1.2.3.4",
    "01.2.3",
    "1.2.3-",
    "1.2.3+",
    "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3+a..b",
    "1.2.3 ",
]
PART = st.from_regex(r"[0-9A-Za-z-]{1,5}", fullmatch=True)


def test_versions_are_ordered_by_numbers_then_pre_release() -> None:
    keys = [parse_semver(text).key for text in ASCENDING]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("text", [*REFUSED, "18446744073709551616.0.0", "1.2.3-18446744073709551616", "\u0661.2.3"])
def test_what_is_no_strict_version_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(SemverError, match=r"^cannot read version"):
        parse_semver(text)


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("v1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("01.002.3", "1.2.3"),
        ("v1.2.3-rc.1", "1.2.3-rc.1"),
        ("0", "0.0.0"),
        ("00.0.0", "0.0.0"),
    ],
)
def test_normalising_drops_the_v_and_zeros_and_fills_up(text: str, strict: str) -> None:
    assert parse_lenient(text) == parse_semver(strict)


@pytest.mark.parametrize("text", ["1.0-rc.1", "1-a", "1+b", "vv1.0.0", "", "a.b.c"])
def test_normalising_has_limits(text: str) -> None:
    with pytest.raises(SemverError):
        parse_lenient(text)


@given(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(0, 9)), st.lists(PART, max_size=3))
def test_build_metadata_takes_no_part_in_equality(numbers: tuple[int, int, int], build: list[str]) -> None:
    plain = ".".join(map(str, numbers))
    text = f"{plain}+{'.'.join(build)}" if build else plain
    assert parse_semver(text) == parse_semver(plain)
    assert hash(parse_semver(text)) == hash(parse_semver(plain))
