"""Any model that pydantic can make: its schema in both dialects, and its instances read back.

Models are drawn, and instances of them. What the drawn models leave out, because no dialect or only one
of them can say it, is in the examples at the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, Union
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import BaseModel, ConfigDict, Discriminator, Field, RootModel, Tag, create_model

from supervisor import RequestError
from supervisor.protocol.answer import read_answer
from supervisor.protocol.checks import check_request
from supervisor.protocol.schema import draft_07_schema, json_schema
from supervisor.protocol.strict_schema import allows_null, strict_schema, without_nulls
from tests.fakes import ask

# Pydantic leaves the word discriminator out of a union of models that hold themselves, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot update undefined schema")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    WORD = "word"
    NUMBER = 7
    HALF = 0.5


@dataclass(frozen=True)
class Kind:
    """A type and its values.

    Attributes:
        nullable: null is one of its values, so that in the strict form it cannot also mean absent.
    """

    annotation: Any
    values: st.SearchStrategy[Any]
    nullable: bool = False


@dataclass(frozen=True)
class Part:
    """A field of a model.

    Attributes:
        always: every instance gives it; the others may leave it to its default.
    """

    annotation: Any
    info: Any
    values: st.SearchStrategy[Any]
    always: bool = True


def words(**size: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), **{"max_size": 4, **size})


SCALARS = (
    Kind(int, st.integers(-(10**20), 10**20)),
    Kind(float, st.floats(allow_nan=False, allow_infinity=False)),
    Kind(bool, st.booleans()),
    Kind(str, words()),
    Kind(date, st.dates()),
    Kind(datetime, st.datetimes()),
    Kind(UUID, st.uuids()),
    Kind(Colour, st.sampled_from(Colour)),
    Kind(Level, st.sampled_from(Level)),
    Kind(Mixed, st.sampled_from(Mixed)),
    Kind(Literal["x", "y"], st.sampled_from(["x", "y"])),
    Kind(Literal["only"], st.just("only")),
    Kind(Literal[1, "one", None], st.sampled_from([1, "one", None]), nullable=True),
    Kind(Annotated[int, Field(ge=-3, lt=9)], st.integers(-3, 8)),
    Kind(Annotated[int, Field(multiple_of=5)], st.integers(-9, 9).map(lambda n: n * 5)),
    Kind(Annotated[float, Field(gt=0, le=1)], st.floats(0.001, 1)),
    Kind(Annotated[str, Field(min_length=1, max_length=4)], words(min_size=1)),
    Kind(Annotated[str, Field(pattern="^[a-z]+$")], st.from_regex("[a-z]{1,4}", fullmatch=True)),
    Kind(int | str, st.integers() | words()),
    Kind(bool | list[int], st.booleans() | st.lists(st.integers(), max_size=2)),
)
ALIASES = ("default", "items", "properties", "type", "const", "enum", "anyOf")
ALIASES = (*ALIASES, "required", "format", "a/b~c", "two words", "é%", "decision", "tool", "answer")
# In a union without tags, what tells one model from another: the same name, another type.
MARKS = (
    Kind(int, st.integers()),
    Kind(str, words()),
    Kind(bool, st.booleans()),
    Kind(list[int], st.lists(st.integers(), max_size=1)),
)


@st.composite
def kinds(draw: st.DrawFn, depth: int) -> Kind:
    """A type of a field."""
    choice = draw(st.integers(0, 7 if depth else 3))
    if choice <= 2:
        return draw(st.sampled_from(SCALARS))
    if choice == 3:
        item = draw(kinds(max(depth - 1, 0)))
        return Kind(list[item.annotation], st.lists(item.values, max_size=2))
    if choice == 4:
        inner = draw(kinds(depth - 1))
        return Kind(inner.annotation | None, st.none() | inner.values, nullable=True)
    return draw(models(depth - 1) if choice == 5 else unions(depth - 1))


@st.composite
def unions(draw: st.DrawFn, depth: int) -> Kind:
    """Models, told apart by a tag or by the type of one field, or lists of them."""
    tagged = draw(st.booleans())
    branches: list[Kind] = []
    for number in range(draw(st.integers(2, 3))):
        if tagged:
            tags = draw(st.sampled_from([(f"t{number}",), (f"t{number}", f"u{number}")]))
            info = draw(st.sampled_from([Field(alias="kind"), Field(tags[0], alias="kind")]))
            first = Part(Literal[tags], info, st.sampled_from(tags))
        else:
            first = Part(MARKS[number].annotation, Field(alias="kind"), MARKS[number].values)
        branches.append(draw(models(depth, first)))
    union: Any = Union[tuple(branch.annotation for branch in branches)]  # noqa: UP007
    if tagged and draw(st.booleans()):
        union = Annotated[union, Field(discriminator="first")]
    elif draw(st.booleans()):
        lists = [list[branch.annotation] for branch in branches]
        values = [st.lists(branch.values, min_size=1, max_size=2) for branch in branches]
        return Kind(Union[tuple(lists)], st.one_of(values))  # noqa: UP007
    return Kind(union, st.one_of([branch.values for branch in branches]))


@st.composite
def parts(draw: st.DrawFn, depth: int, alias: str | None) -> Part:
    """A field of any kind, required or with any sort of default."""
    kind = draw(kinds(depth))
    says = {"alias": alias, "description": draw(st.sampled_from([None, "What it is."]))}
    sort = draw(st.sampled_from(["required", "default", "factory", "none"]))
    if sort == "none":
        either = kind.annotation | None
        return Part(either, Field(None, **says), st.none() | kind.values, always=False)
    if sort == "required":
        return Part(kind.annotation, Field(**says), kind.values)
    value = draw(kind.values)
    info = (
        Field(value, **says) if sort == "default" else Field(default_factory=lambda: value, **says)
    )
    return Part(kind.annotation, info, kind.values, always=kind.nullable)


@st.composite
def models(draw: st.DrawFn, depth: int = 2, first: Part | None = None) -> Kind:
    """A model, which may hold itself, or another that holds it."""
    name = f"Model{depth}"  # the same name for several is what pydantic has to tell apart, and does
    own = {"first": first} if first else {}
    aliases = draw(st.lists(st.none() | st.sampled_from(ALIASES), max_size=3, unique=True))
    for number, alias in enumerate(aliases):
        own[f"f{number}"] = draw(parts(depth, alias))
    again = st.deferred(lambda: instances(model, own))
    held = draw(st.sampled_from(["", "", "one", "many", "mutual"]))
    other: Any = None
    if held == "one":
        nothing = Field(None, description="The next.")
        values = st.none() | again
        own["again"] = Part(ForwardRef(name) | None, nothing, values, always=False)
    elif held == "many":
        many = Field(default_factory=list)
        own["again"] = Part(list[ForwardRef(name)], many, st.lists(again, max_size=1), always=False)
    elif held == "mutual":
        back = Part(list[ForwardRef(name)], Field(), st.lists(again, max_size=1))
        other = made("Other", {"back": back}, None)
        values = st.none() | instances(other, {"back": back})
        own["other"] = Part(other | None, Field(None), values, always=False)
    model = made(name, own, draw(st.sampled_from([None, "forbid", "ignore"])))
    for each in filter(None, (other, model)):
        each.model_rebuild(force=True, _types_namespace={name: model})
    return Kind(model, instances(model, own))


def made(name: str, own: dict[str, Part], extra: Any) -> Any:
    fields: Any = {field: (part.annotation, part.info) for field, part in own.items()}
    config = ConfigDict(extra=extra) if extra else ConfigDict(title="A title")
    return create_model(name, __config__=config, __doc__="A model.", **fields)


def instances(model: Any, own: dict[str, Part]) -> st.SearchStrategy[Any]:
    keys = {field: part.info.alias or field for field, part in own.items()}
    return st.fixed_dictionaries(
        {keys[field]: part.values for field, part in own.items() if part.always},
        optional={keys[field]: part.values for field, part in own.items() if not part.always},
    ).map(lambda given: model(**given))


# What follows knows nothing of the package: the rules of the dialects, and the form of an answer.

STRICT = {
    *("$ref", "$defs", "definitions", "type", "enum", "const", "title", "description", "anyOf"),
    *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
}
CLAUDE = STRICT | {
    *("default", "examples", "oneOf", "allOf", "not", "patternProperties", "minProperties"),
    *("maxProperties", "uniqueItems", "minLength", "maxLength", "readOnly", "writeOnly"),
    "deprecated",
}


def schemas_of(schema: Any, place: str = "#") -> list[tuple[str, Any]]:
    """Every schema inside one, itself among them, with its place."""
    found = [(place, schema)]
    if isinstance(schema, dict):
        for key, inside in schema.items():
            if key in ("properties", "$defs", "definitions", "patternProperties"):
                each = inside.items()
            elif key in ("anyOf", "oneOf", "allOf"):
                each = enumerate(inside)
            elif key in ("items", "not", "additionalProperties"):
                found += schemas_of(inside, f"{place}/{key}")
                continue
            else:
                continue
            for name, child in each:
                found += schemas_of(child, f"{place}/{key}/{name}")
    return found


def target(reference: str, sent: Any) -> Any:
    """Where a reference leads; a KeyError when it leads nowhere."""
    assert reference == "#" or reference.startswith("#/")
    found = sent
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found[int(name)] if isinstance(found, list) else found[name]
    return found


def check_strict(sent: Any) -> None:
    """Hold a schema against the rules of strict mode."""
    Draft202012Validator.check_schema(sent)
    assert sent["type"] == "object"
    assert "anyOf" not in sent
    for place, schema in schemas_of(sent):
        if schema is False and place.endswith("/additionalProperties"):
            continue
        assert isinstance(schema, dict), place
        assert schema.keys() <= STRICT, place
        if "$ref" in schema:
            assert schema.keys() == {"$ref"}, place
            assert isinstance(target(schema["$ref"], sent), dict), place
            continue
        assert "type" in schema or "anyOf" in schema, place
        types = [schema.get("type")] if isinstance(schema.get("type"), str) else schema.get("type")
        if "object" in (types or []):
            assert schema["additionalProperties"] is False, place
            assert schema["required"] == list(schema["properties"]), place
        if "array" in (types or []):
            assert isinstance(schema["items"], dict), place


def check_claude(sent: Any) -> None:
    """Hold a schema against what claude's validator takes."""
    Draft7Validator.check_schema(sent)
    assert sent["type"] == "object"
    for place, schema in schemas_of(sent):
        if isinstance(schema, dict):
            assert schema.keys() <= CLAUDE, place
            if "$ref" in schema:
                assert isinstance(target(schema["$ref"], sent), (dict, bool)), place


def fits(value: Any, schema: Any, sent: Any) -> bool:
    return Draft202012Validator(sent).evolve(schema=schema).is_valid(value)


def as_strict(value: Any, schema: Any, sent: Any) -> Any:
    """An answer in the strict form: each property is there, the ones it leaves out as null."""
    while "$ref" in schema:
        schema = target(schema["$ref"], sent)
    for branch in schema.get("anyOf", []):
        found = as_strict(value, branch, sent)
        if fits(found, branch, sent):
            return found
    if isinstance(value, list) and "items" in schema:
        return [as_strict(item, schema["items"], sent) for item in value]
    own = schema.get("properties", {})
    if not isinstance(value, dict) or not value.keys() <= own.keys():
        return value
    return {n: as_strict(value[n], own[n], sent) if n in value else absent(own[n]) for n in own}


def absent(schema: Any) -> Any:
    """What stands for an absent property: null, or the one value that it can have."""
    return schema.get("const")


def both_ways(schema: Any, value: Any, *, optional_as_null: bool) -> Any:
    """An answer read as structured data and as text; both must give the same."""
    request = ask(schema=schema)
    found = []
    for text, data, has_data in (("", value, True), (json.dumps(value), None, False)):
        read, misfit = read_answer(
            request, text, data, has_data=has_data, optional_as_null=optional_as_null
        )
        assert misfit is None, misfit
        found.append(read)
    assert found[0] == found[1]
    return found[0]


@settings(max_examples=50)
@given(models(), st.data())
def test_any_model_and_its_instances_survive_the_strict_form(kind: Kind, data: Any) -> None:
    model, value = kind.annotation, data.draw(kind.values)
    for schema in (model, model.model_json_schema()):
        check_request(ask(schema=schema))
        sent = strict_schema(json_schema(ask(schema=schema)))
        check_strict(sent)
    whole = value.model_dump(mode="json", by_alias=True)
    given = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    form = as_strict(given, sent, sent)
    for each in (whole, form):
        Draft202012Validator(sent).validate(each)
        assert both_ways(model, each, optional_as_null=True) == value
    assert both_ways(model.model_json_schema(), whole, optional_as_null=True) == whole
    plain = both_ways(model.model_json_schema(), form, optional_as_null=True)
    assert model.model_validate_json(json.dumps(plain), strict=True) == value


@settings(max_examples=50)
@given(models(), st.data())
def test_any_model_and_its_instances_survive_the_form_for_claude(kind: Kind, data: Any) -> None:
    model, value = kind.annotation, data.draw(kind.values)
    for schema in (model, model.model_json_schema()):
        check_request(ask(schema=schema))
        sent = draft_07_schema(json_schema(ask(schema=schema)))
        check_claude(sent)
    for unset in (False, True):
        given = value.model_dump(mode="json", by_alias=True, exclude_unset=unset)
        Draft7Validator(sent).validate(given)
        assert both_ways(model, given, optional_as_null=False) == value
        assert both_ways(model.model_json_schema(), given, optional_as_null=False) == given


class Pair(NamedTuple):
    left: int
    right: str


class Bag(BaseModel):
    model_config = ConfigDict(extra="allow")


class Box(BaseModel):
    pass


class Slim(BaseModel):
    x: date


class Wide(BaseModel):
    x: str


def which(value: Any) -> str:
    return "slim"


@pytest.mark.parametrize(
    ("annotation", "keyword"),
    [
        (Any, "any kind"),
        (object, "any kind"),
        (list, "any kind"),
        (list[Any], "any kind"),
        (dict, "free keys"),
        (dict[str, int], "free keys"),
        (Bag, "free keys"),
        (tuple[int, str], "prefixItems"),
        (Pair, "prefixItems"),
        (tuple[()], "one kind of items"),
    ],
)
def test_what_a_model_can_say_and_the_strict_form_cannot(annotation: Any, keyword: str) -> None:
    model = create_model("Model", field=annotation)
    with pytest.raises(RequestError) as caught:
        strict_schema(json_schema(ask(schema=model)))
    assert caught.value.code == "request.unsupported"
    assert keyword in caught.value.message
    place = "#/$defs/" if annotation in (Bag, Pair) else "#/properties/field"
    assert f"at {place}" in caught.value.message
    check_claude(draft_07_schema(json_schema(ask(schema=model))))


@pytest.mark.parametrize("root", [list[int], int | str, Box | Slim, dict[str, Box] | None])
def test_a_root_that_is_no_object_has_no_form_at_all(root: Any) -> None:
    with pytest.raises(RequestError, match="root of a schema must be an object") as caught:
        json_schema(ask(schema=RootModel[root]))
    assert caught.value.code == "request.unsupported"


def test_a_type_without_a_json_schema_is_refused() -> None:
    config = ConfigDict(arbitrary_types_allowed=True)
    model = create_model("Model", field=(type(which), ...), __config__=config)
    with pytest.raises(RequestError, match="no JSON Schema"):
        json_schema(ask(schema=model))


REFERENCES = (
    {"a": {"$ref": "#/properties/b/prefixItems"}, "b": {"type": "string"}},
    {"a": {"$ref": "#name"}, "b": {"$anchor": "name", "type": "string"}},
    {"a": {"$ref": "#/$defs/Gone"}},
)


@pytest.mark.parametrize("properties", REFERENCES)
@pytest.mark.parametrize("form", [strict_schema, draft_07_schema])
def test_a_reference_to_what_is_not_sent_is_refused(form: Any, properties: Any) -> None:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    with pytest.raises(RequestError, match="the reference") as caught:
        form(json_schema(ask(schema=schema)))
    assert caught.value.code == "request.unsupported"


def test_a_reference_may_be_written_as_part_of_an_address() -> None:
    inside = {"two words": {"type": "string"}, "a/b": {"type": "integer"}}
    own = {"a": {"$ref": "#/$defs/two%20words"}, "b": {"$ref": "#/$defs/a~1b"}}
    schema = {"type": "object", "properties": own, "$defs": inside}
    check_strict(strict_schema(json_schema(ask(schema=schema))))
    check_claude(draft_07_schema(json_schema(ask(schema=schema))))


def test_a_model_without_fields_is_closed() -> None:
    sent = strict_schema(json_schema(ask(schema=create_model("Model", box=Box, more=(Box, Box())))))
    check_strict(sent)
    assert both_ways(Box, {}, optional_as_null=True) == Box()


def test_an_array_without_items_has_no_strict_form() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    with pytest.raises(RequestError, match="without one kind of items"):
        strict_schema(json_schema(ask(schema=schema)))


class Cat(BaseModel):
    kind: Literal["cat", "lion"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


class Bird(BaseModel):
    kind: Literal["bird"] = "bird"
    lives: int = 1


class Home(BaseModel):
    told: Cat | Dog = Field(discriminator="kind")
    plain: Bird | Box


def test_the_tag_of_a_branch_cannot_be_null() -> None:
    sent = strict_schema(json_schema(ask(schema=Home)))
    check_strict(sent)
    assert "anyOf" in sent["properties"]["told"]
    bird = {"kind": "bird", "lives": None}
    answer: Any = {"told": {"kind": "cat", "lives": None}, "plain": bird}
    assert fits(answer, sent, sent)
    assert both_ways(Home, answer, optional_as_null=True) == Home(told=Cat(), plain=Bird())
    for part in ("told", "plain"):
        assert not fits({**answer, part: {"kind": None, "lives": 1}}, sent, sent)


class Short(BaseModel):
    x: int = 3
    y: int


class Long(BaseModel):
    x: str | None
    y: str


class Lists(BaseModel):
    one: Short | Long
    many: list[Short] | list[Long]


def test_a_null_is_read_for_the_branch_whose_types_the_answer_has() -> None:
    # The x of a Short is absent where it is null, and the x of a Long is null.
    long, short = {"x": None, "y": "y"}, {"x": None, "y": 1}
    for one, many in ((long, short), (short, long)):
        answer = {"one": one, "many": [one, one]}
        found = both_ways(Lists, answer, optional_as_null=True)
        meant = Long(x=None, y="y") if one is long else Short(y=1)
        assert found == Lists(one=meant, many=[meant, meant])
        assert without_nulls({"one": many, "many": [many]}, Lists.model_json_schema()) == {
            "one": many if many is long else {"y": 1},
            "many": [many if many is long else {"y": 1}],
        }


class More(BaseModel):
    x: int = 3
    y: int = 4


class Less(BaseModel):
    x: int | None


def test_a_branch_with_all_the_properties_of_the_answer_goes_before_one_with_more() -> None:
    model = create_model("Model", part=(More | Less, ...))
    found = both_ways(model, {"part": {"x": None}}, optional_as_null=True)
    assert found.part == Less(x=None)


def test_branches_that_differ_in_what_is_dropped_for_claude_may_both_fit() -> None:
    schema: Any = {
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
            "b": {"not": {"$ref": "#/$defs/A"}},
            "c": {"oneOf": [{"$ref": "#/$defs/C"}, {"type": "string"}]},
        },
        "$defs": {
            "A": {"type": "array", "prefixItems": [{"type": "integer"}]},
            "B": {"type": "array", "prefixItems": [{"type": "string"}]},
            "C": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/C"}]},
        },
    }
    sent = draft_07_schema(json_schema(ask(schema=schema)))
    check_claude(sent)
    assert fits({"a": [1], "b": ["x"]}, schema, schema)
    Draft7Validator(sent).validate({"a": [1], "b": ["x"]})
    assert "oneOf" in sent["properties"]["c"]


def test_a_union_that_a_function_decides_fits_what_is_sent() -> None:
    parts = Annotated[Slim, Tag("slim")] | Annotated[Wide, Tag("wide")]
    model = create_model("Model", part=(Annotated[parts, Discriminator(which)], ...))
    answer = {"part": {"x": "2026-01-31"}}
    for form in (strict_schema, draft_07_schema):
        sent = form(json_schema(ask(schema=model)))
        assert fits(answer, sent, sent)
    assert both_ways(model, answer, optional_as_null=True).part == Slim(x=date(2026, 1, 31))


def test_null_where_it_is_a_value_is_not_absence() -> None:
    # The strict form has one null: a property that allows it cannot be left to another default.
    model = create_model("Model", size=(int | None, 5), wrong=(int, None))
    sent = strict_schema(json_schema(ask(schema=model)))
    assert fits({"size": None, "wrong": None}, sent, sent)
    found = both_ways(model, {"size": None, "wrong": None}, optional_as_null=True)
    assert found == model(size=None)


def test_null_must_fit_all_that_a_schema_says() -> None:
    schema: Any = {"type": "string", "enum": ["a", None]}
    assert not allows_null(schema, schema)
    whole = {"type": "object", "properties": {"a": schema}}
    assert without_nulls({"a": None}, whole) == {}
