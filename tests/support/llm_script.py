"""What the test model server does with a request, and what it remembers of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

from tests.support.llm_asked import Asked, Json, cache_marks
from tests.support.llm_wires import Reply, ToolCalls


@dataclass(frozen=True, slots=True)
class Failure:
    """How a request goes wrong; use the named constructors."""

    kind: str
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    every: float = 0.3
    pieces: int = 0

    @classmethod
    def status(cls, code: int, headers: Mapping[str, str] | None = None, body: str | None = None) -> "Failure":
        """An HTTP error; without a body the provider's own shape is used."""
        return cls("status", code, headers or {}, body)

    @classmethod
    def context(cls) -> "Failure":
        """A 400 in the provider's own words for a prompt that does not fit."""
        return cls("context", 400)

    @classmethod
    def limited(cls, seconds: float) -> "Failure":
        """A 429 that asks to wait, in its header."""
        return cls("status", 429, {"retry-after": f"{seconds:g}"})

    @classmethod
    def limited_until(cls, moment: datetime) -> "Failure":
        """A 429 that says when to come back, in its header."""
        return cls("status", 429, {"retry-after": format_datetime(moment.astimezone(UTC), usegmt=True)})

    @classmethod
    def limited_in_body(cls, seconds: float) -> "Failure":
        """A 429 that asks to wait, in its body as Google does."""
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds:g}s"}]
        return cls("status", 429, body=json.dumps({"error": {"code": 429, "details": details}}))

    @classmethod
    def credit(cls) -> "Failure":
        """No credit is left, in the provider's own status and words."""
        return cls("credit")

    @classmethod
    def reset(cls) -> "Failure":
        """The connection is reset before any byte of an answer."""
        return cls("reset")

    @classmethod
    def silence(cls) -> "Failure":
        """The request is accepted and never answered."""
        return cls("silence")

    @classmethod
    def dribble(cls, every: float = 0.3) -> "Failure":
        """A good answer, 4 bytes at a time, with ``every`` seconds between."""
        return cls("dribble", every=every)

    @classmethod
    def cut(cls, pieces: int) -> "Failure":
        """A stream whose connection is reset after so many pieces; an answer that is no stream is cut at once."""
        return cls("cut", pieces=pieces)

    @classmethod
    def ended(cls, pieces: int) -> "Failure":
        """A stream that ends politely after so many pieces, without its own end."""
        return cls("ended", pieces=pieces)

    @classmethod
    def trouble(cls, pieces: int) -> "Failure":
        """A stream that tells of an error after so many pieces, as each provider does, and ends."""
        return cls("trouble", pieces=pieces)

    @classmethod
    def stalled(cls, pieces: int) -> "Failure":
        """A stream of which nothing more comes after so many pieces."""
        return cls("stalled", pieces=pieces)

    @classmethod
    def malformed(cls) -> "Failure":
        """Status 200 with a body that breaks off in the middle of its JSON."""
        return cls("malformed")

    @classmethod
    def empty_body(cls) -> "Failure":
        """Status 200 and no body at all."""
        return cls("raw", body="")

    @classmethod
    def raw(cls, body: str) -> "Failure":
        """Status 200 and this body."""
        return cls("raw", body=body)

    @classmethod
    def empty_content(cls) -> "Failure":
        """A proper success whose content is empty."""
        return cls("empty_content")


@dataclass(slots=True)
class Script:
    """What to do with requests whose last user message contains ``match`` (any, when empty)."""

    match: str = ""
    delay: float = 0.0
    """Seconds before the answer or the failure."""
    reply: str | None = None
    """The answer's text; ``{last}`` stands for the last user message, ``{results}`` for the tool results."""
    failure: Failure | None = None
    times: int | None = None
    """How many requests it serves; None for all."""
    account: str = ""
    """Only requests whose key contains this."""
    wire: str = ""
    """Only this wire: openai, anthropic, gemini, ollama or transcription."""
    rounds: int | None = None
    """Only after so many rounds of tool calls: 0 is the first call after the user spoke."""
    calls: ToolCalls = ()
    """Tools the answer calls, each with its arguments; without a reply there is no text beside them."""
    cached: int = 0
    """How many of the input tokens the provider says it had kept, and how many it kept now (Anthropic only)."""
    written: int = 0
    pause: int = 0
    """After how many pieces a stream waits for ``LLMServer.go_on``; 0: it does not."""
    slow: float = 0.0
    """Seconds between two pieces of a stream."""
    held: bool = False
    """Whether the answer or the failure waits for ``LLMServer.go_on``."""

    def serves(self, request: "Recorded") -> bool:
        """Tell whether it is meant for a request."""
        return (
            self.times != 0
            and self.match in request.last_user
            and self.account in request.key
            and self.wire in ("", request.wire)
            and self.rounds in (None, request.rounds)
        )

    def answer(self, request: "Recorded") -> Reply:
        """Write the answer to a request."""
        usual = "" if self.calls else "answer to: {last}"
        text = usual if self.reply is None else self.reply
        results = "; ".join(result for _, result in request.results)
        text = text.replace("{last}", request.last_user).replace("{results}", results)
        return Reply(text, tuple((name, arguments) for name, arguments in self.calls), self.cached, self.written)


@dataclass(slots=True)
class Recorded:
    """One request as the server saw it; times are seconds of the system-wide monotonic clock."""

    number: int
    wire: str
    path: str
    headers: dict[str, str]
    body: Json
    asked: Asked
    """The same in one form for all wires."""
    received: float
    answered: float | None = None
    """When the last byte was handed over or the client went away; None while in flight."""
    outcome: str = "in flight"
    """``answered``, ``failed`` (a scripted failure) or ``gone`` (the client or the server went away first)."""

    audio: bytes = b""
    """The file of a transcription."""

    @property
    def texts(self) -> list[str]:
        """The prompt's texts in order, the system's first where there is one."""
        return [turn.text for turn in self.asked.turns]

    @property
    def last_user(self) -> str:
        """The last thing the user said."""
        return self.asked.last_user

    @property
    def rounds(self) -> int:
        """How many rounds of tool calls there have been since the user spoke."""
        return self.asked.rounds

    @property
    def results(self) -> list[tuple[str, str]]:
        """Tool and text of every tool result, in order."""
        return self.asked.results

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return self.asked.tools

    @property
    def tool_choice(self) -> str:
        """What is said about their use: ``none``, or empty when nothing is said."""
        return self.asked.tool_choice

    @property
    def images(self) -> list[bytes]:
        """Every image, in order."""
        return [image for turn in self.asked.turns for image in turn.images]

    @property
    def cache_marks(self) -> list[str]:
        """The texts of the blocks marked for the provider's cache."""
        return cache_marks(self.body)

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model") or self.path.partition("/models/")[2].partition(":")[0])

    @property
    def key(self) -> str:
        """The account's key."""
        found = (self.headers.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key"))
        return next(filter(None, found), "").removeprefix("Bearer ")

    def told(self) -> Json:
        """The request as JSON."""
        properties = ("texts", "last_user", "rounds", "results", "tools", "tool_choice", "cache_marks", "model", "key")
        own = {name: value for name, value in asdict(self).items() if name not in ("asked", "audio")}
        return own | {name: getattr(self, name) for name in properties} | {"images": len(self.images)}

    def overlaps(self, other: "Recorded") -> bool:
        """Tell whether both requests were in flight at the same time."""
        return self.in_flight_at(other.received) or other.in_flight_at(self.received)

    def in_flight_at(self, moment: float) -> bool:
        """Tell whether the request was being served at a moment of the monotonic clock."""
        return self.received <= moment and (self.answered is None or moment < self.answered)
