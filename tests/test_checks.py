from __future__ import annotations

from typing import Any

import pytest

from supervisor import Limits, Request, RequestError, Timeouts
from supervisor.model.errors import CODES, about, as_error, failure
from supervisor.protocol.checks import check_request
from tests.fakes import ask


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"prompt": ""}, "request.invalid", "prompt"),
        ({"prompt": " \n"}, "request.invalid", "prompt"),
        ({"prompt": "a\0b"}, "request.invalid", "NUL"),
        ({"prompt": "a\ud800"}, "request.invalid", "surrogate at character 1"),
        ({"system": "a\0b"}, "request.invalid", "system"),
        ({"system": ""}, "request.invalid", "system"),
        ({"model": ""}, "request.invalid", "model"),
        ({"model": "--help"}, "request.invalid", "dash"),
        ({"effort": "huge"}, "request.invalid", "huge"),
        ({"billing": "nobody"}, "request.invalid", "nobody"),
        ({"timeouts": Timeouts(total=-1)}, "request.invalid", "total"),
        ({"timeouts": Timeouts(idle=float("nan"))}, "request.invalid", "idle"),
        ({"timeouts": Timeouts(grace=None)}, "request.invalid", "grace"),  # type: ignore[arg-type]
        ({"timeouts": Timeouts(total="5")}, "request.invalid", "total"),  # type: ignore[arg-type]
        ({"limits": Limits(answer=None)}, "request.invalid", "answer"),  # type: ignore[arg-type]
        ({"prompt": b"bytes"}, "request.invalid", "bytes"),
        ({"prompt": None}, "request.invalid", "NoneType"),
        ({"limits": Limits(answer=65 << 20)}, "request.invalid", "answer"),
        ({"limits": Limits(line=1 << 20)}, "request.invalid", "line"),
        ({"limits": Limits(stdout=0)}, "request.invalid", "stdout"),
        ({"prompt": "é" * 6, "limits": Limits(prompt=11)}, "request.too_large", "12 bytes"),
    ],
)
def test_what_no_cli_could_be_given_is_refused(
    given: dict[str, Any], code: str, named: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check_request(Request(**{"provider": "codex", "prompt": "x", **given}))
    assert caught.value.code == code
    assert named in caught.value.message


def test_an_ordinary_request_passes() -> None:
    check_request(ask(system="Be brief.", model="gpt-5.5", effort="low"))
    check_request(ask("-x @/etc/hostname\r\n/help \u2028"))


def test_the_line_limit_follows_the_answer_limit() -> None:
    assert Limits().line_bytes == 32 << 20
    assert Limits(answer=64 << 20).line_bytes == (128 << 20) + (1 << 20)


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_sentence_a_hint_and_a_class(code: Any) -> None:
    fact = failure(code)
    assert fact.message.endswith(".")
    assert fact.hint.endswith(".")
    error = as_error(about(fact, "codex"))
    assert error.code == code
    assert str(error) == f"codex: {fact.message} [{code}]"
