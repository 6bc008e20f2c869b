import pytest
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression

MESSAGES = [
    ("device.name == 'x'", "1:7: undefined field 'name'\n | device.name == 'x'\n | ......^"),
    ("driver == 'x'", "1:1: undeclared reference to 'driver'\n | driver == 'x'\n | ^"),
    ("true &&\n  nope", "2:3: undeclared reference to 'nope'\n |   nope\n | ..^"),
    ("[1, 'a'].size() == 2", "1:5: expected type 'int' but found 'string'\n | [1, 'a'].size() == 2\n | ....^"),
    ("device.driver", "1:7: must evaluate to bool or the unknown type, not string\n | device.driver\n | ......^"),
    ("1 +", "1:4: Syntax error: found the end of the expression, expected an expression\n | 1 +\n | ...^"),
    ("'abc", "1:1: Syntax error: the string is not closed\n | 'abc\n | ^"),
    (" br'abc", "1:4: Syntax error: the string is not closed\n |  br'abc\n | ...^"),
    ("1 + \t// nothing\n ", "2:2: Syntax error: found the end of the expression, expected an expression\n |  \n | .^"),
    ("true ~ ", "1:6: Syntax error: unexpected character '~'\n | true ~ \n | .....^"),
    (
        "google.protobuf.Int64Value{value: 1} == 1",
        f"1:27: messages cannot be constructed in this environment\n | google.protobuf.Int64Value{{value: 1}} == 1\n | {'.' * 26}^",
    ),
    ("for == 1", "1:1: reserved identifier: for\n | for == 1\n | ^"),
]


@pytest.mark.parametrize(("expression", "message"), MESSAGES)
def test_a_compile_error_names_line_and_column_and_points_at_the_place(expression: str, message: str) -> None:
    with pytest.raises(CelCompileError) as caught:
        compile_expression(expression)
    assert str(caught.value) == message


def test_a_compile_error_in_a_very_long_line_shows_only_the_surroundings() -> None:
    expression = "true || " * 500 + "nope"
    with pytest.raises(CelCompileError, match="undeclared reference to 'nope'") as caught:
        compile_expression(expression)
    assert len(str(caught.value)) < 500
    assert caught.value.column == 4001
