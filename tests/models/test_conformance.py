"""One list of behaviours that every model passes, the fake included; and what holds for every one that is reached by HTTP: it
never raises, it sends what it was given and no key but ours, and nobody can make it wait or read for ever.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from email.utils import formatdate
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import pytest

from claude_mem.config import PROVIDERS, load
from claude_mem.digest.models import anthropic, http, openai
from claude_mem.digest.models.anthropic import Anthropic
from claude_mem.digest.models.base import Model, Reply, Request, Usage, Verdict
from claude_mem.digest.models.chain import ProviderChain
from claude_mem.digest.models.fake import FakeModel
from claude_mem.digest.models.http import HttpClient
from claude_mem.digest.models.openai import PRESETS, OpenAI, Preset
from tests.agents.client.model_server import Text, strings
from tests.models import test_claude as claude
from tests.models.server import (
    ANTHROPIC,
    BLANK,
    EMPTY,
    NOT_JSON,
    OPENAI,
    UNRESOLVED,
    Answer,
    Behaviour,
    Close,
    Dribble,
    Hang,
    Hold,
    Json,
    Raw,
    Reset,
    Say,
    Seen,
    Server,
    answer,
    error,
    error_inside,
    refusing,
    same_tls_context,
    unreachable,
)
from tests.support import proof
from tests.support.waiting import wait_for

T = TypeVar("T")
SAID = "<observation><title>Zebras have stripes</title></observation>"
SYSTEM = "You keep a record.\nOne line a fact — « ünïcode »."
PROMPT = (
    'What happened:\n\t"quotes", \\back\\slashes, </tags>, 日本語, 🦓\n' + "and much more of it. " * 500 + "The end."
)
KEY = "own-key"
DIALECTS = (ANTHROPIC, OPENAI)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("httpcore2.default_ssl_context", same_tls_context)


async def ignored(session: str) -> None:
    """A caller that does not want to know the session."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """With what it left behind collected here, where a warning is a failure of this very test."""
    try:
        return asyncio.run(work)
    finally:
        gc.collect(1)


def question(max_tokens: int = 777) -> Request:
    return Request(system=SYSTEM, prompt=PROMPT, fence="feedc0de", max_tokens=max_tokens)


async def ask(model: Model, times: int = 1) -> list[Reply]:
    try:
        return [await model.ask(question(), on_session=ignored) for _ in range(times)]
    finally:
        await model.close()


def patient() -> HttpClient:
    """For a busy machine: no test waits as long, unless it fails."""
    return HttpClient(seconds=10, silence_seconds=10)


def hasty() -> HttpClient:
    return HttpClient(seconds=0.4, silence_seconds=0.3)


def made(dialect: str, url: str, *, key: str = KEY, client: HttpClient | None = None) -> Model:
    if dialect == ANTHROPIC:
        return Anthropic(client or patient(), key=key, base_url=url)
    return OpenAI(client or patient(), key=key, base_url=url)


# --- every implementation --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model was shown, and how much it might say."""

    system: str
    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Stand:
    """One implementation that answers `SAID` to everything, and what it has been shown so far."""

    model: Model
    shown: Callable[[], Sequence[Shown]]
    usage: Usage


def _fake() -> Stand:
    usage = Usage(input_tokens=1200, output_tokens=300)
    model = FakeModel(Reply(verdict=Verdict.OK, text=SAID, usage=usage, model="fake-1"))
    return Stand(model, lambda: [Shown(each.system, each.prompt, each.max_tokens) for each in model.requests], usage)


def _by_http(name: str, server: Server) -> Stand:
    client = patient()
    url = f"{server.url}/some/prefix/v1"
    model: Model
    if name == "anthropic":
        model = Anthropic(client, key=KEY, base_url=url)
    else:
        model = OpenAI(client, provider=name, key=KEY if PRESETS[name].needs_key else "", base_url=url)

    def shown() -> list[Shown]:
        return [Shown(seen.system, seen.prompt, seen.max_tokens) for seen in server.asked]

    return Stand(model, shown, Usage(input_tokens=1200, output_tokens=300))


def _by_claude(lab: claude.Lab) -> Stand:
    lab.server.play("The end.", [Text(SAID)])

    def shown() -> list[Shown]:
        bodies = [seen.body for seen in lab.server.requests]
        told = [("\n".join(strings(body["system"])), "\n".join(strings(body["messages"]))) for body in bodies]
        return [Shown(*each, body["max_tokens"]) for each, body in zip(told, bodies, strict=True)]

    return Stand(lab.claude(), shown, Usage(input_tokens=100, output_tokens=20))


claude_lab, sdk = claude.lab, claude.sdk
CHEAP = ("fake", "anthropic", *PRESETS)
EVERY = (*CHEAP, pytest.param("claude", marks=pytest.mark.client))  # a second for each behaviour


@pytest.fixture
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    with ExitStack() as stack:
        if request.param == "fake":
            yield _fake()
        elif request.param == "claude":
            yield _by_claude(request.getfixturevalue("claude_lab"))
        else:
            yield _by_http(request.param, stack.enter_context(Server(Say(SAID))))


every = pytest.mark.parametrize("stand", EVERY, indirect=True)
cheap = pytest.mark.parametrize("stand", CHEAP, indirect=True)


@every
def test_it_answers_with_text_usage_and_names(stand: Stand) -> None:
    (reply,) = run(ask(stand.model))
    assert (reply.verdict, reply.text) == (Verdict.OK, SAID)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (
        stand.usage.input_tokens,
        stand.usage.output_tokens,
    )
    assert stand.model.provider in (*PROVIDERS, "fake")
    assert stand.model.model
    assert reply.model
    assert reply.retry_seconds is None


@every
def test_the_question_arrives_whole_and_once(stand: Stand) -> None:
    run(ask(stand.model))
    (shown,) = stand.shown()
    whole = shown.system + shown.prompt
    assert (shown.system.count(SYSTEM), whole.count(SYSTEM)) == (1, 1)
    assert (shown.prompt.count(PROMPT), whole.count(PROMPT)) == (1, 1)
    assert shown.max_tokens == 777


@cheap
def test_the_question_arrives_with_nothing_added(stand: Stand) -> None:
    run(ask(stand.model))
    assert stand.shown() == [Shown(SYSTEM, PROMPT, 777)]


@cheap
def test_it_works_again_and_again(stand: Stand) -> None:
    replies = run(ask(stand.model, times=3))
    assert [reply.verdict for reply in replies] == [Verdict.OK] * 3
    assert len(stand.shown()) == 3


@cheap
def test_it_can_be_closed_without_having_been_used_and_twice(stand: Stand) -> None:
    async def scene() -> None:
        await stand.model.close()
        await stand.model.close()

    run(scene())
    assert stand.shown() == []


@cheap
def test_it_leaves_nothing_open(stand: Stand) -> None:
    before = set(os.listdir("/proc/self/fd"))
    run(ask(stand.model, times=2))
    left = "the server, which is in this process too, closes its end when it sees ours closed"
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, left)


@cheap
def test_it_keeps_no_session_of_its_own(stand: Stand) -> None:
    told: list[str] = []

    async def captured(session: str) -> None:
        told.append(session)

    async def scene() -> Reply:
        reply = await stand.model.ask(question(), resume="a-session-of-yesterday", on_session=captured)
        await stand.model.close()
        return reply

    assert run(scene()).verdict is Verdict.OK
    assert told == []
    assert [shown.prompt for shown in stand.shown()] == [PROMPT]


# --- names and models ------------------------------------------------------------------------------------------------


def test_there_is_a_conformance_test_for_each_provider_of_the_settings() -> None:
    assert {"fake", "claude", *PROVIDERS} - {"auto", "local"} == {*CHEAP, "claude"}


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if not preset.model])
def test_a_server_of_ones_own_is_asked_once_what_it_has_loaded(name: str) -> None:
    with Server(Say(SAID), model="qwen-7b") as server:
        model = OpenAI(patient(), provider=name, base_url=f"{server.url}/v1")
        run(ask(model, times=2))
        assert model.model == "qwen-7b"
        assert [seen.path for seen in server.requests] == ["/v1/models", *["/v1/chat/completions"] * 2]
        assert {seen.body["model"] for seen in server.asked} == {"qwen-7b"}
        assert not any("authorization" in seen.headers for seen in server.requests)


def test_the_model_of_the_settings_is_asked_for() -> None:
    with Server(Say(SAID)) as server:
        run(ask(Anthropic(patient(), key=KEY, base_url=server.url, model="claude-x")))
        run(ask(OpenAI(patient(), provider="ollama", base_url=server.url, model="llama-y")))
        assert [seen.body["model"] for seen in server.requests] == ["claude-x", "llama-y"]


def test_the_system_part_is_marked_for_the_cache_and_what_came_out_of_it_is_counted() -> None:
    with Server(Say(SAID, input_tokens=1200, cached_tokens=1000)) as server:
        for dialect in DIALECTS:
            (reply,) = run(ask(made(dialect, server.url)))
            assert reply.usage == Usage(input_tokens=1200, cached_tokens=1000, output_tokens=300)
        (block,) = server.asked[0].body["system"]
        assert block["cache_control"] == {"type": "ephemeral"}


# --- whatever the server does ----------------------------------------------------------------------------------------

_HEAD = b"HTTP/1.1 200 OK\r\n"
_JSON = b'{"content": [{"type": "text", "text": "x"}]}'
WORST: dict[str, Behaviour] = {
    "closes": Close(),
    "resets": Reset(),
    "hangs": Hang(),
    "dribbles": Dribble(),
    "empty": EMPTY,
    "blank": BLANK,
    "not json": NOT_JSON,
    "a list": Answer(200, b"[1, 2]"),
    "a number": Answer(200, b"17"),
    "null": Answer(200, b"null"),
    "half a json": Answer(200, _JSON[:20]),
    "bad utf-8": Answer(200, b'{"content": "\xff\xfe"}'),
    "half a surrogate": Answer(200, b'{"content": [{"type": "text", "text": "\\ud800"}]}'),
    "byte order mark": Answer(200, b"\xef\xbb\xbf" + _JSON),
    "deep": Answer(200, b"[" * 100_000),
    "deep objects": Answer(200, b'{"content":' * 20_000),
    "deep error": Answer(400, b'{"error":' * 20_000),
    "error inside": error_inside(502, "upstream"),
    "error of another shape": Answer(200, {"error": "overloaded"}),
    "no content": Answer(204, b""),
    "moved": Answer(302, b"", {"location": "http://model.invalid/elsewhere"}),
    "unknown status": Answer(799, b"?"),
    "teapot": Answer(418, b"\x00\x01\x02\xff"),
    "long error": Answer(500, b"x" * 1_000_000),
    "not http": Raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
    "http of the past": Raw(b"HTTP/0.9 200 OK\r\n\r\n" + _JSON),
    "headers without an end": Raw(_HEAD + b"x: y\r\n"),
    "endless headers": Raw(_HEAD + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(300))),
    "no length at all": Raw(_HEAD + b"\r\n" + _JSON),
    "negative length": Raw(_HEAD + b"content-length: -5\r\n\r\n" + _JSON),
    "two lengths": Raw(_HEAD + b"content-length: 5\r\ncontent-length: 9\r\n\r\n" + _JSON),
    "bad chunks": Raw(_HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + _JSON),
    "headers that are not ascii": Raw(_HEAD + b"x: \xff\xfe\r\nretry-after: \xb2\r\ncontent-length: 0\r\n\r\n"),
    "unknown encoding": Answer(200, _JSON, {"content-encoding": "wonder"}),
    "unknown charset": Answer(200, _JSON, {"content-type": "application/json; charset=wonder"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WORST)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_never_raises_and_asks_only_once(dialect: str, name: str) -> None:
    with Server(WORST[name]) as server:
        client = hasty() if name in ("hangs", "dribbles") else patient()
        (reply,) = run(ask(made(dialect, server.url, client=client)))
        assert_wellformed(reply)
        assert len(server.asked) == 1
        if reply.verdict is not Verdict.OK:
            assert reply.message


def assert_wellformed(reply: Reply) -> None:
    """Of the closed set, and fit to be stored."""
    assert isinstance(reply.verdict, Verdict)
    (reply.text + reply.message + reply.model).encode("utf-8")
    assert reply.retry_seconds is None or 1 <= reply.retry_seconds <= http.LONGEST_WAIT
    if reply.usage is not None:
        assert min(reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.output_tokens) >= 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_that_is_not_in_its_encoding_is_for_later(dialect: str, encoding: str) -> None:
    with Server(Answer(200, _JSON, {"content-encoding": encoding})) as server:
        (reply,) = run(ask(made(dialect, server.url)))
        assert reply.verdict is Verdict.TRANSIENT


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_address_where_nobody_answers_is_for_later(dialect: str) -> None:
    with refusing() as refused, unreachable() as lost, Server() as server:
        urls = (refused, lost, UNRESOLVED, server.url.replace("http:", "https:"))
        replies = [run(ask(made(dialect, url, client=hasty())))[0] for url in urls]
        assert [reply.verdict for reply in replies] == [Verdict.TRANSIENT] * 4
        assert all(reply.message for reply in replies)
        assert server.requests == []


@pytest.mark.parametrize(
    "url",
    ["", "model", "ftp://model", "http://", "http://[", "http://a b", "://", "http://\x00", "http://127.0.0.1:99999"],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_address_that_is_none_does_not_raise(dialect: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic, "BASE_URL", "http://")
    monkeypatch.setitem(PRESETS, "openai", Preset("http://", "gpt"))
    (reply,) = run(ask(made(dialect, url)))
    assert reply.verdict in (Verdict.TRANSIENT, Verdict.PERMANENT)


@pytest.mark.parametrize("key", ["two\nlines", "nul\x00", "schlüssel", "日本", " ", "x" * 100_000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_that_is_none_does_not_raise(dialect: str, key: str) -> None:
    with Server(Say(SAID)) as server:
        assert_wellformed(run(ask(made(dialect, server.url, key=key)))[0])
        assert all("two" not in name for seen in server.requests for name in seen.headers)


# Each part of a right answer, replaced by each of these.
_ODD: tuple[Any, ...] = (None, True, -1, 0, 1.5, 2**70, "", "odd", [], [None], ["odd"], {}, {"odd": 1})


def mutations(whole: Json) -> Iterator[Json]:
    for path in _paths(whole):
        for odd in (*_ODD, ...):
            yield _replaced(whole, path, odd)


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for name, item in items:
        yield (name,)
        yield from ((name, *rest) for rest in _paths(item))


def _replaced(whole: Json, path: Sequence[Any], odd: Any) -> Json:
    copy: Json = json.loads(json.dumps(whole))
    place: Any = copy
    for name in path[:-1]:
        place = place[name]
    if odd is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = odd
    return copy


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_with_any_part_wrong_is_read_as_far_as_it_goes(dialect: str) -> None:
    answers = list(mutations(answer(dialect, Say(SAID))))
    with Server(*(Answer(200, each) for each in answers)) as server:
        replies = run(ask(made(dialect, server.url, client=patient()), times=len(answers)))
        assert len(server.asked) == len(answers) > 200
    for reply in replies:
        assert_wellformed(reply)
    kept = sum(reply.text == SAID for reply in replies)
    assert kept > len(replies) // 2  # what is wrong beside the text does not cost the text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_connection_that_was_closed_in_between_is_no_failure(dialect: str) -> None:
    body = json.dumps(answer(dialect, Say(SAID))).encode()
    with Server(Raw(_HEAD + b"content-length: %d\r\n\r\n" % len(body) + body), Say(SAID)) as server:
        model = made(dialect, server.url)

        async def scene() -> list[Reply]:
            first = await model.ask(question(), on_session=ignored)
            await asyncio.sleep(0.1)  # it is closed without a word, so there is nothing to wait for
            return [first, *await ask(model)]

        assert [reply.verdict for reply in run(scene())] == [Verdict.OK, Verdict.OK]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_question_that_is_cut_off_leaves_nothing(dialect: str) -> None:
    hold = Hold("too late")
    with Server(hold, Say(SAID)) as server:
        model = made(dialect, server.url, client=patient())

        async def scene() -> Reply:
            asking = asyncio.create_task(model.ask(question(), on_session=ignored))
            assert await asyncio.to_thread(hold.reached.wait, 5)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return (await ask(model))[0]

        assert run(scene()).text == SAID


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_has_a_greatest_size(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER", 20_000)
    with Server(Say("x" * 19_000), Say("x" * 21_000), Answer(500, b"x" * 21_000)) as server:
        fits, too_large, error_too_large = run(ask(made(dialect, server.url), times=3))
    assert (fits.verdict, len(fits.text)) == (Verdict.OK, 19_000)
    assert (too_large.verdict, too_large.text) == (Verdict.TRANSIENT, "")
    assert "large" in too_large.message
    assert error_too_large.verdict is Verdict.TRANSIENT


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_small_answer_that_unpacks_to_a_large_one_is_not_read(dialect: str) -> None:
    bomb = gzip.compress(b'{"content": "' + b"x" * (64 << 20) + b'"}')
    with Server(Answer(200, bomb, {"content-encoding": "gzip"})) as server:
        (reply,) = run(ask(made(dialect, server.url, client=patient())))
    assert reply.verdict is Verdict.TRANSIENT
    assert "large" in reply.message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_is_carried_on_in_few_words(dialect: str) -> None:
    with Server(Answer(500, error("api_error", "It broke. " * 10_000)), Answer(502, b"<html>" * 10_000)) as server:
        told, raw = run(ask(made(dialect, server.url), times=2))
    assert told.message.startswith("HTTP 500: api_error It broke.")
    assert max(len(told.message), len(raw.message)) <= http.MESSAGE_CHARS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_and_reasons_are_short_whatever_is_sent(dialect: str) -> None:
    whole = answer(dialect, Say(SAID, model="m" * 100_000))
    whole["stop_reason"] = "r" * 100_000
    for choice in whole.get("choices", ()):
        choice["finish_reason"] = "r" * 100_000
    with Server(Answer(200, whole)) as server:
        (reply,) = run(ask(made(dialect, server.url)))
    assert reply.text == SAID
    assert max(len(reply.model), len(reply.message)) <= 1000


# --- how long to wait ------------------------------------------------------------------------------------------------

WAITS: list[tuple[str, float, float]] = [
    ("7", 7, 7),
    (" 7 ", 7, 7),
    ("7.5", 7.5, 7.5),
    ("0", 1, 1),
    ("3600", 3600, 3600),
    ("86400", 3600, 3600),
    ("1e9", 1, 3600),
    ("1000000000", 1, 3600),
    ("9" * 500, 1, 3600),
    ("-5", 1, 3600),
    ("soon", 1, 3600),
    ("", 1, 3600),
    ("nan", 1, 3600),
    ("Infinity", 1, 3600),
    ("Wed, 99 Foo 2026 25:61:61 GMT", 1, 3600),
    ("Mon, 01 Jan 0001 00:00:00 -0000", 1, 3600),
    ("Thu, 01 Jan 1970 00:00:00 GMT", 1, 1),
    ("Fri, 31 Dec 9999 23:59:59 GMT", 3600, 3600),
]


@pytest.mark.parametrize(("given", "low", "high"), WAITS)
def test_nobody_can_make_us_wait_for_more_than_an_hour(given: str, low: float, high: float) -> None:
    headers = {"retry-after": given}
    with Server(Answer(429, error("rate_limit_error", "slow down"), headers), Answer(503, b"", headers)) as server:
        limited, unavailable = run(ask(made(ANTHROPIC, server.url), times=2))
    assert limited.verdict is Verdict.RATE_LIMITED
    assert limited.retry_seconds is not None  # a limit without a time still means to wait
    assert low <= limited.retry_seconds <= high
    assert unavailable.verdict is Verdict.TRANSIENT
    assert unavailable.retry_seconds is None or low <= unavailable.retry_seconds <= high


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_date_to_wait_for_is_understood(dialect: str) -> None:
    later = formatdate(time.time() + 90, usegmt=True)
    with Server(Answer(429, b"", {"retry-after": later})) as server:
        (reply,) = run(ask(made(dialect, server.url)))
    assert reply.retry_seconds is not None
    assert 60 < reply.retry_seconds <= 90


# --- what a failure means --------------------------------------------------------------------------------------------

MEANINGS: list[tuple[Verdict, Behaviour]] = [
    (Verdict.AUTH, Answer(401, error("authentication_error", "invalid x-api-key"))),
    (Verdict.AUTH, Answer(403, error("permission_error", "This model is not for you"))),
    (Verdict.QUOTA, Answer(402, b"")),
    (Verdict.QUOTA, Answer(403, error("", "Key limit exceeded (total limit)"))),
    (Verdict.QUOTA, Answer(400, error("invalid_request_error", "You have reached your specified API usage limits."))),
    (Verdict.QUOTA, Answer(400, error("invalid_request_error", "Your credit balance is too low"))),
    (Verdict.QUOTA, Answer(429, {"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}})),
    (Verdict.RATE_LIMITED, Answer(429, error("rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit"))),
    (Verdict.RATE_LIMITED, error_inside(429, "Provider returned error")),
    (Verdict.TOO_LONG, Answer(413, b"")),
    (Verdict.TOO_LONG, Answer(400, error("invalid_request_error", "prompt is too long: 213423 tokens > 200000 maximum"))),
    (Verdict.TOO_LONG, Answer(400, {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192"}})),
    (Verdict.TRANSIENT, Answer(500, b"")),
    (Verdict.TRANSIENT, Answer(503, b"")),
    (Verdict.TRANSIENT, Answer(529, error("overloaded_error", "Overloaded"))),
    (Verdict.TRANSIENT, error_inside(502, "upstream")),
    (Verdict.PERMANENT, Answer(404, error("not_found_error", "model: claude-x"))),
    (Verdict.PERMANENT, Answer(400, error("invalid_request_error", "messages: at least one message is required"))),
    (Verdict.TRUNCATED, Say("half a sent", stop="max_tokens")),
    (Verdict.REFUSED, Say("", stop="refusal")),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "behaviour"), MEANINGS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_failure_has_one_meaning(dialect: str, verdict: Verdict, behaviour: Behaviour) -> None:
    with Server(behaviour) as server:
        (reply,) = run(ask(made(dialect, server.url)))
        assert reply.verdict is verdict
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("code", "words", "verdict"),
    [
        ("insufficient_quota", "You exceeded your current quota, please check your plan and billing details", Verdict.QUOTA),
        ("invalid_api_key", "Incorrect API key provided", Verdict.AUTH),
        ("context_length_exceeded", "This model's maximum context length is 8192 tokens", Verdict.TOO_LONG),
        ("429", "Too many requests", Verdict.RATE_LIMITED),
    ],
)  # fmt: skip
def test_an_error_inside_an_answer_is_understood_by_its_words(code: str, words: str, verdict: Verdict) -> None:
    with Server(error_inside(code, words)) as server:
        (reply,) = run(ask(made(OPENAI, server.url)))
        assert reply.verdict is verdict


def test_a_refusal_of_its_own_field_is_one() -> None:
    whole = answer(OPENAI, Say(""))
    whole["choices"][0]["message"]["refusal"] = "I can't help with that."
    with Server(Answer(200, whole)) as server:
        (reply,) = run(ask(made(OPENAI, server.url)))
    assert (reply.verdict, reply.message) == (Verdict.REFUSED, "I can't help with that.")


def test_what_a_local_model_thinks_aloud_is_not_its_answer() -> None:
    with Server(Say(f"<think>the user wants\n<title>x</title></think>\n{SAID}"), Say("<think>and on")) as server:
        whole, endless = run(ask(made(OPENAI, server.url), times=2))
    assert (whole.text.strip(), endless.text.strip()) == (SAID, "")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("key", ["sk-ant-api03-" + "aB3x" * 20, "sk-proj-" + "Zz9k" * 12, "of-a-gateway-of-our-own"])
def test_a_key_that_the_provider_repeats_is_not_carried_on(dialect: str, key: str) -> None:
    with Server(Answer(401, error("invalid_api_key", f"Incorrect API key provided: {key}."))) as server:
        (reply,) = run(ask(made(dialect, server.url, key=key)))
    assert reply.verdict is Verdict.AUTH
    assert "Incorrect API key" in reply.message
    assert key not in reply.message


# --- whose key, whose address ----------------------------------------------------------------------------------------

FOREIGN = "foreign-secret"
COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/models/test_conformance.py -k no_key_and_no_address"


@dataclass(frozen=True, slots=True)
class Around:
    """A machine on which other programs keep their keys. Whatever is here is not ours."""

    monkeypatch: pytest.MonkeyPatch
    home: Path
    project: Path
    trap: Server

    def variables(self, value: str, *names: str) -> None:
        for name in names:
            self.monkeypatch.setenv(name, value)

    def anthropic_keys(self) -> None:
        self.variables(FOREIGN, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")

    def openai_keys(self) -> None:
        self.variables(FOREIGN, "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
        self.variables(FOREIGN, "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")

    def anthropic_address(self) -> None:
        self.variables(self.trap.url, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL")

    def openai_address(self) -> None:
        self.variables(f"{self.trap.url}/v1", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OLLAMA_HOST")

    def http_proxy(self) -> None:
        self.variables(self.trap.url, "HTTP_PROXY", "http_proxy")

    def https_proxy(self) -> None:
        self.variables(self.trap.url, "HTTPS_PROXY", "https_proxy")

    def all_proxy(self) -> None:
        self.variables(f"http://user:{FOREIGN}@127.0.0.1:{self.trap.port}", "ALL_PROXY", "all_proxy")

    def netrc(self) -> None:
        text = f"machine 127.0.0.1 login me password {FOREIGN}\ndefault login me password {FOREIGN}\n"
        (self.home / ".netrc").write_text(text)
        (self.home / ".netrc").chmod(0o600)
        self.variables(str(self.home / ".netrc"), "NETRC")

    def project_files(self) -> None:
        ours = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "PROXY"]
        values = [self.trap.url if "URL" in name or name == "PROXY" else FOREIGN for name in ours]
        env = [
            f"{prefix}{name}={value}"
            for prefix in ("", "CLAUDE_MEM_")
            for name, value in zip(ours, values, strict=True)
        ]
        toml = [f'{name.lower()} = "{value}"' for name, value in zip(ours, values, strict=True)]
        settings = json.dumps({"env": dict(zip(ours, values, strict=True)), "apiKeyHelper": f"echo {FOREIGN}"})
        for folder in (self.project / ".claude", self.home / ".claude"):
            folder.mkdir()
            (folder / "settings.json").write_text(settings)
        (self.project / ".claude-mem").mkdir()
        for name in (".env", ".env.local", ".envrc"):
            (self.project / name).write_text("\n".join(env) + "\n")
        for name in ("config.toml", ".claude-mem.toml", ".claude-mem/config.toml"):
            (self.project / name).write_text("\n".join(toml) + "\n")


TRAPS = (
    Around.anthropic_keys, Around.openai_keys, Around.anthropic_address, Around.openai_address, Around.http_proxy,
    Around.https_proxy, Around.all_proxy, Around.netrc, Around.project_files,
)  # fmt: skip
VARIANTS = [*((trap,) for trap in TRAPS), *combinations(TRAPS, 2), TRAPS]


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Around]:
    for name in list(os.environ):
        if "proxy" in name.lower() or name.startswith(("OPENAI", "NETRC")):
            monkeypatch.delenv(name)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    with Server(Say("caught")) as trap:
        yield Around(monkeypatch, tmp_path / "home", project, trap)


async def by_settings(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """One question through the whole way from the settings to the wire."""
    with monkeypatch.context() as patch:
        for name, value in env.items():
            patch.setenv(f"CLAUDE_MEM_{name}", value)
        chain = ProviderChain(load())
    try:
        (model,) = await chain.models()
        return (await model.ask(question(), on_session=ignored)).verdict
    finally:
        await chain.close()


async def all_by_settings(scenes: Sequence[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    return [await by_settings(env, monkeypatch) for env in scenes]


@pytest.mark.parametrize("traps", VARIANTS, ids=lambda traps: "+".join(trap.__name__ for trap in traps))
def test_no_key_and_no_address_but_those_of_our_settings(
    around: Around, traps: Sequence[Callable[[Around], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for trap in traps:
        trap(around)
    with Server(Say(SAID)) as usual, Server(Say(SAID)) as named:
        monkeypatch.setattr(anthropic, "BASE_URL", usual.url)
        monkeypatch.setitem(openai.PRESETS, "openai", Preset(usual.url, "gpt"))
        scenes: list[tuple[Verdict, dict[str, str]]] = [
            (Verdict.AUTH, {"PROVIDER": "anthropic"}),
            (Verdict.AUTH, {"PROVIDER": "openai"}),
            (Verdict.OK, {"PROVIDER": "anthropic", "ANTHROPIC_API_KEY": KEY}),
            (Verdict.OK, {"PROVIDER": "openai", "OPENAI_API_KEY": KEY}),
            (Verdict.OK, {"PROVIDER": "anthropic", "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": named.url}),
            (Verdict.OK, {"PROVIDER": "vllm", "MODEL": "m", "OPENAI_BASE_URL": named.url}),
        ]
        # An address with TLS goes by another proxy variable. Nobody speaks TLS here, but the trap would see a CONNECT.
        secure = {"PROVIDER": "openai", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": named.url.replace("http:", "https:")}
        scenes.append((Verdict.TRANSIENT, secure))
        verdicts = run(all_by_settings([env for _, env in scenes], monkeypatch))
        shown = [seen for seen in (*usual.requests, *named.requests) if FOREIGN in seen.everything]
        caught = len(around.trap.requests) + len(shown)
        proof.record(
            "variants of environment, .env and settings full of others' keys and addresses", of="R8", goal="40", measured=1,
            ok=not caught, tally=True, command=COMMAND,
        )  # fmt: skip
        proof.record(
            "requests with a foreign key, or to a foreign address", of="R8", goal="0", measured=caught, ok=not caught,
            tally=True, command=COMMAND, note=f"{len(scenes)} settings of ours in each variant",
        )  # fmt: skip
        assert verdicts == [verdict for verdict, _ in scenes]
        assert around.trap.requests == []
        assert [(len(server.asked), len(server.requests)) for server in (usual, named)] == [(2, 2), (2, 2)]
        assert [keys_in(seen) for seen in usual.asked] == [{"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}]
        assert [keys_in(seen) for seen in named.asked] == [{"x-api-key": KEY}, {}]
        for seen in (*usual.requests, *named.requests):
            assert FOREIGN not in seen.everything
            assert str(around.trap.port) not in seen.headers["host"]


def keys_in(seen: Seen) -> dict[str, str]:
    """The headers by which one could be known: ours, and any that we do not expect at all."""
    expected = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length", "anthropic-version"}  # fmt: skip
    return {name: value for name, value in seen.headers.items() if name not in expected}


def test_a_key_may_lie_in_a_file_that_the_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / "key").write_text(f"{KEY}\n")
    with Server(Say(SAID)) as server:
        env = {"PROVIDER": "anthropic", "ANTHROPIC_API_KEY": "file:~/key", "ANTHROPIC_BASE_URL": server.url}
        assert run(by_settings(env, monkeypatch)) is Verdict.OK
        (tmp_path / "home" / "key").unlink()
        assert run(by_settings(env, monkeypatch)) is Verdict.AUTH
        assert [keys_in(seen) for seen in server.requests] == [{"x-api-key": KEY}]


def test_a_key_is_not_shown_to_where_an_answer_points() -> None:
    with Server(Say("caught")) as elsewhere, Server(Answer(307, b"", {"location": f"{elsewhere.url}/v1/messages"})) as server:  # fmt: skip
        (reply,) = run(ask(made(ANTHROPIC, server.url)))
        assert reply.verdict is Verdict.PERMANENT
        assert elsewhere.requests == []


def test_the_proxy_of_our_settings_is_used() -> None:
    with Server(Say(SAID)) as proxy:
        model = Anthropic(HttpClient(proxy=proxy.url, seconds=5), key=KEY, base_url="http://model.invalid")
        (reply,) = run(ask(model))
        assert reply.text == SAID
        assert [seen.path for seen in proxy.requests] == ["http://model.invalid/v1/messages"]
