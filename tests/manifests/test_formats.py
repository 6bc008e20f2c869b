"""Every format of a text has a check."""

import pytest
from dra_extender.manifests.formats import check_text
from dra_extender.model.fields import Format


@pytest.mark.parametrize("text_format", Format)
def test_what_is_no_text_has_none_of_the_formats(text_format: Format) -> None:
    assert check_text(text_format, []) is not None
