"""Which variables reach the child: an allow list, never a block list.

A block list would have to know every key of every vendor, and of the next version. What programs need
to run passes; what the adapter declares for its CLI's own state passes; what the application names
passes. Everything else stays outside, and so do keys, tokens, endpoints and the marks of an outer
session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARK = "SUPERVISOR_RUN"
"""Set in every child to the run's id, so that its processes can be found again."""

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
_PREFIXES = ("LC_", "XDG_")


def base_environment(environ: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """What passes by rule from `environ`, and the variables `named` by adapter or application."""
    wanted = set(named)
    return {
        name: value
        for name, value in environ.items()
        if name in wanted or name in _NAMES or name.startswith(_PREFIXES)
    }


def child_environment(
    base: Mapping[str, str],
    planned: Mapping[str, str],
    named: Iterable[str],
    variables: Mapping[str, str],
    *,
    temporary: str,
    run_id: str,
) -> dict[str, str]:
    """The child's whole environment.

    Args:
        base: what `base_environment` gave.
        planned: what the adapter sets. A variable that the application named wins over it.
        named: names that the application lets through.
        variables: what the application sets.
        temporary: the run's own TMPDIR.
        run_id: value of the mark.
    """
    kept = {name: base[name] for name in named if name in base}
    return {**base, **planned, **kept, **variables, "TMPDIR": temporary, MARK: run_id}
