"""What a CLI says, in an error, about a limit that is used up: which kind, and until when.

For errors only, never for what a model wrote. The wording changes with each release, so the patterns
hold on to the few words that stay; what they cannot read exactly is None and never a guess.

A text has `_MOST` characters at most, and each repetition in a pattern is bounded, so that the work
grows with the length of the text and no faster.
"""

from __future__ import annotations

import re
from calendar import isleap
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

LimitCode = Literal["limit.usage", "limit.rate", "limit.credits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitText:
    """A limit that a text tells of. At most one of the two times is set.

    Attributes:
        code: a usage window, a rate, or credits.
        resets_at: aware time at which the limit ends, where the text tells it exactly.
        retry_after: seconds to wait, where the text asks for them and the limit is a rate.
    """

    code: LimitCode
    resets_at: datetime | None = None
    retry_after: float | None = None


_MOST = 64 * 1024  # a server's whole error body is a few KiB; more is no error text
_BRIEF = timedelta(minutes=5)  # a quota that is back so soon is a rate; a window takes hours

# Limits of another kind: no waiting and no paying mends them. A rate has its own patterns.
_OTHER = (
    "rate|context|window|tokens?|output|input|length|size|time|timeout|turns?|steps?|retry|retries"
    "|requests?|files?|images?|pages?|lines?|characters?|memory|stack|depth|recursion|tools?|upload"
    "|payload|body|headers?|arguments?|redirects?|connections?|descriptors?|process|thread|nesting"
    "|heap|concurrency|max|maximum"
)
_LONG_QUOTA = re.compile(r"\bper (?:day|week|month)\b|\b(?:daily|weekly|monthly|individual) ")
_SHORT_QUOTA = re.compile(r"\bper (?:second|minute|min)\b")

_Kind = LimitCode | Literal["quota"]

# For words as `_words` gives them; first match wins. Credits come first because the specific text of
# a spending limit also has the general words; a quota comes before a rate because its text has "429".
_KINDS: tuple[tuple[str, _Kind], ...] = (
    (r"\bcredit balance (?:is )?(?:too )?(?:low|insufficient)", "limit.credits"),
    (r"\binsufficient (?:quota|balance|funds)\b|\bbilling (?:error|hard limit)", "limit.credits"),
    (
        r"\b(?:out of|used all(?: available)?|used up|no(?: more| remaining)?|not have (?:any|enough)"
        r"|not enough|insufficient) (?:[a-z]{1,20} ){0,2}credits?\b"
        r"|\bcredits? (?:depleted|exhausted)\b",
        "limit.credits",
    ),
    (
        r"\b(?:reached|hit|exceeded) (?:your|its|the) (?:\w{1,20} ){0,3}spend(?:ing)? (?:limit|cap)\b"
        r"|\bspend(?:ing)? (?:limit|cap) (?:has been |was |is )?(?:reached|exceeded|hit)\b"
        r"|:spending limit\b",
        "limit.credits",
    ),
    # The plan leaves the product out, or the key's account was never paid for.
    (r"\busage not included\b|\bto use codex with your chat ?gpt plan\b", "limit.credits"),
    (r"\bquota exceeded\. check your plan\b", "limit.credits"),
    (
        r"\b(?:hit|reached|exceeded|exceeds|used (?:up|all|100%)(?: of)?) your "
        rf"(?:(?!(?:{_OTHER})\b)\w[\w'.]{{0,39}}(?<!\.) ){{0,5}}limits?\b",
        "limit.usage",
    ),
    (
        r"\b(?:hit|reached|exceeded) (?:the|its|this|a) (?:[\w'.]{1,40} ){0,3}"
        r"(?:usage|session|hour(?:ly)?|daily|weekly|monthly) limit\b",
        "limit.usage",
    ),
    (
        rf"(?:^|[.:;!|>·∙•⚠] ?|\b(?!(?:{_OTHER})\b)[\w'.]{{1,40}} )limits? "
        r"(?:(?:has|have) been |was |is )?(?:reached|exceeded|hit|exhausted)\b",
        "limit.usage",
    ),
    (r"\bfree usage exhausted\b|\bout of (?:extra|included|free) usage\b", "limit.usage"),
    (r"\bout of [a-z]{1,20} messages\b", "limit.usage"),
    (
        r"(?<!disk )(?<!storage )\bquota (?:(?:has been|was|is) )?"
        r"(?:exceeded|reached|exhausted|will reset)"
        r"|\b(?:exceeded|exhausted|reached|hit) your "
        r"(?:(?!disk|storage)[\w.]{1,40} ){0,4}(?:quota|capacity)\b",
        "quota",
    ),
    (r"\brate ?limit(?:ed|ing|s (?:exceeded|reached|hit))\b", "limit.rate"),
    (r"\brate ?limit\b(?! (?:event|type|info|status|snapshot))", "limit.rate"),
    (r"\btoo many requests\b|\btemporarily limiting requests\b|\bslow down\b", "limit.rate"),
    (r"\bresource (?:has been )?exhausted\b", "limit.rate"),
    # The number alone may be a line, a port or a count.
    (
        r"\b(?:status|code|error|http(?:/\d(?:\.\d)?)?|rejected|failed)[^a-z0-9]{0,8}429\b"
        r"|[(\[]429[)\]]|^429\b",
        "limit.rate",
    ),
    (r"\b402 payment required\b|\bpayment required:", "limit.credits"),
)
_PATTERNS: tuple[tuple[re.Pattern[str], _Kind], ...] = tuple(
    (re.compile(pattern), kind) for pattern, kind in _KINDS
)

# Times are looked for in text with single blanks: terminals wrap lines, and ICU puts a narrow
# no-break blank before AM and PM.
_IS = r"""\\{0,3}["']? ?[:=] ?\\{0,3}["']?"""  # between a JSON key, maybe escaped, and its value
_UNIT = "milliseconds?|ms|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s"
_PART = rf"\d{{1,12}}(?:\.\d{{1,12}})? ?(?:{_UNIT})(?![a-z])"
_WAIT = rf"(?P<wait>{_PART}(?:,? (?:and )?{_PART}|{_PART}){{0,6}})"
_SECONDS = r"(?P<seconds>\d{1,12}(?:\.\d{1,12})?)(?![\d:/-])"
_LEAD = (
    r"\b(?:resets?|try again|retry|available(?: again)?|until)\b[ :]{0,2}"
    r"(?:(?:at|on|after|by)\b[ :]{0,2})?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


_PARTS = _compile(rf"(\d+(?:\.\d+)?) ?({_UNIT})(?![a-z])")
_INSTANT = _compile(
    rf"(?:\||\b(?:quota_?)?resets?_?(?:at|time(?:_?stamp)?){_IS}|{_LEAD})"
    r"(?:(?P<epoch>\d{13}|\d{10})(?:\.\d{1,9})?(?![\d-])|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
    r"(?::\d\d(?:\.\d{1,9})?)?(?: ?(?:Z|UTC)|[+-]\d\d:?\d\d)(?!\w)))"
)
_CALENDAR = _compile(
    _LEAD
    + rf"(?:(?P<weekday>{'|'.join(_DAYS)})[a-z]{{0,6}}\.?,? (?:at )?)?"
    + rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    + r"(?:,? (?P<year>\d{4}))?,? (?:at )?)?"
    + r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::\d\d)? ?(?P<half>[ap])\.?m\b\.?"
    + r"|(?P<hour24>\d\d):(?P<minute24>\d\d)(?::\d\d)?)(?![\w:])"
    + r"(?: ?\((?P<zone>[a-z][\w+/:-]{0,63})\)"
    + r"| (?P<bare>(?-i:(?:UTC|GMT)(?:[+-]\d{1,2}(?::?\d\d)?)?|[A-Z]{1,4}T"
    + r"|[A-Z][A-Za-z_]{1,30}/[A-Z][\w+/-]{1,40}))(?!\w))?"
)
_RESET_IN = _compile(
    rf"(?:\bresets?[ :]{{0,2}}(?:in|after) |\b(?:quota_?)?resets?_?(?:in|after|delay){_IS})" + _WAIT
)
_RESET_SECONDS = _compile(rf"\bresets?_?(?:in|after)_?(?:seconds|secs){_IS}" + _SECONDS)
_RETRY_IN = _compile(
    rf"\b(?:(?:try again|retry) (?:in|after) |retry[_-]?(?:in|after|delay){_IS})" + _WAIT
)
_RETRY_SECONDS = _compile(
    rf"\bretry[_-]?(?:in|after|delay)_?(?P<ms>ms|)(?:seconds|secs)?{_IS}" + _SECONDS
)
_OFFSET = _compile(r"(?:UTC|GMT|Z)(?:([+-])(\d{1,2}):?(\d\d)?)?")


def read_limit(text: str, at: datetime) -> LimitText | None:
    """The limit that an error's text tells of; None if it tells of none.

    Args:
        text: what the CLI said in an error; JSON, or prose with JSON in it, is fine.
        at: aware local time at which it arrived. A time without a zone is read at its offset, as
            the CLIs print such times in the machine's zone.
    """
    words = _words(text)
    kind: _Kind | None = next((kind for pattern, kind in _PATTERNS if pattern.search(words)), None)
    if kind is None:
        return None
    resets_at = read_reset(text, at)
    code = _quota_code(words, resets_at and resets_at - at) if kind == "quota" else kind
    retry_after = read_retry_after(text) if code == "limit.rate" else None
    if retry_after is not None:  # the same fact is not told twice
        return LimitText(code=code, retry_after=retry_after)
    return LimitText(code=code, resets_at=resets_at)


def read_reset(text: str, at: datetime) -> datetime | None:
    """The time alone, where the code is known already; the most exact one that the text holds."""
    flat = _flat(text)
    try:
        if found := _INSTANT.search(flat):
            return _instant(found)
        seconds = _seconds(_RESET_SECONDS.search(flat) or _RESET_IN.search(flat))
        if seconds is None and (found := _CALENDAR.search(flat)):
            return _calendar(found, at)
        if seconds is None:
            seconds = read_retry_after(text)
        if seconds is None:
            return None
        # By way of UTC: a sum in a zone with summer time would count hours of the wall clock.
        return (at.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(at.tzinfo)
    except (ValueError, OverflowError):  # no such date, or one beyond what a datetime can hold
        return None


def read_retry_after(text: str) -> float | None:
    """The seconds that the text asks to wait before a retry, as prose, JSON or a header."""
    flat = _flat(text)
    return _seconds(_RETRY_IN.search(flat) or _RETRY_SECONDS.search(flat))


def _flat(text: str) -> str:
    return " ".join(text[:_MOST].split())


def _words(text: str) -> str:
    """Names in code as words too: usage_limit_reached, usageLimitReached and USAGE-LIMIT-REACHED."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text[:_MOST])
    return " ".join(re.sub(r"[_-]", " ", parted).replace("\u2019", "'").lower().split())


def _quota_code(words: str, wait: timedelta | None) -> LimitCode:
    """Google calls a limit for each minute and one for each day a quota alike."""
    if _LONG_QUOTA.search(words):
        return "limit.usage"
    brief = wait is not None and timedelta(0) <= wait <= _BRIEF
    return "limit.rate" if brief or _SHORT_QUOTA.search(words) else "limit.usage"


def _seconds(found: re.Match[str] | None) -> float | None:
    if found is None:
        return None
    groups = found.groupdict()
    if groups.get("wait"):
        return sum(float(number) * _unit(unit) for number, unit in _PARTS.findall(groups["wait"]))
    return float(groups["seconds"]) / (1000 if groups.get("ms") else 1)


def _unit(name: str) -> float:
    if name.lower() in ("ms", "millisecond", "milliseconds"):
        return 0.001
    return {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}[name[0].lower()]


def _instant(found: re.Match[str]) -> datetime:
    if (epoch := found["epoch"]) is not None:
        return datetime.fromtimestamp(int(epoch) / (1000 if len(epoch) == 13 else 1), UTC)
    iso = found["iso"].upper().replace("UTC", "Z").replace(" Z", "Z")
    return datetime.fromisoformat(iso).astimezone(UTC)


def _calendar(found: re.Match[str], at: datetime) -> datetime | None:
    """A time on a clock, and its day: named, or the next on which the clock shows it."""
    named = found["zone"] or found["bare"]
    zone = _zone(named) if named else at.tzinfo
    clock = _clock(found)
    if zone is None or clock is None:
        return None
    # CLIs leave the seconds out: a limit that ends within this minute is no day away.
    now = at.astimezone(zone).replace(second=0, microsecond=0, fold=0)
    if found["month"]:
        return _dated(found, clock, now)
    then = now.replace(hour=clock[0], minute=clock[1])
    step = timedelta(days=1)
    if found["weekday"]:
        ahead = (_DAYS.index(found["weekday"].lower()) - now.weekday()) % 7
        then, step = then + timedelta(days=ahead), timedelta(days=7)
    return then if then >= now else then + step


def _dated(found: re.Match[str], clock: tuple[int, int], now: datetime) -> datetime | None:
    month, day = _MONTHS.index(found["month"].lower()) + 1, int(found["day"])
    if found["year"]:
        return datetime(int(found["year"]), month, day, *clock, tzinfo=now.tzinfo)
    for year in (now.year, now.year + 1):
        if (month, day) == (2, 29) and not isleap(year):
            continue
        then = datetime(year, month, day, *clock, tzinfo=now.tzinfo)
        if then >= now:
            return then
    return None


def _clock(found: re.Match[str]) -> tuple[int, int] | None:
    """Hour and minute. Whether they exist is seen when a datetime is made of them."""
    if found["hour24"]:
        return int(found["hour24"]), int(found["minute24"])
    hour = int(found["hour"])
    if not 1 <= hour <= 12:
        return None
    return hour % 12 + (12 if found["half"].lower() == "p" else 0), int(found["minute"] or 0)


def _zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown, malformed, or a folder of zones
        offset = _OFFSET.fullmatch(name)  # UTC is known without a zone database too
    if offset is None:
        return None
    sign, hours, minutes = offset.groups(default="0")
    size = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-size if sign == "-" else size)
