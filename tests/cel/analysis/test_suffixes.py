from pathlib import Path

import pytest
from dra_extender.cel.analysis.attributes import rewrite_suffixes
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache, compile_expression
from hypothesis import given
from hypothesis import strategies as st

DEVICE = prepare_device(
    "gpu.example.com",
    {"type": Attribute(string_value="mig-1g"), "index": Attribute(int_value=3), "a.b": Attribute(bool_value=True)},
    {},
    allow_multiple_allocations=False,
)
OWN = "device.attributes[device.driver]"
DOMAIN = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("device.attributes['type'].string == 'mig-1g'", f'{OWN}.type == "mig-1g"'),
        ("device.attributes.type.string == 'mig-1g'", f'{OWN}.type == "mig-1g"'),
        ("device.attributes['gpu.example.com/type'].string == 'mig-1g'", f'{DOMAIN}.type == "mig-1g"'),
        ("device.attributes['gpu.example.com'].type.string == 'mig-1g'", f'{DOMAIN}.type == "mig-1g"'),
        ("device.attributes['gpu.example.com']['type'].string == 'mig-1g'", f'{DOMAIN}["type"] == "mig-1g"'),
        ("device.attributes[device.driver].index.int == 3", f"{OWN}.index == 3"),
        ("has(device.attributes['type'].string)", f"has({OWN}.type)"),
        ("has(device.attributes['gpu.example.com'].type.string)", f"has({DOMAIN}.type)"),
        ("device.attributes['type'].?string.orValue('') == 'mig-1g'", f'{OWN}.?type.orValue("") == "mig-1g"'),
        ("[1].all(x, device.attributes['index'].int > x)", f"[1].all(x, {OWN}.index > x)"),
        ("device.attributes['type'].string in ['mig-1g']", f'{OWN}.type in ["mig-1g"]'),
        ("{'a': device.attributes['index'].int}.a == 3", f'{{"a": {OWN}.index}}.a == 3'),
        ("cel.bind(d, device.attributes['index'].int, d == 3) && true", f"cel.bind(d, {OWN}.index, d == 3) && true"),
    ],
)
def test_the_suffix_form_is_read_as_its_author_means_it(written: str, meant: str) -> None:
    assert rewrite_suffixes(written) == meant
    assert compile_expression(meant).matches(DEVICE)
    if not written.startswith("has") and ".?" not in written:
        with pytest.raises(CelRuntimeError):
            compile_expression(written).matches(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.example.com'].string == 'x'",
        "device.attributes[device.driver].string == 'x'",
        "device.attributes['gpu.example.com'].type  ==  'x'",
        "device.capacity['gpu.example.com'].memory.string == 'x'",
        "other.attributes['type'].string == 'x'",
        "{'string': 1}.string == 1",
        "'a'.string == 1",
        "this is = no expression",
        "",
    ],
)
def test_everything_else_stays_character_for_character(expression: str) -> None:
    assert rewrite_suffixes(expression) == expression


def test_no_expression_of_the_corpus_is_changed() -> None:
    lines = (Path(__file__).parents[1] / "language_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
    for expression in (line.split("\t", 2)[2] for line in lines):
        assert rewrite_suffixes(expression) == expression


@given(st.text(max_size=60))
def test_any_text_is_taken(text: str) -> None:
    assert rewrite_suffixes(rewrite_suffixes(text)) == rewrite_suffixes(text)


def test_a_cache_rewrites_the_suffix_form_only_if_it_is_configured_to() -> None:
    expression = "device.attributes['type'].string == 'mig-1g'"
    lenient = ProgramCache(rewrite=rewrite_suffixes)
    assert lenient.compile(expression).matches(DEVICE)
    assert lenient.compile(expression) is lenient.compile(expression)
    with pytest.raises(CelCompileError):
        lenient.compile("a = b")
    with pytest.raises(CelRuntimeError):
        ProgramCache().compile(expression).matches(DEVICE)
