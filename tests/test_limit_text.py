"""What CLIs say about a used-up limit. The sentences are theirs; the times were made up."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from time import perf_counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.protocol import limit_text
from supervisor.protocol.limit_text import LimitText, read_limit, read_reset, read_retry_after

HERE = timezone(timedelta(hours=2))
AT = datetime(2026, 7, 14, 20, 30, 15, tzinfo=HERE)  # a Tuesday; 18:30:15 UTC


def here(day: int, hour: int, minute: int = 0, *, month: int = 7, year: int = 2026) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=HERE)


def there(zone: str, day: int, hour: int, minute: int = 0, month: int = 7) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo(zone))


def after(**size: float) -> datetime:
    return AT + timedelta(**size)


USAGE: list[tuple[str, datetime | None]] = [
    # claude; the words between "your" and "limit", the dot and the apostrophe differ by release
    ("Claude AI usage limit reached|1784070000", datetime.fromtimestamp(1784070000, UTC)),
    ("Claude usage limit reached|1784070000000", datetime.fromtimestamp(1784070000, UTC)),
    ("5-hour limit reached ∙ resets 11pm", here(14, 23)),
    ("Limit reached · resets 3pm (Europe/Berlin)", there("Europe/Berlin", 15, 15)),
    ("Opus weekly limit reached ∙ resets Oct 31, 9am", here(31, 9, month=10)),
    ("You've hit your limit · resets 9pm (UTC)", there("UTC", 14, 21)),
    (
        "You\u2019ve hit your session limit · resets 8:20pm (Asia/Tokyo)",
        there("Asia/Tokyo", 15, 20, 20),
    ),
    ("You've hit your 5-hour limit · resets 8:20 PM (UTC)", there("UTC", 14, 20, 20)),
    (
        "You've hit your weekly limit · resets Dec 3, 9am (America/New_York)",
        there("America/New_York", 3, 9, month=12),
    ),
    (
        "You've hit your Opus limit · resets Jul 16 at 5pm (Asia/Shanghai) (429)",
        there("Asia/Shanghai", 16, 17),
    ),
    ("You've hit your weekly limit · resets Mon 12:00am", here(20, 0)),
    ("You've used 100% of your weekly limit", None),
    ("You're out of extra usage · resets 4pm", here(15, 16)),
    # codex
    (
        "You\u2019ve hit your usage limit. Upgrade to Pro (https://example.com/pro), visit"
        " https://example.com/usage to purchase more credits or try again at 9:09 PM.",
        here(14, 21, 9),
    ),
    (
        "You've hit your usage limit. To get more access, purchase more credits or try again at Dec"
        "\n 3rd, 2026 2:51 AM.",
        here(3, 2, 51, month=12),
    ),
    (
        "You have reached your usage limit. Upgrade your plan or add credits to continue, or try"
        " again after August 3, 2026 at 2:45 PM.",
        here(3, 14, 45, month=8),
    ),
    (
        "You've hit your usage limit. Upgrade to Pro or try again in 3 days 4 hours 5 minutes.",
        after(days=3, hours=4, minutes=5),
    ),
    ("You've hit your usage limit. Visit the settings or try again later.", None),
    (
        "You\u2019re out of Codex messages. Your rate limit resets on Jul 19, 2026, 12:08 AM. To"
        " continue using Codex, add credits or upgrade to Pro today.",
        here(19, 0, 8),
    ),
    (
        '{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached",'
        '"plan_type":"plus","resets_at":1784070000,"resets_in_seconds":60}}',
        datetime.fromtimestamp(1784070000, UTC),
    ),
    (
        r'429: {"error":"{\"type\":\"usage_limit_reached\",\"resets_at\":null,'
        r'\"resets_in_seconds\": 3600}"}',
        after(hours=1),
    ),
    ("usage_limit_exceeded", None),
    ("CodexErrorInfo: usageLimitExceeded", None),
    # gemini; without a window it is the time that tells a day's quota from a minute's
    (
        "[API Error: You have exhausted your daily quota on this model.]\nPlease wait and try again"
        " later. To increase your limits, request a quota increase through AI Studio",
        None,
    ),
    ("You have reached your daily gemini-9-pro quota limit.", None),
    (
        '[API Error: [{"error": {"code": 429, "message": "You have exhausted your capacity on this'
        ' model. Your quota will reset after 8h44m7s."}}]]',
        after(hours=8, minutes=44, seconds=7),
    ),
    (
        '{"code": 429, "message": "Quota exceeded for quota metric \'Requests\'", "status":'
        ' "RESOURCE_EXHAUSTED", "metadata": {"quota_limit": "RequestsPerDay"}, "retryDelay": "3s"}',
        after(seconds=3),
    ),
    (
        "Usage limit reached for gemini-9-flash. Access resets at 10:57 PM GMT-3.",
        datetime(2026, 7, 14, 22, 57, tzinfo=timezone(timedelta(hours=-3))),
    ),
    ('quota_exceeded; "resets_at": "2026-07-01T00:00:00Z"', datetime(2026, 7, 1, tzinfo=UTC)),
    # agy
    (
        "RESOURCE_EXHAUSTED (code 429): Individual quota reached. Contact your administrator to"
        " enable overages. Resets in 143h32m18s.",
        after(hours=143, minutes=32, seconds=18),
    ),
    (
        "You have reached your 5-hour standard usage limit (resets in 3h 21min)",
        after(hours=3, minutes=21),
    ),
    (
        'AGY_ERROR: {"code":429,"details":[{"reason":"QUOTA_EXHAUSTED","metadata":{'
        '"quotaResetDelay":"71h15m27.5s","quotaResetTimeStamp":"2026-07-17T16:32:54Z"}}]}',
        datetime(2026, 7, 17, 16, 32, 54, tzinfo=UTC),
    ),
    ('{"reason":"QUOTA_EXHAUSTED","quotaResetDelay":"1h0m0.5s"}', after(hours=1, seconds=0.5)),
    # grok
    ("subscription:weekly-limit: You hit your weekly limit.", None),
    (
        "API error (status 402 Payment Required): subscription:free-usage-exhausted: You've reached"
        " your free Grok Build usage limit for now.",
        None,
    ),
    ("API error (status 403 Forbidden): subscription:free-usage-exhausted", None),
    # none was seen, and each may come
    ("You have exceeded the weekly limit", None),
    ("Your organization reached its 5-hour limit", None),
    ("You hit your team\u2019s plan limit", None),
    ("This request exceeds your weekly limit", None),
]

CREDITS = [
    "Credit balance is too low",  # claude
    "Your credit balance is too low to access the API. Too many requests.",
    "billing_error",
    "You've hit your monthly spend limit · raise it at example.com/usage",
    "Spending cap reached",
    "Quota exceeded. Check your plan and billing details.",  # codex
    '429 Too Many Requests: {"code":"insufficient_quota","message":"You exceeded your current quota"}',
    "To use Codex with your ChatGPT plan, upgrade to Plus: https://example.com/plus.",
    "usage_not_included",
    "Your workspace is out of credits. Ask your workspace owner to refill in order to continue.",
    '{"type":"usage_limit_reached","rate_limit_reached_type":"workspace_member_credits_depleted"}',
    "unexpected status 402 Payment Required: , url: https://example.com/",
    "payment-required: You have run out of credits or reached your spending limit.",  # grok
    "Some resource has been exhausted: Your team has either used all available credits or reached"
    " its monthly spending limit.",
    "Your newly created team does not have any credits or licenses yet.",
    "personal-team-blocked:spending-limit",
]

RATE: list[tuple[str, float | None]] = [
    ("rate_limit", None),  # claude
    ("API Error: Request rejected (429) · This request would exceed your account's limits.", None),
    (
        "This request would exceed your organization's rate limit of 50 requests per minute.",
        None,
    ),
    ("API Error: Server is temporarily limiting requests (not your usage limit)", None),
    ("Server is limiting requests (not your usage limit) · Rate limited", None),
    ('429 {"type":"error"}', None),
    ("exceeded retry limit, last status: 429 Too Many Requests", None),  # codex
    ("rate_limit_exceeded", None),
    ("Rate limit reached for gpt-9. Please try again in 1.2s.", 1.2),
    ("Rate limit reached on requests per min: Limit 3000. Please try again in\n20ms. Visit", 0.02),
    ("slow_down", None),
    ("HTTP/1.1 429", None),
    ("Request was not taken (429)", None),
    ("Request failed with status code 429", None),
    ("too many requests; Retry-After: 7", 7),
    (  # gemini
        "[API Error: Resource has been exhausted (e.g. check quota).\nSuggested retry after 3s.]"
        "\nPlease wait and try again later. To increase your limits, request a quota increase",
        3,
    ),
    (
        "Attempt 1 failed: Resource exhausted. Suggested retry after 3s.. Retrying after 5457ms...",
        3,
    ),
    ("You have exhausted your capacity on this model. retryDelayMs: 53000", 53),
    ('{"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "3s"}]}', 3),
    (
        "You exceeded your current quota, please check your plan and billing details.\\nPlease retry"
        " in 15.5s.",
        15.5,
    ),
    ("Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' (429)", None),
    ("Some resource has been exhausted: Too many requests. Your team has been rate limited.", None),
]

NO_LIMIT = [
    "",
    "Prompt is too long · the request is ~210000 tokens (limit 200000)",
    "Request too large (max 32MB). Attachments pushed the request over the limit.",
    "You've reached your context limit",
    "Context window limit exceeded",
    "Claude's response exceeded the 32000 output token maximum",
    "Input exceeds the maximum length of 1048576 characters",
    "The tool hit its time limit; the turn limit reached",
    "max_turns limit reached",
    "`max_tokens` limit exceeded",
    "max-output-tokens limit has been reached",
    "exceeded retry limit, last status: 500 Internal Server Error",
    "Codex ran out of room in the model's context window.",
    "Invalid prompt: limited access",
    "chatgpt authentication required to read rate limits",
    '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","rateLimitType":"five_hour"}}',
    "Heads up, you have less than 25% of your weekly limit left.",
    'RetryableQuotaError: The model is overloaded. {"code":503,"status":"UNAVAILABLE"}',
    "EDQUOT: disk quota exceeded, write",
    "You have exceeded your storage quota",
    "Storage quota exceeded",
    "You have reached your goal. Mind the limit",
    "2026-07-14T19:48:36.429370Z ERROR failed at main.js:429:12, port 429, request 14290",
    "Invalid credentials. See https://example.com/credits and your quota page",
    "3 out of 5 credits were checked; 2 out of 10 messages were sent",
    "Please try again later, or retry in a few seconds",
    "connection reset by peer",
]


@pytest.mark.parametrize(("text", "resets_at"), USAGE)
def test_a_usage_limit_and_its_end(text: str, resets_at: datetime | None) -> None:
    assert read_limit(text, AT) == LimitText(code="limit.usage", resets_at=resets_at)
    assert read_reset(text, AT) == resets_at


@pytest.mark.parametrize("text", CREDITS)
def test_credits_are_used_up(text: str) -> None:
    assert read_limit(text, AT) == LimitText(code="limit.credits")


@pytest.mark.parametrize(("text", "seconds"), RATE)
def test_a_rate_and_the_wait(text: str, seconds: float | None) -> None:
    assert read_limit(text, AT) == LimitText(
        code="limit.rate", retry_after=seconds and pytest.approx(seconds)
    )


def test_a_rate_may_tell_its_end_and_no_wait() -> None:
    text = "You have exhausted your capacity on this model. Your quota will reset after 53s."
    assert read_limit(text, AT) == LimitText(code="limit.rate", resets_at=after(seconds=53))


@pytest.mark.parametrize("text", NO_LIMIT)
def test_another_error_is_no_limit(text: str) -> None:
    assert read_limit(text, AT) is None


OTHER_KINDS = (
    "context,context window,token,max tokens,output,input,length,size,time,timeout,turn,steps,retry"
    ",retries,request,file,image,page,line,character,memory,stack,depth,recursion,tool,upload,payload"
    ",body,header,argument,redirect,connection,descriptor,process,thread,nesting,heap,concurrency,max"
    ",maximum"
)


@pytest.mark.parametrize("kind", OTHER_KINDS.split(","))
def test_a_limit_of_another_kind_is_none(kind: str) -> None:
    assert read_limit(f"You have reached your {kind} limit", AT) is None
    assert read_limit(f"{kind.replace(' ', '_')}_limit_exceeded", AT) is None


@pytest.mark.parametrize("case", ["lower", "upper"])
def test_the_case_of_the_letters_does_not_matter(case: str) -> None:
    for code, texts in (
        ("limit.usage", [text for text, _ in USAGE if "LimitExceeded" not in text]),
        ("limit.credits", CREDITS),
        ("limit.rate", [text for text, _ in RATE]),
    ):
        for text in texts:
            if "PerDay" not in text:  # the capitals are the only border of these words
                found = read_limit(getattr(text, case)(), AT)
                assert found is not None, text
                assert found.code == code, text


def test_every_pattern_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that no text here needs would rot unseen."""
    expected = {text: "limit.usage" for text, _ in USAGE} | dict.fromkeys(CREDITS, "limit.credits")
    expected |= {text: "limit.rate" for text, _ in RATE}
    patterns = limit_text._PATTERNS
    for row, (pattern, _) in enumerate(patterns):
        monkeypatch.setattr(limit_text, "_PATTERNS", patterns[:row] + patterns[row + 1 :])
        found = {text: read_limit(text, AT) for text in expected}
        assert any(it is None or it.code != expected[text] for text, it in found.items()), pattern


TIMES: list[tuple[str, datetime | None]] = [
    # without a day it is the next time that the clock shows it, to the minute
    ("resets at 8:31 PM", here(14, 20, 31)),
    ("resets at 8:30 PM", here(14, 20, 30)),
    ("resets at 8:29 PM", here(15, 20, 29)),
    ("resets at 9:09\u202fPM", here(14, 21, 9)),
    ("resets 21:09", here(14, 21, 9)),
    ("resets 12am", here(15, 0)),
    ("resets 12:30 p.m.", here(15, 12, 30)),
    # 18:30 UTC is already the next day in Auckland, and still the afternoon in New York
    ("resets 7am (Pacific/Auckland)", there("Pacific/Auckland", 15, 7)),
    ("resets 3pm (America/New_York)", there("America/New_York", 14, 15)),
    ("resets 3pm America/New_York", there("America/New_York", 14, 15)),
    ("resets 3pm (UTC+5:30)", datetime(2026, 7, 15, 15, tzinfo=timezone(timedelta(hours=5.5)))),
    # a date without a year is the next such date
    ("resets Jul 14, 9pm", here(14, 21)),
    ("resets Jul 14, 8pm", here(14, 20, year=2027)),
    ("resets Jan 2 at 1am", here(2, 1, month=1, year=2027)),
    ("try again at Jul 1st, 2026 2:51 AM.", here(1, 2, 51)),
    # a day of the week with a time is the next one
    ("resets Tue 9pm", here(14, 21)),
    ("resets Tuesday at 8pm", here(21, 20)),
    ("resets Mon, Jul 20, 9am", here(20, 9)),
    # exact forms
    ("available again at 2026-07-15T10:00:00+02:00", here(15, 10)),
    ("resets at 2026-07-15t08:00z", here(15, 10)),
    ("wait until 2026-07-15 08:00:00.123456789 UTC", here(15, 10) + timedelta(microseconds=123456)),
    ('"resetsAt": "2026-07-15T08:00:00Z"', here(15, 10)),
    ("'resets_at': 1784070000.5", datetime.fromtimestamp(1784070000, UTC)),
    ("reset_at=1784070000000", datetime.fromtimestamp(1784070000, UTC)),
    ("resets in 2 days, 3 hrs and 4 mins", after(days=2, hours=3, minutes=4)),
    ("resets in 1 week", after(weeks=1)),
    # none of these is exact
    ("try again later", None),
    ("resets Monday", None),
    ("resets Oct 24", None),
    ("resets 3", None),
    ("resets Dec 3, 2026", None),
    ("Limits reset every 5h and every week.", None),
    ("try again in less than a minute", None),
    ("resets in 2 months", None),
    ("resets 3pm (Europe/Nowhere)", None),
    ("resets 3pm (America)", None),
    ("resets 3pm (UTC+99)", None),
    ("resets 3pm PST", None),
    ("resets 13pm", None),
    ("resets 0am", None),
    ("resets 9:75pm", None),
    ("resets 24:30", None),
    ("resets Feb 30, 9am", None),
    ("resets Feb 29, 9am", None),
    ("resets at 2026-02-30T10:00:00Z", None),
    ("resets at 2026-07-15T10:00:00", None),
    ("2026-07-15T10:00:00Z ERROR usage limit reached", None),
    ('"resets_at": 0', None),
    ('"resets_at": 17840700001', None),
]


@pytest.mark.parametrize(("text", "expected"), TIMES)
def test_a_time_is_exact_or_none(text: str, expected: datetime | None) -> None:
    assert read_reset(text, AT) == expected


def test_a_leap_day_is_the_next_one() -> None:
    at = datetime(2027, 3, 1, tzinfo=UTC)
    assert read_reset("resets Feb 29, 9am", at) == datetime(2028, 2, 29, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "resets in 3h",
        "resets 3pm",
        "resets Tue 3pm",
        "resets Dec 3, 3pm",
        "resets 3pm (Asia/Tokyo)",
    ],
)
def test_beyond_the_last_date_there_is_none(text: str) -> None:
    assert read_reset(text, datetime.max.replace(tzinfo=UTC)) is None


def test_the_named_zone_is_kept() -> None:
    found = read_reset("resets 3pm (Europe/Berlin)", AT)
    assert found is not None
    assert found.tzinfo == ZoneInfo("Europe/Berlin")


def test_without_a_zone_database_a_named_zone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depending on the version a name that is a folder of zones is an OSError."""

    def no_zone(name: str) -> None:
        raise IsADirectoryError(name)

    monkeypatch.setattr(limit_text, "ZoneInfo", no_zone)
    assert read_reset("resets 3pm (Europe/Berlin)", AT) is None
    assert read_reset("resets 9pm (UTC)", AT) == datetime(2026, 7, 14, 21, tzinfo=UTC)


def test_hours_are_real_ones_when_summer_time_ends() -> None:
    at = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    found = read_reset("resets in 24h", at)
    assert found is not None
    assert found - at.astimezone(UTC) == timedelta(hours=24)
    assert found.hour == 11


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Suggested retry after 3s.", 3),
        ("Auto-retry in 1.5s", 1.5),
        ("try again in 20s", 20),
        ("Please retry in 12.3s", 12.3),
        ("try again in 1m12s", 72),
        ("try again in 250 milliseconds", 0.25),
        ("RETRY IN 250MS", 0.25),
        ("retryDelayMs: 3000,", 3),
        (r"{\"retryDelay\": \"391609.5s\"}", 391609.5),
        ("Retry-After: 600", 600),
        ('"retry_after_seconds": 4.5', 4.5),
        ("retryDelayMs: undefined", None),
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("Retry-After: 2026-10-21", None),
        ("retry after 3 attempts", None),
        ("Retrying after 5457ms...", None),
        ("resets in 3s", None),
        ("retry in a few seconds", None),
    ],
)
def test_the_wait_that_was_asked_for(text: str, seconds: float | None) -> None:
    assert read_retry_after(text) == (seconds and pytest.approx(seconds))


def test_only_the_first_part_of_a_huge_text_is_read() -> None:
    assert read_limit("x" * 60_000 + " rate limited", AT) is not None
    assert read_limit("x" * 70_000 + " rate limited", AT) is None


@pytest.mark.parametrize(
    "piece",
    [
        "a ",
        "aA",
        "\\",
        "hit your a b c d e ",
        "reached the a b ",
        "out of a ",
        f"{'a' * 40} limits ",
        "exceeded your a b c d ",
        "status  code ",
        "resets in 1h2m3s",
        "1h",
        "resets mon dec 3, 2026 ",
        "resets 3pm (aaaaaaaaaaaaaaaaaa",
        'retry_after\\\\\\"',
    ],
)
def test_a_text_made_to_be_slow_is_not(piece: str) -> None:
    """A quadratic pattern takes a minute for this; the bound leaves room for a busy machine."""
    text = piece * (64 * 1024 // len(piece))
    began = perf_counter()
    read_limit(text, AT)
    read_reset(text, AT)
    assert perf_counter() - began < 3


PIECES = sorted(
    {
        piece
        for text in [
            *(text for text, _ in [*USAGE, *RATE, *TIMES]),
            *CREDITS,
            "resets in 999999999999 weeks",
            "resets Dec 31, 9999 11:59 PM",
            "resets at 0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00",
            '"resets_in_seconds": 999999999999 "resets_at": 9999999999',
            "\ud800 \u0663 ",
        ]
        for piece in re.split(r"(?<=[ |:(])", text)
    }
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=2)), max_size=12).map("".join),
    st.sampled_from([text for text, _ in [*USAGE, *TIMES]]),
)
ZONES = [UTC, HERE, timezone(timedelta(hours=-23, minutes=-59)), ZoneInfo("Pacific/Auckland")]
MOMENTS = st.builds(
    lambda moment, zone: moment.replace(tzinfo=zone),
    st.one_of(st.datetimes(), st.sampled_from([datetime.min, datetime.max])),
    st.sampled_from([*ZONES, timezone(timedelta(hours=23, minutes=59))]),
)


@given(TEXTS, MOMENTS)
def test_nothing_raises(text: str, at: datetime) -> None:
    found = read_limit(text, at)
    reset = read_reset(text, at)
    wait = read_retry_after(text)
    assert reset is None or reset.utcoffset() is not None
    assert wait is None or 0 <= wait < float("inf")
    if found is not None:
        assert found.resets_at in (reset, None)
        assert found.retry_after in (wait, None)
        assert found.resets_at is None or found.retry_after is None
