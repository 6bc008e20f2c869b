"""A cache keeps its bounds, and evicts what was used longest ago."""

from collections.abc import Sequence

from dra_extender.runtime.caches import LruCache
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from("wur"), st.integers(0, 7)), max_size=60))
def test_the_entries_that_were_written_or_used_last_are_kept(most: int, steps: Sequence[tuple[str, int]]) -> None:
    evicted: list[int] = []
    cache: LruCache[int, str] = LruCache(most, on_evict=lambda key, _: evicted.append(key))
    used: list[int] = []
    for step, key in steps:
        if step == "w":
            cache[key] = str(key)
        found = cache.get(key) if step == "r" else cache.use(key)
        assert found == (str(key) if key in cache else None)
        if step == "w" or (step == "u" and key in used):
            used = [*(each for each in used if each != key), key]
        assert evicted == used[: len(used) - most] if len(used) > most else not evicted
        used = used[-most:]
        evicted.clear()
        assert list(cache) == used


def test_every_way_to_write_keeps_the_bound() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.update({"a": 1, "b": 2, "c": 3})
    assert list(cache.items()) == [("b", 2), ("c", 3)]
    assert cache.setdefault("d", 4) == 4
    assert list(cache.items()) == [("c", 3), ("d", 4)]
    cache |= {"e": 5}
    assert list(cache.items()) == [("d", 4), ("e", 5)]


def test_values_that_weigh_too_much_together_leave_oldest_first_and_the_newest_stays() -> None:
    evicted: list[str] = []
    cache: LruCache[str, list[int]] = LruCache(9, weigh=len, max_weight=4, on_evict=lambda key, _: evicted.append(key))
    grown = cache["grown"] = [1]
    cache["other"] = [1, 2]
    grown += [2, 3, 4]
    cache["new"] = [1]
    assert (list(cache), evicted) == (["other", "new"], ["grown"])
    cache["huge"] = [0] * 9
    assert list(cache) == ["huge"]


def test_an_entry_that_is_deleted_is_not_reported_as_evicted() -> None:
    evicted: list[str] = []
    cache: LruCache[str, int] = LruCache(1, on_evict=lambda key, _: evicted.append(key))
    cache["a"] = 1
    assert cache.pop("a") == 1
    cache["b"] = 2
    del cache["b"]
    cache["c"] = 3
    assert not evicted
    assert cache.evict() == 3
    assert evicted == ["c"]
