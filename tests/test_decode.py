from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.events import Unrecognized
from supervisor.protocol.decode import (
    count,
    encodable,
    flag,
    number,
    obj,
    objects,
    read_objects,
    string,
    strings,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(line: bytes) -> None:
    for value in read_objects(line):
        assert isinstance(value, (dict, Unrecognized))


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_was_written_is_read_back(value: dict[str, Any]) -> None:
    line = json.dumps(value).encode()
    assert json.dumps(read_objects(line)) == json.dumps([encodable(value)])


def test_text_between_the_events_is_counted_and_passed_over() -> None:
    for line in (b"Loading {config}", b"null", b"42", b"{not json}", b'"text"'):
        assert read_objects(line) == [Unrecognized(type=None, size=len(line))]


def test_an_array_of_events_is_read_as_events() -> None:
    assert read_objects(b'[{"a":1},{"b":3}]') == [{"a": 1}, {"b": 3}]
    for line in (b'[{"a":1},2]', b"[]", b"[" + b"0," * 100_000 + b"0]"):
        assert read_objects(line) == [Unrecognized(type=None, size=len(line))]


def test_a_byte_that_is_no_utf8_is_replaced_and_the_line_is_kept() -> None:
    assert read_objects(b'{"a":"x\xb2y"}') == [{"a": "x\ufffdy"}]


def test_a_lone_surrogate_is_replaced_and_a_pair_is_kept() -> None:
    (value,) = read_objects(rb'{"a":"\ud800!","\udc00":["\ud83d\ude00"]}')
    assert value == {"a": "\ufffd!", "\ufffd": ["😀"]}


def test_a_deep_or_huge_value_is_no_reason_to_fail() -> None:
    balanced = b'{"a":' * 700 + b"1" + b"}" * 700
    for line in (
        balanced,
        b"[" * 100_000,
        b'{"a":' * 5000,
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":1e999}',
    ):
        assert len(read_objects(line)) == 1


@given(st.dictionaries(st.sampled_from("abc"), JSON))
def test_the_getters_never_raise_and_check_the_type(value: dict[str, Any]) -> None:
    for key in "abcd":
        assert string(value, key) is None or isinstance(value[key], str)
        assert flag(value, key) is None or isinstance(value[key], bool)
        assert (found := count(value, key)) is None or found >= 0
        assert (size := number(value, key)) is None or abs(size) < float("inf")
        assert isinstance(obj(value, key), dict)
        assert all(isinstance(item, dict) for item in objects(value, key))
        assert strings(value, key) is None or isinstance(value[key], list)


def test_a_bool_is_no_count_and_a_float_is_none_either() -> None:
    assert count({"a": True}, "a") is None
    assert count({"a": 1.0}, "a") is None
    assert count({"a": -1}, "a") is None
    assert count({"a": 0}, "a") == 0
    assert number({"a": True}, "a") is None
    assert number({"a": 10**400}, "a") is None
