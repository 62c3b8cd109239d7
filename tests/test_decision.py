"""Tools as a decision: the schema that is sent for them, and what an answer to it gives."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import BaseModel

from supervisor import RequestError
from supervisor.model.conversation import FinalAnswer, Tool, ToolCall
from supervisor.protocol.answer import read_outcome
from supervisor.protocol.checks import check_request
from supervisor.protocol.decision import decision_schema
from supervisor.protocol.schema import draft_07_schema, json_schema
from supervisor.protocol.strict_schema import strict_schema
from tests.fakes import ask
from tests.test_schema_roundtrip import (
    as_strict,
    check_claude,
    check_strict,
    models,
)

# Pydantic leaves the word discriminator out of a union of models that hold themselves, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot update undefined schema")


class Node(BaseModel):
    value: int
    size: int = 3
    children: list[Node] = []


class Nothing(BaseModel):
    pass


class Verdict(BaseModel):
    said: str
    sure: int = 5
    note: str | None = "none"


def tool(name: str, parameters: Any) -> Tool:
    if isinstance(parameters, type):
        parameters = parameters.model_json_schema()
    return Tool(name=name, description=f"To {name}.", parameters=parameters)


def outcome(own: Any, step: Any, *, strict: bool, as_text: bool = False) -> Any:
    """What the answer to a request gives, the answer as an adapter has it."""
    sent = replace(own, schema=decision_schema(own), tools=())
    text, data = (json.dumps(step), None) if as_text else ("", step)
    return read_outcome(own, sent, text, data, has_data=not as_text, optional_as_null=strict)


def code_of(own: Any, step: Any, *, strict: bool) -> str | None:
    found, misfit = outcome(own, step, strict=strict)
    if misfit is not None:
        assert found.decision is None or misfit.code == "answer.schema"
    return None if misfit is None else misfit.code


def sent_of(own: Any, *, strict: bool) -> Any:
    """The decision's schema in a dialect, which must keep its rules."""
    plain = json_schema(replace(own, schema=decision_schema(own), tools=()))
    sent = strict_schema(plain) if strict else draft_07_schema(plain)
    (check_strict if strict else check_claude)(sent)
    return sent


@settings(max_examples=40)
@given(models(1), models(1), st.none() | models(1), st.booleans(), st.data())
def test_any_tools_and_any_answer_survive_both_dialects(
    first: Any, second: Any, last: Any, strict: bool, data: Any
) -> None:
    own = ask(
        tools=(tool("first", first.annotation), tool("second", second.annotation)),
        schema=last and last.annotation,
    )
    check_request(own)
    sent = sent_of(own, strict=strict)
    validator = (Draft202012Validator if strict else Draft7Validator)(sent)

    def form(value: Any, key: str) -> Any:
        given = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        step = {
            "decision": {"answer": given} if key == "answer" else {"tool": key, "arguments": given}
        }
        step = as_strict(step, sent, sent) if strict else step
        validator.validate(step)
        return step

    called = data.draw(second.values)
    step = form(called, "second")
    for as_text in (False, True):
        found, misfit = outcome(own, step, strict=strict, as_text=as_text)
        assert misfit is None
        assert isinstance(found.decision, ToolCall)
        assert (found.decision.name, found.data, found.text) == ("second", None, "")
        arguments = json.dumps(dict(found.decision.arguments))
        assert second.annotation.model_validate_json(arguments, strict=True) == called

    if last is None:
        found, misfit = outcome(own, {"decision": {"answer": "It is done."}}, strict=strict)
        assert (misfit, found.text, found.data) == (None, "It is done.", None)
    else:
        value = data.draw(last.values)
        found, misfit = outcome(own, form(value, "answer"), strict=strict)
        assert (misfit, found.data) == (None, value)
        assert last.annotation.model_validate_json(found.text, strict=True) == value
    assert found.decision == FinalAnswer()


@settings(max_examples=25)
@given(models(1), models(1), st.booleans(), st.data())
def test_the_arguments_of_another_tool_are_refused(
    first: Any, second: Any, strict: bool, data: Any
) -> None:
    own = ask(tools=(tool("first", first.annotation), tool("second", second.annotation)))
    given = data.draw(second.values).model_dump(mode="json", by_alias=True)
    other = Draft202012Validator(first.annotation.model_json_schema())
    assume(not other.is_valid(given))
    assert code_of(own, {"decision": {"tool": "second", "arguments": given}}, strict=strict) is None
    step = {"decision": {"tool": "first", "arguments": given}}
    assert code_of(own, step, strict=strict) == "answer.schema"


TOOLS = (
    tool("grow", Node),
    tool("stop", Nothing),
    tool(
        "open",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    ),
)


@pytest.mark.parametrize(
    "decision",
    [
        {"tool": "open", "arguments": {"value": 1, "size": 1, "children": []}},
        {"tool": "grow", "arguments": {"path": "x"}},
        {"tool": "grow", "arguments": {"value": "1", "size": 1, "children": []}},
        {"tool": "open", "arguments": {"path": "x", "more": 1}},
        {"tool": "open", "arguments": {"path": None}},
        {"tool": "open", "arguments": {}},
        {"tool": "close", "arguments": {}},
        {"tool": "open"},
        {"tool": "open", "arguments": {"path": "x"}, "answer": "x"},
        {"arguments": {"path": "x"}},
        {"answer": 7},
        {"answer": None},
        {"answer": {"said": "x", "sure": 1, "note": None}},
        None,
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_decision_that_does_not_fit_is_refused(decision: Any, strict: bool) -> None:
    assert code_of(ask(tools=TOOLS), {"decision": decision}, strict=strict) == "answer.schema"


@pytest.mark.parametrize("strict", [False, True])
def test_a_call_gives_the_arguments_as_they_were_meant(strict: bool) -> None:
    own = ask(tools=TOOLS)  # the Node, which holds itself, has a reference as its root
    check_request(own)
    leaf = {"value": 2, "size": None, "children": None} if strict else {"value": 2}
    grown = {"value": 1, "size": 4, "children": [leaf]}
    found, _ = outcome(own, {"decision": {"tool": "grow", "arguments": grown}}, strict=strict)
    meant = {"value": 1, "size": 4, "children": [{"value": 2}]}
    assert found.decision == ToolCall(name="grow", arguments=meant)
    found, _ = outcome(own, {"decision": {"tool": "stop", "arguments": {}}}, strict=strict)
    assert found.decision == ToolCall(name="stop", arguments={})


def test_nulls_are_taken_out_of_a_final_answer_once() -> None:
    own = ask(tools=TOOLS, schema=Verdict)
    step = {"decision": {"answer": {"said": "x", "sure": None, "note": None}}}
    found, misfit = outcome(own, step, strict=True)
    assert misfit is None
    assert found.data == Verdict(said="x", sure=5, note=None)
    assert found.text == '{"said": "x", "note": null}'
    assert code_of(own, step, strict=False) == "answer.schema"


class Half(BaseModel):
    a: int = 1


class Whole(BaseModel):
    a: int | None
    b: int = 2


class Either(BaseModel):
    part: Half | Whole


def test_nulls_are_not_taken_out_of_what_is_left() -> None:
    # What is left of the Whole, {"a": null}, would be read as a Half without its "a".
    step = {"decision": {"answer": {"part": {"a": None, "b": None}}}}
    found, misfit = outcome(ask(tools=TOOLS, schema=Either), step, strict=True)
    assert (misfit, found.data) == (None, Either(part=Whole(a=None)))


@pytest.mark.parametrize("strict", [False, True])
def test_tools_keep_their_definitions_apart(strict: bool) -> None:
    parts = {
        "type": "object",
        "$id": "https://example.invalid/tool",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"$ref": "#/$defs/X"}, "b": {"$ref": "#/definitions/X"}},
        "required": ["a", "b"],
        "$defs": {"X": {"type": "integer"}},
        "definitions": {"X": {"type": "string"}},
    }
    other = {**parts, "$defs": {"X": {"type": "boolean"}}}
    own = ask(tools=(tool("one", parts), tool("two", other)))
    check_request(own)
    sent_of(own, strict=strict)
    for name, a in (("one", 1), ("two", True)):
        step = {"decision": {"tool": name, "arguments": {"a": a, "b": "x"}}}
        assert code_of(own, step, strict=strict) is None
        step = {"decision": {"tool": name, "arguments": {"a": "x", "b": a}}}
        assert code_of(own, step, strict=strict) == "answer.schema"


def test_the_parameters_of_a_tool_are_an_object() -> None:
    for parameters in (
        {"type": "array", "items": {"type": "string"}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}},
        {"$ref": "#/$defs/Gone"},
    ):
        with pytest.raises(RequestError) as caught:
            check_request(ask(tools=(tool("one", parameters),)))
        assert caught.value.code == "request.invalid"
