"""What may be shown of a command line, and of an error."""

from __future__ import annotations

import pytest

from supervisor import Partial
from supervisor.model.errors import as_error, failure
from supervisor.model.launch import Launch
from supervisor.protocol.redact import shown_argv
from tests.test_adapters import plan


@pytest.mark.parametrize(
    "word",
    [
        'model_providers.x={http_headers={"Authorization"="Bearer abc"}}',
        'model_providers.x.experimental_bearer_token="abc"',
        "--api-key=abc",
        "api_key = abc",
        "sk-ant-api03-abcdef",
        "xai-abcdef123",
        "ghp_abcdef123",
        "https://user:password@proxy.example/",
    ],
)
def test_a_fixed_argument_that_looks_like_a_secret_is_hidden(word: str) -> None:
    launch = Launch(arguments=("exec", "-"))
    assert shown_argv(("codex", "-c", word), launch) == ("codex", "-c", "[secret]", "exec", "-")


@pytest.mark.parametrize("word", ['model_provider="mine"', "--verbose", "exec", "/opt/bin/x"])
def test_an_ordinary_argument_is_shown(word: str) -> None:
    assert shown_argv(("codex", word), Launch(arguments=())) == ("codex", word)


def test_the_callers_system_text_is_hidden() -> None:
    launch = plan("codex", system="Be discreet.")
    assert any("Be discreet." in word for word in launch.arguments)
    assert not any("discreet" in word for word in shown_argv(("codex",), launch))


def test_the_repr_of_an_error_holds_no_text_of_the_model() -> None:
    error = as_error(failure("protocol.truncated"), Partial(text="what the model said"))
    assert "what the model said" not in repr(error)
    assert "protocol.truncated" in repr(error)
