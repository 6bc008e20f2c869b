"""Expressions that want to take the scheduler's time or memory, by how they are to end."""

from typing import Final


def bound(depth: int, first: str, again: str, last: str) -> str:
    """Bind v0 to `first`, each next variable to `again` of the one before it, and evaluate `last` of the final one."""
    names = [f"v{place}" for place in range(depth)]
    opened = [
        f"cel.bind({name}, {again.format(names[place - 1]) if place else first}, " for place, name in enumerate(names)
    ]
    return "".join(opened) + last.format(names[-1]) + ")" * depth


REFUSED_AT_ONCE: Final = {
    "parentheses": "(" * 4000 + "true" + ")" * 4000,
    "brackets": "[" * 2000 + "]" * 2000,
    "braces": "{1:" * 1500 + "1" + "}" * 1500,
    "ternaries": "true ? true : " * 600 + "true",
    "sums": "1" + " + 1" * 2000 + " == 1",
    "selections": "device" + ".a" * 3000,
    "indexes": "[1]" + "[0]" * 2000 + " == 1",
    "calls": "dyn(" * 2000 + "1" + ")" * 2000,
    "methods": "'a'" + ".trim()" * 1400 + " == 'a'",
    "macros": "[1].all(x, " * 300 + "true" + ")" * 300,
    "bindings": bound(200, "1", "{0}", "{0} == 1"),
    "optional chains": "optional.of(1)" + ".optMap(x, x)" * 300 + ".hasValue()",
    "unfinished string": '"""' + "\\" * 8000,
    "quotes": '"' * 9999,
    "length": "true" + " " * 11000,
    "lone surrogates": "'" + "\ud800" * 4000 + "'",
    "huge number": "9" * 9000 + " == 1",
    "bad pattern": "'a'.matches('" + "(" * 5000 + "')",
    "huge repetition": "'a'.matches('((a{1000}){1000}){1000}')",
    "deep pattern": f"'a'.matches('{'(' * 2000}a{')*' * 2000}')",
    "map keys": "{" * 2000,
    "huge double": "1e999999999 > 0.0",
    "huge hexadecimal": "0x" + "F" * 9000 + " == 1",
    "huge conversion": "int('" + "9" * 9000 + "') == 1",
    "huge duration": "duration('" + "9" * 9000 + "h') == duration('1h')",
    "mixed prefixes": "!-" * 4000 + "true",
    "bad escapes": "'" + "\\q" * 4000 + "'",
    "bad escapes in bytes": "b'" + "\\u0041" * 1500 + "' == b''",
    "conditionals in conditions": "(" * 59 + "true" + " ? true : true)" * 59 + " ? 1" * 100,
    "member calls": "x" + ".f()" * 2400,
    "nothing but dots": "." * 10_000,
    "nothing but commas": "[" + "," * 9_000 + "]",
    "optional selections": "device" + ".?a" * 2000,
    "many names": " ".join(f"a{place}" for place in range(1500)),
}
"""Too deep, too long or malformed: a compile error."""

ACCEPTED: Final = {
    "shared tree compared": bound(40, "[1]", "[{0}, {0}]", "{0} == [{0}, {0}][0]"),
    "maps that share": bound(40, "{'a': dyn(1)}", "{{'a': dyn({0}), 'b': dyn({0})}}", "{0} == {0}"),
    "many alternatives": " || ".join(f"device.driver == 'd{place}'" for place in range(300)) + " || true",
    "many prefixes": "!" * 8000 + "true",
    "many negations of a number": "-" * 8001 + "1 < 0",
    "long list": f"2 in [{', '.join(['1'] * 3000)}, 2]",
    "long string": "'" + "a" * 10_000 + "' != ''",
    "many comments": "//\n" * 3000 + "true",
    "many time units": f"duration('{'1ns' * 3000}') == duration('3us')",
    "many octets": f"!isIP('{'1.' * 4000}')",
    "many colons": f"!isIP('{'1:' * 4000}')",
    "many slashes": f"isURL('{'/' * 9000}')",
    "many labels": f"format.dns1123Subdomain().validate('{'a-' * 2000}').hasValue()",
    "many segments": f"url('/{'%41' * 3000}').getEscapedPath().size() == 9001",
    "many parameters": f"url('/?{'a=b&' * 2000}').getQuery()['a'].size() == 2000",
    "many digits of a quantity": f"isQuantity('{'1' * 400}') || true",
    "many dots of a version": f"!isSemver('{'1.' * 4000}')",
    "many dashes of a version": f"isSemver('1.0.0-{'-' * 4000}') || true",
    "unfinished clauses": f"'{'%' * 8000}'.size() == 8000",
    "many escapes": "'" + "\\x41" * 2400 + "'.size() == 2400",
    "many characters of four bytes": "'" + "\\U0001F600" * 900 + "'.size() == 900",
    "patterns over long texts": bound(11, "'aaaaaaaaaa'", "{0} + {0}", "!{0}.matches('(a|aa)*b')"),
    "pattern with a bad name among backtrackers": "'" + "a" * 3000 + "'.matches('^(a*)*b$') == false",
}
"""Long, but flat: true."""

STOPPED: Final = {
    "nested loops": "lists.range(2000).all(x, lists.range(2000).all(y, x * y >= 0))",
    "three nested loops over one list": (
        "cel.bind(l, lists.range(1000), l.exists_one(a, l.exists_one(b, l.exists_one(c, false))))"
    ),
    "string doubling": bound(40, "'aaaaaaaaaa'", "{0} + {0}", "{0} == ''"),
    "list doubling": bound(40, "[1]", "{0} + {0}", "{0} == []"),
    "bytes doubling": bound(40, "b'aaaaaaaaaa'", "{0} + {0}", "{0} == b''"),
    "replace bomb": bound(10, "'aaaaaaaaaa'", "{0}.replace('a', 'aaaaaaaaaa')", "{0} == ''"),
    "join bomb": bound(20, "'aaaaaaaaaa'", "[{0}, {0}, {0}].join({0})", "{0} == ''"),
    "format bomb": bound(20, "'aaaaaaaaaa'", "'%s%s%s'.format([{0}, {0}, {0}])", "{0} == ''"),
    "shared tree shown": bound(40, "[1]", "[{0}, {0}]", "'%s'.format([{0}]) == ''"),
    "shared tree visited": bound(40, "[dyn(1)]", "[{0}, {0}]", "{0}.includes(1)"),
    "shared tree flattened": bound(30, "[dyn(1)]", "[dyn({0}), dyn({0})]", "{0}.flatten(30) == []"),
    "range": "lists.range(1000000000).size() == 1",
    "long range": "lists.range(999999).map(x, lists.range(999999)).size() == 1",
    "distinct": "lists.range(5000).distinct().size() == 1",
    "sets": "sets.contains(lists.range(5000), lists.range(5000))",
    "sorting": "lists.range(900).sortBy(x, -x).size() == 900",
    "split to nothing": bound(20, "'aaaaaaaaaa'", "{0} + {0}", "{0}.split('').size() == 1"),
    "optional maps of optional maps": "optional.of(1)" + ".optMap(x, x)" * 45 + ".hasValue()",
    "three nested quantifiers": "[1, 2, 3].all(a, lists.range(700).all(b, lists.range(700).exists(c, c == 699)))",
    "failing loop": "lists.range(200000).map(x, x / 0).size() == 1 || true",
    "failing count": "lists.range(300000).exists_one(x, x / 0 == 1) || true",
    "map of many": "lists.range(300000).transformMapEntry(i, x, {x: x}).size() == 1",
    "sum of lists": "lists.range(100000).map(x, [x] + lists.range(100)).size() == 1",
    "intersection": "sets.intersects(lists.range(3000), lists.range(3000).map(x, -x - 1))",
    "equivalence": "sets.equivalent(lists.range(2000), lists.range(2000))",
    "unequal elements": bound(20, "[dyn(1.5)]", "{0} + {0}", "{0} == {0} && {0}.indexOf(2.5) == -1"),
    "strings in a list": bound(16, "['aaaaaaaaaaaaaaaa']", "{0} + {0}", "{0}.join(',').split(',').sort() == []"),
    "texts of texts": bound(12, "'aaaaaaaaaa'", "'%s'.format([[{0}, {0}, {0}, {0}]])", "{0} == ''"),
    "bytes of texts": bound(22, "'aaaaaaaaaa'", "{0} + {0}", "bytes({0}).size() == 1"),
    "ranges side by side": (
        "cel.bind(a, lists.range(490000), cel.bind(b, lists.range(490000), a.size() + b.size() + lists.range(999999).size() == 0))"
    ),
    "wide characters": bound(40, "'" + "\U0001f600" * 10 + "'", "{0} + {0}", "{0} == ''"),
    "pieces of wide characters": bound(17, "'" + "\U0001f600" * 10 + "'", "{0} + {0}", "{0}.split('').size() == 1"),
    "wide bombs": bound(16, "'" + "\U0001f600" * 10 + "'", "{0}.replace('', '\U0001f600\U0001f600')", "{0} == ''"),
    "maps of maps": "lists.range(300000).map(x, {'a': {'b': [x, x]}}).size() == 1",
    "find everything": bound(17, "'aaaaaaaaaa'", "{0} + {0}", "{0}.findAll('a').size() == 1"),
}
"""Growing without bound: stopped by the cost, the work or the size limit."""


def every_round(call: str) -> str:
    """A loop of as many rounds as a list may have elements, each of which makes this call."""
    return f"lists.range(330000).all(x, {call})"


MANY_CALLS: Final = {
    name: every_round(call)
    for name, call in {
        "calendars": "timestamp(x).getFullYear() > 0",
        "zones": "timestamp(x).getHours('Europe/Berlin') >= 0",
        "offsets": "timestamp(x).getHours('+01:00') >= 0",
        "times read": "timestamp('2020-01-01T00:00:0' + string(x % 10) + 'Z') > timestamp(0)",
        "times written": "string(timestamp(x)) != ''",
        "durations": "duration(string(x) + 's') >= duration('0s')",
        "URLs": "url('http://a/b?c=' + string(x)).getHost() == 'a'",
        "long URLs": f"isURL('http://a/{'b' * 5000}' + string(x))",
        "queries": f"url('/?{'a=b&' * 2000}').getQuery().size() == 1",
        "addresses": "ip('10.0.0.' + string(x % 250)).family() == 4",
        "canonical addresses": "ip.isCanonical('fe80::' + string(x % 9000)) || true",
        "networks": "!cidr('10.0.0.0/24').containsIP('11.0.0.' + string(x % 250))",
        "quantities": "isQuantity(string(x) + 'Mi')",
        "versions": "isSemver('1.2.3-rc' + string(x))",
        "long versions": f"isSemver('1.2.3-{'a.' * 2500}b' + string(x)) || true",
        "named formats": "!format.dns1123Label().validate('a' + string(x)).hasValue()",
        "patterns": "'a' in ['a'] && string(x).matches('^[0-9]+$')",
        "computed patterns": "string(x).matches('^[0-9]+$|' + string(x))",
        "refused patterns": "string(x).matches('(' + string(x)) || true",
        "huge patterns": "'a'.matches('\\\\pL{1000}' + string(x)) || true",
        "searches": "string(x).find('[0-9]+') != ''",
        "formats": "'%s, %.3f'.format([x, double(x)]) != ''",
        "joined": "[string(x), 'a', 'b'].join(',') != ''",
        "replaced": "string(x).replace('1', '2') != ''",
        "quoted": "strings.quote(string(x)) != ''",
        "failures": "x / 0 == 1 || x / 0 == 2 || true",
        "failures in a row": "x / 0 == 1 || true",
        "long lists": f"[x, {', '.join(['1'] * 2000)}].size() > 0",
        "long maps": "{" + ", ".join(f"{key}: x" for key in range(500)) + "}.size() > 0",
        "free terms": " || ".join(["false"] * 1000) + " || true",
        "sorted": "[x, 3, 2, 1].sort().size() == 4",
        "small sums": "[x, 3, 2, 1].sum() > 0",
    }.items()
}
"""Calls that upstream's formula has cost little although they take long, over and over: stopped as well."""

ALL: Final = {**REFUSED_AT_ONCE, **ACCEPTED, **STOPPED, **MANY_CALLS}
