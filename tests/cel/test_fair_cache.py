"""A cache that owners share keeps its bound, and evicts entries of the owner that holds the most."""

from dra_extender.cel.fair_cache import ENTRY_BYTES, FairCache

_KB = 1024


def test_the_owner_with_the_most_makes_room_oldest_first() -> None:
    evicted: list[str] = []
    cache: FairCache[str, int] = FairCache(32 * _KB, on_evict=lambda key, _: evicted.append(key))
    for number in range(3):
        cache.put(f"small{number}", number, 1 * _KB, "small")
    for number in range(100):
        assert cache.put(f"large{number}", number, 2 * _KB, "large")
        assert cache.bytes_kept <= cache.max_bytes
    assert [cache.get(f"small{number}") for number in range(3)] == [0, 1, 2]
    assert evicted == [f"large{number}" for number in range(len(evicted))]
    assert cache.bytes_kept == cache._bytes.get("small", 0) + cache._bytes.get("large", 0)


def test_many_owners_share_and_none_ends_below_the_share_of_all() -> None:
    cache: FairCache[tuple[int, int], int] = FairCache(64 * _KB)
    for number in range(20):
        cache.put((0, number), number, 600, "first")
    for owner in range(1, 8):
        for number in range(50):
            cache.put((owner, number), number, 600, f"owner{owner}")
    least = 64 * _KB // 8 - 3 * (600 + ENTRY_BYTES)
    assert cache._bytes.get("first", 0) >= least - 64 * _KB // 16 // 8
    assert all(cache._bytes.get(f"owner{owner}", 0) >= least - 64 * _KB // 16 // 8 for owner in range(1, 8))


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
    assert cache.bytes_kept == 4 * _KB + 2 * ENTRY_BYTES
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
