"""Selectors that want one native call to take seconds; each is short and compiles on any API server."""

from typing import Final

from tests.support.cel.hostile import bound


def with_long_text(last: str, character: str = "a", depth: int = 15) -> str:
    """Bind `t` to a text of 10 * 2**depth characters and evaluate `last`."""
    doubled = bound(depth + 1, f"'{character * 10}'", "{0} + {0}", "cel.bind(t, {0}, LAST)")
    return doubled.replace("LAST", last)


ONE_CALL: Final = {
    "the last place of a part": with_long_text("t.lastIndexOf('ab' + t.substring(0, 163838)) == 5"),
    "the last place before another": with_long_text("t.lastIndexOf('ab' + t.substring(0, 163838), 300000) == 5"),
    "states that never meet": with_long_text("t.matches('(a?){500}a{500}c')"),
    "states that never meet, found": with_long_text("t.find('(a?){500}a{500}c') == 'c'"),
    "matches that look at all that is left": with_long_text("t.findAll('a.*b|a').size() == 5", depth=12),
    "a long text in a list": with_long_text("(t.substring(1) + 'b') in lists.range(50000).map(i, t)"),
    "lists of long texts": with_long_text(
        "cel.bind(u, t.substring(1) + 'a', lists.range(20000).map(i, t) == lists.range(20000).map(i, u))"
    ),
    "a set of long texts": with_long_text("sets.contains(lists.range(5000).map(i, t), [t.substring(1) + 'b'])"),
    "leaves that are long": with_long_text(
        "lists.range(20000).map(i, t + '').map(i, t).indexOf(t) == 1", character="\u4e00", depth=13
    ),
    "long keys": with_long_text("cel.bind(m, {t + '': 1}, lists.range(50000).all(i, m[t + ''] == 1 && m[t] == 1))"),
    "a long key": with_long_text("cel.bind(m, {(t.substring(1) + 'a'): 1}, lists.range(50000).all(i, m[t] == 1))"),
    "a membership of a long key": with_long_text(
        "cel.bind(m, {(t.substring(1) + 'a'): 1}, lists.range(50000).all(i, t in m))"
    ),
    "long texts in order": with_long_text(
        "cel.bind(u, t.substring(1) + '\u4e00', cel.bind(v, t.substring(1) + '\u4e01',"
        " lists.range(690).map(i, i % 2 == 0 ? u : v).sort().size() == 5))",
        character="\u4e00",
        depth=13,
    ),
    "the largest of long texts": with_long_text(
        "cel.bind(u, t.substring(1) + 'b', lists.range(20000).map(i, i % 2 == 0 ? t : u).max() == 'a')"
    ),
    "long texts next to each other": with_long_text(
        "lists.range(50000).map(i, t).isSorted()", character="\u4e00", depth=13
    ),
    "pieces of one character": with_long_text("t.split('').size() == 5 && t.split('a').size() == 5"),
    "a list shown": with_long_text("'%s'.format([lists.range(3000).map(i, t)]) == ''"),
    "signs that cannot be shown": with_long_text("strings.quote(t) == '' && '%s'.format([[t]]) == ''", character="\\a"),
    "a long URL": with_long_text("isURL('/' + t)"),
    "a long label": with_long_text("format.dns1123Subdomain().validate(t).hasValue()"),
    "many numbers in a duration": with_long_text("duration(t) > duration('1s')", character="1h"),
}
"""Stopped by a limit before the call is made."""

PASSED: Final = {
    "digits of an integer": with_long_text("lists.range(2000).all(i, int(t) == 1 || true)", character="9"),
    "digits of a double": with_long_text("lists.range(2000).all(i, double(t) == 1.0 || true)", character="9"),
    "a quantity": with_long_text("lists.range(10).all(i, !isQuantity(t))", character="9"),
    "an address": with_long_text("lists.range(10).all(i, !isIP(t))", character="1.", depth=14),
    "a network": with_long_text("lists.range(10).all(i, !isCIDR(t))", character="1/", depth=14),
    "a zone": with_long_text("timestamp(0).getHours(t) == 0 || true"),
    "a duration of many digits": "duration(string(1) + '" + "0" * 5000 + "s') == duration('1s') || true",
    "blanks": with_long_text("t.trim() == ''", character=" ", depth=12),
    "the last place in a middling text": with_long_text("t.lastIndexOf('ab' + t.substring(0, 20000)) == -1", depth=12),
    "a text that is not valid Unicode": "url('/?a=%ff%fe').getQuery()['a'][0].findAll('x') == []",
    "a text that is not valid Unicode in capitals": "url('/?a=%ff%fe').getQuery()['a'][0].upperAscii() != ''",
}
"""Short because their length is looked at first: these end with a verdict."""

LARGE_PATTERNS: Final = {
    "classes repeated": r"[\pL\pN\pS]{1,90}",
    "classes in groups": r"((\pL{2}){5}x){3}",
    "many classes": r"\pL\pN\pS\pM\pP" * 3,
    "any characters": "a.*b.{900}c",
    "groups in groups": "((((a{10}){10}){10}){10}){10}",
    "folded": "(?i)[\u0100-\uffff]{20}",
    "written out": "a{20}" * 300,
}
"""Patterns whose programs are too large, refused before RE2 sees them."""

PATTERNS_IN_USE: Final = (
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    r"(?i)^(nvidia|amd)[- ](a|h|gb)?[0-9]{2,4}(-sxm[0-9])?$",
    r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
    r"^(([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])$",
    r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[\da-z-]+(?:\.[\da-z-]+)*)?(?:\+[0-9A-Za-z-]+)?$",
    r"^[\pL\pN_.-]{1,3}$",
    r"^.{1,253}$",
    r"^[^/]{1,63}(/[^/]{1,63})?$",
)
"""Accepted as ever."""
