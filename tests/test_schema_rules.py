"""Schemas at their edges: what is refused before the start, sent as asked, and read back unchanged."""

from __future__ import annotations

import json
from decimal import Decimal  # noqa: TC003 -- pydantic reads the annotations
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pydantic import BaseModel, ConfigDict, Field, field_validator

from supervisor import RequestError
from supervisor.protocol.answer import read_answer
from supervisor.protocol.checks import check_request
from supervisor.protocol.schema import draft_07_schema, json_schema
from supervisor.protocol.strict_schema import strict_schema, without_nulls
from tests.fakes import ask
from tests.test_schema import Cat, Colour, Dog, Node, Verdict, schemas_in


class Home(BaseModel):
    cats: list[Cat] | None = None
    level: Literal["low", None] = "low"
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    tree: Node | None = None
    size: int = 3
    ratio: float = 0.5
    colour: Colour = Colour.RED
    words: list[str] = ["a"]
    title: str | None = "none"


HOMES = st.builds(
    Home,
    cats=st.none()
    | st.lists(st.builds(Cat, kind=st.just("cat"), lives=st.integers(-9, 9)), max_size=3),
    level=st.sampled_from(["low", None]),
    pet=st.none()
    | st.builds(Cat, kind=st.just("cat"), lives=st.integers(-9, 9))
    | st.builds(Dog, kind=st.just("dog"), owner=st.none() | st.text(max_size=3)),
    tree=st.none()
    | st.builds(
        Node,
        value=st.integers(),
        children=st.lists(st.builds(Node, value=st.integers()), max_size=2),
    ),
    size=st.integers(),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    colour=st.sampled_from(Colour),
    words=st.lists(st.text(max_size=3), max_size=3),
    title=st.none() | st.text(max_size=3),
)


@given(HOMES)
def test_an_answer_to_the_strict_form_is_read_back_as_it_was_meant(home: Home) -> None:
    text = home.model_dump_json()
    found, misfit = read_answer(ask(schema=Home), text, None, has_data=False, optional_as_null=True)
    assert misfit is None
    assert found == home


@given(HOMES)
def test_the_form_for_claude_refuses_nothing_that_the_model_accepts(home: Home) -> None:
    sent = draft_07_schema(json_schema(ask(schema=Home)))
    assert list(Draft7Validator(sent).iter_errors(json.loads(home.model_dump_json()))) == []


def test_the_strict_form_keeps_its_rules_everywhere() -> None:
    sent = strict_schema(json_schema(ask(schema=Home)))
    for each in schemas_in(sent):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])
    text = json.dumps(sent)
    for keyword in ("default", "oneOf", "allOf", "discriminator", "format"):
        assert f'"{keyword}"' not in text


def test_absent_properties_in_lists_and_unions_are_given_as_null() -> None:
    value = {"cats": [{"kind": "cat", "lives": None}], "pet": {"kind": "cat", "lives": None}}
    whole = {**dict.fromkeys(Home.model_fields), **value}
    found, misfit = read_answer(
        ask(schema=Home), json.dumps(whole), None, has_data=False, optional_as_null=True
    )
    assert misfit is None
    assert found == Home(cats=[Cat(kind="cat")], pet=Cat(kind="cat"), level=None, title=None)


def test_a_schema_that_holds_itself_is_followed() -> None:
    node = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}
    assert without_nulls({"n": 1, "next": {"n": None, "next": None}}, node) == {"n": 1, "next": {}}
    circle = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}
    circle["$defs"] = {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}
    assert without_nulls({"a": {"b": None}}, circle) == {"a": {"b": None}}


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({}, "a value of any kind"),
        (True, "a value of any kind"),
        ({"type": "array", "items": [{"type": "string"}]}, "one kind of items"),
        ({"allOf": [{"$ref": "#/properties/b"}], "minLength": 1}, "beside others"),
        ({"allOf": [{"type": "string"}], "type": "string"}, "beside others"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "several parts"),
        ({"if": {}, "type": "string"}, "'if'"),
    ],
)
def test_what_strict_mode_would_refuse_is_refused_before_the_start(part: Any, what: str) -> None:
    schema = {"type": "object", "properties": {"a": part, "b": {"type": "string"}}}
    with pytest.raises(RequestError) as caught:
        strict_schema(json_schema(ask(schema=schema)))
    assert what in caught.value.message
    assert caught.value.message.endswith("at #/properties/a.")


def test_a_wrapped_reference_stands_alone_and_an_enum_gets_its_type() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"allOf": [{"$ref": "#/properties/b"}], "description": "x"},
            "b": {"enum": ["x", "y"]},
            "c": {"properties": {}, "additionalProperties": False},
        },
        "required": ["a", "b", "c"],
    }
    sent = strict_schema(json_schema(ask(schema=schema)))["properties"]
    assert sent["a"] == {"$ref": "#/properties/b"}
    assert sent["b"] == {"enum": ["x", "y"], "type": "string"}
    assert sent["c"]["type"] == "object"


def test_a_union_at_the_root_has_no_strict_form() -> None:
    schema = {"type": "object", "anyOf": [{"properties": {}}], "properties": {}}
    with pytest.raises(RequestError, match="union at the root"):
        strict_schema(json_schema(ask(schema=schema)))


def test_what_is_dropped_for_claude_forbids_nothing_more() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"not": {"format": "date"}},
            "b": {"type": "array", "prefixItems": [{}], "items": False},
            "c": {"oneOf": [{"format": "date"}, {"format": "time"}]},
        },
    }
    sent = draft_07_schema(json_schema(ask(schema=schema)))["properties"]
    assert sent == {"a": {}, "b": {"type": "array"}, "c": {"anyOf": [{}, {}]}}
    outside = {"type": "object", "properties": {"a": {"$ref": "#/components/x"}}}
    with pytest.raises(RequestError, match="not sent"):
        draft_07_schema(json_schema(ask(schema=outside)))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (list[int], "is GenericAlias"),
        (int, "no pydantic model"),
        ("text", "is str"),
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "at #/properties/a"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "the pattern"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.invalid/x"}}}, "outside"),
        ({"type": "object", "default": {1, 2}}, "no JSON"),
        ({"type": "object", "minimum": float("nan")}, "no JSON"),
    ],
)
def test_what_is_no_schema_is_refused_before_the_start(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_request(ask(schema=schema))
    assert caught.value.code == "request.invalid"
    assert why in caught.value.message


def test_a_schema_of_another_draft_is_checked_by_its_own_rules() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "items": [{"type": "string"}]}},
    }
    check_request(ask(schema=schema))
    found = read_answer(
        ask(schema=schema), '{"a": [7]}', None, has_data=False, optional_as_null=False
    )
    assert found[1] is not None
    assert found[1].code == "answer.schema"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    price: Decimal
    counts: dict[str, int] = {}

    @field_validator("price")
    @classmethod
    def no_sevens(cls, value: Decimal) -> Decimal:
        if value == 7:
            raise ValueError(f"SECRET {value}")
        if value == 8:
            raise KeyError("SECRET")
        return value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"price": 1, "SECRET": 1}', "at *: extra_forbidden"),
        ('{"price": 1, "counts": {"SECRET": "x"}}', "at counts.*: int_type"),
        ('{"price": 7}', "at price: value_error"),
        ('{"price": 8}', "at the root: the model's own check failed with KeyError"),
    ],
)
def test_an_error_says_the_place_and_the_rule_and_nothing_of_the_answer(
    text: str, said: str
) -> None:
    _, misfit = read_answer(ask(schema=Strict), text, None, has_data=False, optional_as_null=False)
    assert misfit is not None
    assert misfit.code == "answer.schema"
    assert said in misfit.message
    assert "SECRET" not in misfit.message


def test_a_value_too_deep_to_write_is_no_answer() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    found = read_answer(ask(schema=Verdict), "", deep, has_data=True, optional_as_null=False)
    assert found[1] is not None
    assert found[1].code == "answer.not_json"
