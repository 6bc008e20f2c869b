from dra_extender.scheduling.ports.cluster import NOTE_BYTES, joined_note, shorten
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(max_size=3000))
def test_a_note_is_a_beginning_of_the_text_and_fits(text: str) -> None:
    note = shorten(text)
    assert len(note.encode()) <= NOTE_BYTES
    if len(text.encode(errors="replace")) <= NOTE_BYTES:
        assert note == text.encode(errors="replace").decode()
    else:
        assert note.endswith("…")
        assert text.encode(errors="replace").decode().startswith(note[:-1])
        assert len(note.encode()) > NOTE_BYTES - 8


@given(st.lists(st.text(max_size=500), min_size=1, max_size=9), st.integers(min_value=200, max_value=2000))
def test_joined_parts_fit_and_only_the_longest_are_cut(parts: list[str], most: int) -> None:
    sizes = [len(part.encode(errors="replace")) for part in parts]

    text = joined_note(parts, "; ", most)

    assert len(text.encode(errors="replace")) <= most
    if sum(sizes) + 2 * (len(parts) - 1) <= most:
        assert text == "; ".join(parts)
    else:
        assert len(text.encode(errors="replace")) > most - 8 * len(parts)
    for part, size in zip(parts, sizes, strict=True):
        if size <= (most - 2 * (len(parts) - 1)) // len(parts):
            assert part.encode(errors="replace").decode() in text.encode(errors="replace").decode()
