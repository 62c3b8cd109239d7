"""What a schema becomes for a vendor, and how the answer is read back."""

from __future__ import annotations

import json
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from supervisor import RequestError
from supervisor.protocol.answer import read_answer
from supervisor.protocol.schema import draft_07_schema, json_schema
from supervisor.protocol.strict_schema import strict_schema, without_nulls
from tests.fakes import ask


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    owner: str | None = None


class Zoo(BaseModel):
    name: str = Field(min_length=1)
    opened: date
    colour: Colour = Colour.RED
    animals: list[Cat | Dog] = []
    star: Cat | Dog | None = Field(default=None, discriminator="kind")
    note: str | None = None


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Verdict(BaseModel):
    answer: str
    confidence: float


def schemas_in(schema: Any) -> list[dict[str, Any]]:
    """Every object of a schema that describes an object."""
    found = []
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            found.append(schema)
        found += [each for value in schema.values() for each in schemas_in(value)]
    elif isinstance(schema, list):
        found += [each for value in schema for each in schemas_in(value)]
    return found


@pytest.mark.parametrize("model", [Zoo, Node, Verdict])
def test_the_strict_form_is_what_strict_mode_demands(model: type[BaseModel]) -> None:
    schema = strict_schema(json_schema(ask(schema=model)))
    assert schema["type"] == "object"
    text = json.dumps(schema)
    for keyword in ("default", "oneOf", "allOf", "discriminator", "minLength", "format"):
        assert f'"{keyword}"' not in text
    for each in schemas_in(schema):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])


def test_an_optional_property_is_required_and_nullable() -> None:
    schema = strict_schema(json_schema(ask(schema=Cat)))
    assert schema["required"] == ["kind", "lives"]
    assert {"type": "null"} in schema["properties"]["lives"]["anyOf"]


def test_a_null_that_stands_for_an_absent_property_gives_the_default() -> None:
    text = json.dumps(
        {
            "name": "Z",
            "opened": "2026-01-31",
            "colour": None,
            "animals": [{"kind": "cat", "lives": None}, {"kind": "dog", "owner": None}],
            "star": {"kind": "cat", "lives": None},
            "note": None,
        }
    )
    found, misfit = read_answer(ask(schema=Zoo), text, None, has_data=False, optional_as_null=True)
    assert misfit is None
    assert found == Zoo(
        name="Z",
        opened=date(2026, 1, 31),
        animals=[Cat(kind="cat"), Dog(kind="dog")],
        star=Cat(kind="cat"),
    )


def test_a_null_that_the_schema_allows_stays() -> None:
    schema = json_schema(ask(schema=Dog))
    assert without_nulls({"kind": "dog", "owner": None}, schema) == {"kind": "dog", "owner": None}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "array", "items": {}}, "#"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "#/properties/a"),
        (
            {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
            "#/properties/a",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"items": {"prefixItems": [{}]}, "type": "array"}},
            },
            "#/properties/a/items",
        ),
        (
            {
                "type": "object",
                "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}},
            },
            "#/properties/m",
        ),
        ({"$ref": "#/$defs/Gone"}, "#/$defs/Gone"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "#"),
    ],
)
def test_what_has_no_strict_form_is_refused_with_its_place(
    schema: dict[str, Any], place: str
) -> None:
    with pytest.raises(RequestError) as caught:
        strict_schema(json_schema(ask(schema=schema)))
    assert caught.value.code == "request.unsupported"
    assert caught.value.message.endswith(f"at {place}.")


def test_the_draft_07_form_leaves_out_what_claude_refuses() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date-time"},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}], "minItems": 2},
            "x-mine": {"type": "string", "x-mine": 1},
            "format": {"type": "string"},
        },
        "unevaluatedProperties": False,
        "discriminator": {"propertyName": "kind"},
    }
    assert draft_07_schema(json_schema(ask(schema=schema))) == {
        "type": "object",
        "properties": {
            "when": {"type": "string"},
            "pair": {"type": "array", "minItems": 2},
            "x-mine": {"type": "string"},
            "format": {"type": "string"},
        },
    }


def test_the_callers_schema_is_not_touched() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    before = json.dumps(schema)
    strict_schema(json_schema(ask(schema=schema)))
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("I will not.", "answer.not_json", ""),
        ('{"answer":"yes","confidence":"0.7"}', "answer.schema", "confidence"),
        ('{"answer":null,"confidence":1}', "answer.schema", "answer"),
        ('{"confidence":1}', "answer.schema", "answer"),
        ('["yes"]', "answer.schema", "the root"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_repaired(text: str, code: str, place: str, plain: bool) -> None:
    schema = Verdict.model_json_schema() if plain else Verdict
    found, misfit = read_answer(
        ask(schema=schema), text, None, has_data=False, optional_as_null=False
    )
    assert found is None
    assert misfit is not None
    assert misfit.code == code
    if not plain or place == "confidence":
        assert place in misfit.message
    assert "0.7" not in misfit.message, "an error must not carry the model's text"


def test_a_plain_schema_gives_plain_data() -> None:
    data = {"answer": "yes", "confidence": 1}
    found = read_answer(
        ask(schema=Verdict.model_json_schema()), "", data, has_data=True, optional_as_null=False
    )
    assert found == (data, None)
