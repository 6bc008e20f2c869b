"""Caches keep their bounds, and evict what was used longest ago, of the owner that holds the most."""

from collections.abc import Sequence

from dra_extender.cel.fair_cache import ENTRY_BYTES, FairCache
from dra_extender.runtime.caches import LruCache
from hypothesis import given
from hypothesis import strategies as st

_KB = 1024


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


def test_the_owner_with_the_most_makes_room_oldest_first() -> None:
    evicted: list[str] = []
    cache: FairCache[str, int] = FairCache(32 * _KB, on_evict=lambda key, _: evicted.append(key))
    for number in range(3):
        cache.put(f"small{number}", number, 1 * _KB, "small")
    for number in range(100):
        assert cache.put(f"large{number}", number, 2 * _KB, "large")
        assert cache.held <= cache.max_bytes
    assert [cache.get(f"small{number}") for number in range(3)] == [0, 1, 2]
    assert evicted == [f"large{number}" for number in range(len(evicted))]
    assert cache.held == cache.held_by("small") + cache.held_by("large")


def test_many_owners_share_and_none_ends_below_the_share_of_all() -> None:
    cache: FairCache[tuple[int, int], int] = FairCache(64 * _KB)
    for number in range(20):
        cache.put((0, number), number, 600, "first")
    for owner in range(1, 8):
        for number in range(50):
            cache.put((owner, number), number, 600, f"owner{owner}")
    least = 64 * _KB // 8 - 3 * (600 + ENTRY_BYTES)
    assert cache.held_by("first") >= least - 64 * _KB // 16 // 8
    assert all(cache.held_by(f"owner{owner}") >= least - 64 * _KB // 16 // 8 for owner in range(1, 8))


def test_what_is_too_large_is_not_kept_and_drives_nothing_out() -> None:
    cache: FairCache[str, int] = FairCache(32 * _KB)
    cache.put("small", 1, 1 * _KB, "one")
    assert not cache.put("huge", 2, 5 * _KB, "one")
    assert cache.get("huge") is None
    assert cache.get("small") == 1


def test_a_value_that_grows_is_counted_and_leaves_when_it_becomes_too_large() -> None:
    cache: FairCache[str, int] = FairCache(32 * _KB)
    cache.put("one", 1, 1 * _KB)
    cache.put("two", 2, 1 * _KB)
    cache.resize("one", 3 * _KB)
    assert cache.held == 4 * _KB + 2 * ENTRY_BYTES
    cache.resize("two", 8 * _KB)
    cache.resize("gone", 8 * _KB)
    assert (cache.get("one"), cache.get("two")) == (1, None)


def test_an_entry_that_is_used_stays_longer_and_one_put_again_is_replaced() -> None:
    cache: FairCache[str, int] = FairCache(16 * _KB)
    cache.put("used", 0, 1 * _KB)
    cache.put("used", 1, 1 * _KB)
    for number in range(40):
        cache.put(f"{number}", number, 1 * _KB)
        assert cache.get("used") == 1
    assert cache.get("0") is None
    cache.drop("used")
    assert "used" not in cache
