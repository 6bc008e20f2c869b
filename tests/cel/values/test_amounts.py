import pytest
from dra_extender.cel.values.quantity import NANO, QuantityError, format_quantity, parse_quantity
from hypothesis import given
from hypothesis import strategies as st

ACCEPTED = [
    ("0", 0),
    ("00", 0),
    ("-0", 0),
    ("1", NANO),
    ("+1", NANO),
    ("-1", -NANO),
    ("40Gi", 40 * 2**30 * NANO),
    ("1Ki", 1024 * NANO),
    ("1Ei", 2**60 * NANO),
    ("0.5Ki", 512 * NANO),
    ("1.5", 1_500_000_000),
    (".5", 500_000_000),
    ("1.", NANO),
    ("1.G", NANO * 10**9),
    ("500m", 500_000_000),
    ("1500u", 1_500_000),
    ("7n", 7),
    ("1k", 1000 * NANO),
    ("2M", 2 * 10**6 * NANO),
    ("3T", 3 * 10**12 * NANO),
    ("4P", 4 * 10**15 * NANO),
    ("5E", 5 * 10**18 * NANO),
    ("100E", 100 * 10**18 * NANO),
    ("2e3", 2000 * NANO),
    ("2E3", 2000 * NANO),
    ("2e+3", 2000 * NANO),
    ("2e-3", 2_000_000),
    ("1e-9", 1),
    ("1e400", 10**409),
    ("12345678901234567890", 12345678901234567890 * NANO),
]
ROUNDED_AWAY_FROM_ZERO = [
    ("0.0000000001", 1),
    ("-0.0000000001", -1),
    ("1.0000000001", NANO + 1),
    ("1e-30", 1),
    ("-1e-999999", -1),
    ("0.5n", 1),
    ("0.00000000000001Gi", 10738),
]
WITHOUT_DIGITS_IS_ZERO = ["+", "-", ".", "Mi", "n", ".Ki", "0e99999", "0.0e99999"]
CAPPED = [
    ("8Ei", 2**63 - 1),
    ("-8Ei", -(2**63) + 1),
    ("9223372036854775808Ki", 2**63 - 1),
    ("99999999999999Gi", 2**63 - 1),
]
REFUSED = [
    "",
    " ",
    " 1",
    "1 ",
    "1 k",
    "1Q",
    "1 Gi",
    "0x1",
    "1_000",
    "\u0661",
    "1\n",
    "10GB",
    "200K",
    "1g",
    "1e",
    "1e3k",
    "1Ee5",
    "1Ki5",
    "1i",
    "1.5.2",
    "--1",
    "1,5",
    "0x10",
    "abc",
    "NaN",
    "Ei",
    "+.Pi",
    "-e-12",
    "1e401",
    "1e2147483647",
    "1e99999999999999999999",
    "9" * 1001,
]


@pytest.mark.parametrize(("text", "nano"), ACCEPTED + ROUNDED_AWAY_FROM_ZERO)
def test_amounts_are_read_exactly_in_nano_units_and_rounded_up_below(text: str, nano: int) -> None:
    assert parse_quantity(text) == nano


@pytest.mark.parametrize("text", WITHOUT_DIGITS_IS_ZERO)
def test_a_text_without_digits_is_zero_as_in_the_api_server(text: str) -> None:
    assert parse_quantity(text) == 0


@pytest.mark.parametrize(("text", "units"), CAPPED)
def test_binary_amounts_are_capped_at_int64(text: str, units: int) -> None:
    assert parse_quantity(text) == units * NANO


@pytest.mark.parametrize("text", REFUSED)
def test_other_texts_are_refused_in_one_short_sentence(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^cannot read quantity ") as caught:
        parse_quantity(text)
    assert len(str(caught.value)) < 260


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (1, "1n"),
        (-1, "-1n"),
        (NANO, "1"),
        (1500 * NANO, "1500"),
        (1000 * NANO, "1k"),
        (NANO // 2, "500m"),
        (10**30, "1000E"),
    ],
)
def test_the_canonical_text_has_no_fraction_and_the_largest_suffix(nano: int, text: str) -> None:
    assert format_quantity(nano) == text


@given(st.integers(min_value=-(10**60), max_value=10**60))
def test_formatting_then_parsing_gives_the_same_amount(nano: int) -> None:
    assert parse_quantity(format_quantity(nano)) == nano


@given(st.text(alphabet="0123456789.+-eEinumkKMGTPx ", max_size=12))
def test_any_text_is_an_amount_or_a_quantity_error(text: str) -> None:
    try:
        nano = parse_quantity(text)
    except QuantityError:
        return
    assert parse_quantity(format_quantity(nano)) == nano
