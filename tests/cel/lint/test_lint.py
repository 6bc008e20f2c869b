from pathlib import Path

import pytest
from dra_extender.cel.device import Attribute, prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.lint.findings import LintCode, Severity
from dra_extender.cel.lint.lint import lint
from dra_extender.cel.program import compile_expression
from hypothesis import given
from hypothesis import strategies as st

A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'
OWN = "device.attributes[device.driver]"
DRIVER = 'device.driver == "gpu.example.com"'
DEVICE = prepare_device(
    "gpu.example.com",
    {
        "type": Attribute(string_value="mig-1g"),
        "driverVersion": Attribute(version_value="550.54.15"),
        "index": Attribute(int_value=3),
    },
    {"memory": "80Gi"},
    allow_multiple_allocations=False,
)

WRONG = [
    ("device.attributes['type'].string == 'mig-1g'", "value-suffix", f"{OWN}.type"),
    (f"{A}.type.string == 'mig-1g'", "value-suffix", f"{A}.type"),
    ("device.attributes['gpu.example.com/type'].string == 'x'", "value-suffix", f"{A}.type"),
    (f"{A}.index.int == 3", "value-suffix", f"{A}.index"),
    (f"cel.bind(a, {A}, a.type.string == 'x')", "value-suffix", f"{A}.type"),
    (
        "cel.bind(d, device.attributes, cel.bind(a, d['gpu.example.com'], a.type.string == 'x'))",
        "value-suffix",
        f"{A}.type",
    ),
    (f"{C}.memory.value == 3", "value-suffix", f"{C}.memory"),
    ("device.capacity['memory'].quantity == 3", "value-suffix", "device.capacity[device.driver].memory"),
    ("device.attributes['type'] == 'mig-1g'", "unqualified-name", f"{OWN}.type"),
    ("device.attributes.type == 'mig-1g'", "unqualified-name", f"{OWN}.type"),
    ("device.attributes['type'].startsWith('mig')", "unqualified-name", f"{OWN}.type"),
    ("device.attributes['gpu.example.com/type'] == 'mig-1g'", "qualified-key", f"{A}.type"),
    ("device.attributes['gpu.example.com/type'].x == 'mig-1g'", "qualified-key", f"{A}.type"),
    (f"{C}.memory >= quantity('40Gi')", "capacity-comparison", f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f"{C}.memory >= 40", "capacity-comparison", f'{C}.memory.compareTo(quantity("40")) >= 0'),
    (f"40 < {C}.memory", "capacity-comparison", f'{C}.memory.compareTo(quantity("40")) > 0'),
    (f"{C}.memory == '40Gi'", "capacity-comparison", f'{C}.memory == quantity("40Gi")'),
    (f"{C}.memory.compareTo('40Gi') >= 0", "capacity-comparison", f'{C}.memory.compareTo(quantity("40Gi"))'),
    (f"{A}.memory.compareTo(quantity('40Gi')) >= 0", "quantity-of-attribute", f"{C}.memory"),
    (f"{A}.driverVersion >= '550'", "version-comparison", f'{A}.driverVersion.compareTo(semver("550", true)) >= 0'),
    (f"{A}.driverVersion < semver('550.0.0')", "version-comparison", "compareTo(semver("),
    (
        f"{A}.driverVersion.isGreaterThan('1.2.3')",
        "version-comparison",
        f'{A}.driverVersion.isGreaterThan(semver("1.2.3"))',
    ),
    ("semver('1.0.0') == '1.0.0'", "version-comparison", 'semver("1.0.0") == semver("1.0.0")'),
    (f"{A}.driverVersion.isGreaterThan(semver('1.0'))", "constant-failure", 'semver("1.0", true)'),
    (f"{C}.memory.isGreaterThan(quantity('1GB'))", "constant-failure", ""),
    (f"{DRIVER} && 1 / 0 == 1", "constant-failure", ""),
    ("device.name == 'x'", "unknown-field", ""),
    ("device.Driver == 'x'", "unknown-field", "device.driver"),
    ("device['driver'] == 'x'", "unknown-field", "device.driver"),
    ("driver == 'x'", "unknown-field", "device.driver"),
    ("device.driver = 'x'", "does-not-compile", "== instead of ="),
    ("device.driver == 'x' and true", "does-not-compile", "&& instead of and"),
    ("device.driver == 'x' or true", "does-not-compile", "|| instead of or"),
    ("device.driver == 'x' & true", "does-not-compile", "&& instead of &"),
    ("device.driver === 'x'", "does-not-compile", "== instead of ==="),
    ("not device.allowMultipleAllocations", "does-not-compile", "! instead of not"),
    ("device.allowMultipleAllocations == True", "does-not-compile", "true instead of True"),
    ("", "does-not-compile", ""),
    ("device.driver", "does-not-compile", ""),
    ("lists.range(1000).all(a, lists.range(1000).all(b, true))", "cost-limit", ""),
    (f"{DRIVER} && lists.range(1000).all(a, lists.range(1000).all(b, true))", "cost-limit", ""),
    (f"device.driver == '{'x' * 10240}'", "length-limit", ""),
]


@pytest.mark.parametrize(("expression", "code", "suggestion"), WRONG)
def test_what_cannot_work_is_an_error_with_what_to_write_instead(expression: str, code: str, suggestion: str) -> None:
    errors = [each for each in lint(expression) if each.severity is Severity.ERROR]
    assert [each.code for each in errors] == [code]
    assert suggestion in errors[0].suggestion
    assert 0 <= errors[0].offset <= len(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *("semver('1.0.0') == device.driver", "device.driver == semver('1.0.0')", "quantity('1') == device.driver"),
        *("semver('1.0.0') == 'abc'", f"{C}.memory == 'abc'", f"{C}.memory.compareTo('') == 0", "knot true"),
        *(f"{A}.driverVersion.isGreaterThan('abc')", f"{C}.memory > {A}.index", f"{A}.v.compareTo(device.driver) == 0"),
    ],
)
def test_where_nothing_better_is_known_nothing_is_suggested(expression: str) -> None:
    if expression != "knot true":
        assert [each.suggestion for each in lint(expression) if each.severity is Severity.ERROR] == [""]
    else:
        assert [each.suggestion for each in lint(expression)] == [""]


PLACES = [
    ("value-suffix", f"{DRIVER} && {A}.type.string == 'x'", ".string"),
    ("unqualified-name", f"{DRIVER} && device.attributes['type'] == 'x'", "['type']"),
    ("qualified-key", f"{DRIVER} && device.attributes['gpu.example.com/type'] == 'x'", "['gpu.example.com/type']"),
    ("compile-limit", "&&".join(["[1,2].all(x,x>0)"] * 390), "[1,2]"),
    ("capacity-comparison", f"{DRIVER} && {C}.memory >= 40", ">= 40"),
    ("quantity-of-attribute", f"{DRIVER} && {A}.memory.compareTo(quantity('1')) == 0", ".compareTo"),
    ("version-comparison", f"{DRIVER} && {A}.v >= semver('1.0.0')", ">= semver"),
    ("unguarded-attribute", f"true == ({A}.type == 'x')", ".type"),
    ("unknown-field", f"{DRIVER} && device.name == 'x'", ".name"),
    ("constant-failure", f"{DRIVER} && 1 / 0 == 1", "== 1"),
    ("always-false", f"{DRIVER} && device.driver == 'other'", DRIVER),
    ("always-true", f"{DRIVER} || true", DRIVER),
    ("does-not-compile", f"{DRIVER} &&\n  nope", "nope"),
    ("cost-limit", f"{DRIVER} && lists.range(1000).all(a, lists.range(1000).all(b, true))", "device"),
    ("length-limit", f"device.driver == '{'x' * 9500}'", "device"),
]


@pytest.mark.parametrize(("code", "expression", "marked"), PLACES)
def test_a_finding_of_each_kind_has_the_position_of_the_mistake(code: str, expression: str, marked: str) -> None:
    found = [each for each in lint(expression) if each.code == code]
    assert len(found) == 1
    assert expression[found[0].offset :].startswith(marked)


@pytest.mark.parametrize("expression", [each[0] for each in WRONG])
def test_each_error_is_one_for_the_engine_too(expression: str) -> None:
    with pytest.raises((CelCompileError, CelRuntimeError)):
        compile_expression(expression).matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "suggestion"),
    [(each[0], each[2]) for each in WRONG if each[2].startswith("device") and " " in each[2]],
)
def test_a_suggested_comparison_compiles_and_works(expression: str, suggestion: str) -> None:
    assert lint(expression)
    compile_expression(suggestion).matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        (f"{A}.type == 'x'", "unguarded-attribute"),
        (f"{C}.memory == quantity('1Gi')", "unguarded-attribute"),
        (f"{OWN}.type == 'x'", "unguarded-attribute"),
        (f"cel.bind(a, {A}, a.type == 'x')", "unguarded-attribute"),
        (f"{A}.index == 0 || {A}.index == 1", "unguarded-attribute"),
        (f"{DRIVER} && device.attributes['resource.kubernetes.io'].pcieRoot == 'x'", "unguarded-attribute"),
        (f"has({A}.type) ? {A}.type == 'x' : {A}.index == 3", "unguarded-attribute"),
        (f"{DRIVER} || {A}.type == 'x'", "unguarded-attribute"),
        (f"{DRIVER} && {A}.driverVersion == '550.54.15'", "version-comparison"),
        (f"{DRIVER} && {A}.memory == quantity('1Gi')", "quantity-of-attribute"),
        (f"{DRIVER} && has(device.attributes['gpu.example.com/type'].x)", "qualified-key"),
        ("device.driver == 'a' && device.driver == 'b'", "always-false"),
        (f"{DRIVER} && {A}.type == 'a' && {A}.type in ['b', 'c']", "always-false"),
        (f"{DRIVER} && {A}.type == 'a' && !({A}.type == 'a')", "always-false"),
        (f"{DRIVER} && false", "always-false"),
        ("1 == 2", "always-false"),
        ("device.driver != device.driver", "always-false"),
        ("true", "always-true"),
        (f"{DRIVER} || true", "always-true"),
        ("device.driver == '" + "x" * 9500 + "'", "length-limit"),
        (f"{DRIVER} && lists.range(430).all(a, lists.range(300).all(b, true))", "cost-limit"),
    ],
)
def test_what_is_doubtful_is_a_warning(expression: str, code: str) -> None:
    assert [(each.severity, each.code) for each in lint(expression)] == [("warning", code)]


@pytest.mark.parametrize(
    "expression",
    [
        f"{DRIVER} && device.attributes['*'].type == 'x'",
        f"'type' in device.attributes['*'] && {OWN}.type == 'x'",
        f"'type' in {OWN} && device.attributes['*'].type == 'x'",
    ],
)
def test_a_domain_that_is_written_as_a_star_is_not_the_domain_of_the_driver(expression: str) -> None:
    assert "unguarded-attribute" in {finding.code for finding in lint(expression)}


CORRECT = [
    DRIVER,
    f"{DRIVER} && {A}.type == 'gpu'",
    f"device.driver == 'gpu.example.com' && {A}.type == 'mig' && {A}.profile == '1g.10gb'",
    f"{DRIVER} && {C}.memory.compareTo(quantity('40Gi')) >= 0",
    f"{DRIVER} && {C}.memory == quantity('40Gi')",
    f"{DRIVER} && {C}.memory.isGreaterThan(quantity('40Gi'))",
    f"{DRIVER} && {A}.productName.lowerAscii().matches('^.*a100.*$')",
    f"{DRIVER} && {A}.driverVersion.compareTo(semver('550.54.15')) >= 0",
    f"{DRIVER} && {A}.driverVersion.isGreaterThan(semver('550', true))",
    f"{DRIVER} && {A}.driverVersion == semver('550.54.15')",
    f"{DRIVER} && {A}.firmwareVersion == 'VBIOS-A'",
    f"{DRIVER} && {A}.model >= 'H'",
    f"{DRIVER} && semver('1.0.0').isLessThan({A}.driverVersion)",
    f"{DRIVER} && {A}.index in [0, 1, 2]",
    f"{DRIVER} && {A}.index < 4 && {A}.index != 2",
    f"{DRIVER} && !({A}.type in ['mig', 'vgpu'])",
    f"{DRIVER} && {A}.healthy",
    f"{DRIVER} && {A}.links.exists(x, x == 'a')",
    f"{DRIVER} && {A}.links.includes('a')",
    f"{DRIVER} && has({A}.numa) && {A}.numa == 0",
    f"has({A}.type) && {A}.type == 'x'",
    f"!has({A}.type) || {A}.type == 'x'",
    f"has({A}.type) ? {A}.type == 'x' : false",
    f"'type' in {A} && {A}.type == 'x'",
    f"'gpu.example.com' in device.attributes && {A}.type == 'x'",
    f"{A}.?type.orValue('') == 'x'",
    "device.attributes[?'gpu.example.com'].?type.orValue('') == 'x'",
    f"{A}[?'type'].orValue('') == 'x'",
    f"{DRIVER} && {A}['type'] == 'x'",
    f"{DRIVER} && {OWN}.type == 'x'",
    f"cel.bind(a, {A}, {DRIVER} && a.type == 'x')",
    f"cel.bind(a, {A}, has(a.type) && a.type == 'x')",
    f"cel.bind(a, {A}, [{{'type': 1}}].all(a, a.type == 1))",
    f"{DRIVER} && has(device.attributes['resource.kubernetes.io'].pcieRoot)",
    f"{DRIVER} && device.attributes['resource.kubernetes.io'].?pcieRoot.orValue('') == 'pci0000:00'",
    "device.attributes.exists(d, device.attributes[d].exists(n, n == 'type'))",
    "device.attributes['net.example.com'].size() > 0",
    "device.driver in ['gpu.example.com'] && device.allowMultipleAllocations",
    "device.driver in ['a.example.com', 'b.example.com']",
    "device.driver.endsWith('.example.com')",
    "device.driver == 'dra-driver' && device.attributes['dra-driver'].type == 'x'",
    f"{DRIVER} && ({A}.type == 'a' || {A}.type == 'b')",
    f"{DRIVER} && isQuantity({A}.size) && quantity({A}.size).isLessThan({C}.memory)",
    f"{DRIVER} && {A}.string == 'an attribute may be called so'",
]


@pytest.mark.parametrize("expression", CORRECT)
def test_a_correct_selector_has_no_findings(expression: str) -> None:
    assert lint(expression) == ()


def test_what_selectors_before_made_sure_of_needs_no_guard() -> None:
    expression = f"{A}.type == 'x'"
    assert [each.code for each in lint(expression)] == [LintCode.UNGUARDED]
    assert lint(expression, before=[DRIVER]) == ()
    assert lint(expression, before=["this = wrong", f"has({A}.type)"]) == ()
    assert [each.code for each in lint(expression, before=["device.driver == 'other'"])] == [LintCode.UNGUARDED]
    assert lint(expression, before=None) == ()


def test_a_derived_attribute_may_be_of_any_type() -> None:
    assert lint(f"{DRIVER} ? {A}.type + '-x' : ''", condition=False) == ()
    assert [each.code for each in lint("device.name", condition=False)] == [LintCode.UNKNOWN_FIELD]


LINES = (Path(__file__).parents[1] / "language_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
CASES = [tuple(line.split("\t", 2)) for line in LINES]


def test_of_the_corpus_what_does_not_compile_is_an_error_and_what_works_is_none() -> None:
    """The lint never raises."""
    for outcome, _, expression in CASES:
        has_error = any(each.severity is Severity.ERROR for each in lint(expression))
        assert has_error or outcome != "compile-error", expression
        assert not has_error or outcome not in {"match", "no-match"}, expression


def test_bindings_that_double_are_not_written_out() -> None:
    expression = "a50.x == ''"
    for number in range(50, 0, -1):
        expression = f"cel.bind(a{number}, device.attributes[a{number - 1}.s + a{number - 1}.s], {expression})"
    assert lint(f"cel.bind(a0, device.attributes['x.y'], {expression})")


@given(st.text(max_size=80))
def test_any_text_is_taken(text: str) -> None:
    for each in lint(text):
        assert each.message


@pytest.mark.parametrize(
    ("domain", "guard"),
    [("gpu.example.com", "device.driver"), ("notkubernetes.io", "device.driver"), ("resource.kubernetes.io", "has(")],
)
def test_the_guard_that_is_suggested_is_the_driver_unless_the_domain_is_kubernetes_own(domain: str, guard: str) -> None:
    [finding] = lint(f"device.attributes['{domain}'].type == 'x'")
    assert finding.suggestion.startswith(guard)
