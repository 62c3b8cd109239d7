from __future__ import annotations

from supervisor.protocol.environment import base_environment, child_environment

PLANTED = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"),
    *("CODEX_API_KEY", "XAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "CLAUDECODE"),
)
NEEDED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"),
    *("XDG_CONFIG_HOME", "HTTP_PROXY", "https_proxy", "no_proxy", "SSL_CERT_FILE"),
    "NODE_EXTRA_CA_CERTS",
)


def child(environ: dict[str, str], *named: str, **variables: str) -> dict[str, str]:
    return child_environment(
        base_environment(environ, named),
        {"SWITCH": "planned"},
        named,
        variables,
        temporary="/run/tmp",
        run_id="r1",
    )


def test_keys_tokens_endpoints_and_session_marks_stay_outside() -> None:
    assert not child(dict.fromkeys(PLANTED, "planted")).keys() & set(PLANTED)


def test_what_programs_need_passes() -> None:
    assert set(NEEDED) <= child(dict.fromkeys(NEEDED, "x")).keys()


def test_a_named_key_passes_and_only_that() -> None:
    found = child(dict.fromkeys(PLANTED, "planted"), "OPENAI_API_KEY")
    assert found.keys() & set(PLANTED) == {"OPENAI_API_KEY"}


def test_what_the_application_names_wins_over_the_plan() -> None:
    assert child({})["SWITCH"] == "planned"
    assert child({"SWITCH": "mine"})["SWITCH"] == "planned"
    assert child({"SWITCH": "mine"}, "SWITCH")["SWITCH"] == "mine"
    assert child({}, SWITCH="set")["SWITCH"] == "set"


def test_the_temporary_folder_and_the_mark_are_ours_alone() -> None:
    found = child({"TMPDIR": "/tmp"}, "TMPDIR", SUPERVISOR_RUN="other")
    assert found["TMPDIR"] == "/run/tmp"
    assert found["SUPERVISOR_RUN"] == "r1"
