"""Which conversation a request belongs to: as the client calls it, else by how it begins.

An id is a namespace, not a thread: clients send their title and summary calls under it too, and chats that
begin alike may share one. What is folded goes by content, so a wrong guess here is never a wrong summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from proxy.fold.history import home_in
from proxy.messages import Names

LONGEST_ID = 200
BY_CONTENT = "content"

_OURS = b"x-conversation-id"
# What clients and gateways say anyway, in order of trust. Never `user`, `safety_identifier` or trace ids:
# they name people or requests.
_CLIENTS = (
    b"x-openwebui-chat-id",
    b"thread-id",
    b"x-session-id",
    b"x-session-affinity",
    b"x-claude-code-session-id",
    b"x-litellm-session-id",
    b"helicone-session-id",
    b"agent-session-id",
    b"session-id",
    b"session_id",
    b"conversation_id",
    b"x-opencode-session",
    b"x-kilo-session",
    b"x-kilocode-taskid",
    b"x-roo-task-id",
    b"x-task-id",
    b"x-sm-conversation-id",
    b"x-grok-conv-id",
)
_RANKS = {name: rank for rank, name in enumerate((_OURS, *_CLIENTS))}
_LOWEST = len(_RANKS)

# What comes out where a client puts a missing id into a header: it would make one conversation of many.
_NO_IDS = frozenset({b"", b"null", b"none", b"undefined"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """`id` is printable ASCII of at most LONGEST_ID characters, fit to be sent back in a header; a client
    that sends it in turn as `X-Conversation-Id` stays in the same conversation.

    `source` says where it comes from: `header` (`X-Conversation-Id`), `client` (a header of a known client or
    gateway), `body` (a field of the request) or `content` (nobody said: from the first turn that is spoken).
    """

    id: str
    source: str


def conversation_of(
    headers: Sequence[tuple[bytes, bytes]], names: Names, chain: Sequence[bytes]
) -> Conversation:
    """`names` is what the body says, `chain` is the history's."""
    if (named := _in_headers(headers)) is not None:
        return named
    if (said := _in_body(names)) is not None:
        return Conversation(_presentable(said), "body")
    return Conversation(_by_content(chain, names.prompt_cache_key), BY_CONTENT)


def _in_headers(headers: Sequence[tuple[bytes, bytes]]) -> Conversation | None:
    best, chosen = _LOWEST + 1, b""
    for name, value in headers:
        rank = _rank(name)
        if rank < best and (said := _id_in(value)) is not None:
            best, chosen = rank, said
    if best > _LOWEST:
        return None
    return Conversation(_presentable(chosen), "header" if best == _RANKS[_OURS] else "client")


# The same few names come with every request, so each is judged once.
@lru_cache(maxsize=1024)
def _rank(name: bytes) -> int:
    """The lower, the more it is trusted; above the lowest where it names no conversation."""
    lower = name.lower()
    if lower in _RANKS:
        return _RANKS[lower]
    # A parent's session is another conversation: the one that started this.
    is_session = lower.startswith(b"x-") and lower.endswith(b"-session-id") and b"parent" not in lower
    return _LOWEST if is_session else _LOWEST + 1


def _in_body(names: Names) -> bytes | None:
    within = names.metadata if isinstance(names.metadata, dict) else {}
    candidates = (
        names.session_id,
        names.litellm_session_id,
        names.conversation_id,
        within.get("session_id"),
        within.get("conversation_id"),
        within.get("thread_id"),
    )
    said = (_id_in(each.encode()) for each in candidates if isinstance(each, str))
    return next((each for each in said if each is not None), None)


def _id_in(value: bytes) -> bytes | None:
    stripped = value.strip()
    return None if stripped.lower() in _NO_IDS else stripped


def _presentable(said: bytes) -> str:
    """As it was said, where that can stand in a header; else a digest of it."""
    if len(said) <= LONGEST_ID and all(0x20 <= byte < 0x7F for byte in said):
        return said.decode("ascii")
    return "id-" + _digest(said)


def _by_content(chain: Sequence[bytes], hint: object) -> str:
    """Many conversations may share a cache key, so it only helps to tell apart what begins alike."""
    beginning = home_in(chain)
    if isinstance(hint, str) and hint:
        return "content-" + _digest(beginning + hint.encode())
    return "content-" + beginning.hex()


def _digest(value: bytes) -> str:
    return blake2b(value, digest_size=16).hexdigest()
