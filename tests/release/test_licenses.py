"""Whatever is shipped may be, and says under which license."""

import pytest

from tests.release.licenses import PERMITTED, LicenseError, Shipped, checked, locked, shipped, text


def test_each_package_of_the_lock_is_under_a_permitted_license_and_brings_its_text() -> None:
    found = {each.name: each for each in shipped()}
    assert set(found) == set(locked())
    assert {"msgspec", "kubernetes", "google-re2"} <= set(found)
    assert all(each.licenses <= PERMITTED and each.texts for each in found.values())


def test_texts_of_all_of_them_and_of_python_are_in_one_file() -> None:
    whole = text()
    assert all(f"\n{each.name} {each.version} (" in whole and each.texts[0].strip() in whole for each in shipped())
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in whole


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (Shipped("bound", "1", frozenset({"MIT", "GPL-3.0-only"}), ("text",)), "bound: GPL-3.0-only, MIT"),
        (Shipped("silent", "1", frozenset({"none named"}), ("text",)), "silent: none named"),
        (Shipped("without", "1", frozenset({"MIT"}), ()), "without: no text of its license"),
    ],
)
def test_package_that_may_not_be_shipped_is_named(package: Shipped, said: str) -> None:
    permitted = Shipped("free", "1", frozenset({"MIT"}), ("text",))
    with pytest.raises(LicenseError, match=f"cannot be shipped: {said}$"):
        checked([permitted, package])
