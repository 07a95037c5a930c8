"""Is the window of each named model known, and who says so?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from proxy.cli.doctor.finding import Finding, passes, warns
from proxy.cli.doctor.upstream import PATIENCE, Key
from proxy.metrics import Metrics
from proxy.ports import NOBODY
from proxy.settings import Settings
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.upstream import Timeouts, Upstream, root_of
from proxy.upstream.pool import origin_of
from proxy.windows.asking import MOST_AT_ONCE, Asking
from proxy.windows.facts import Origin
from proxy.windows.learned import LearnedWindows
from proxy.windows.model_map import ModelMap, is_pattern, said_by_the_user
from proxy.windows.resolve import Resolved, Silence, UpstreamsWord, Windows

_TIMEOUTS = Timeouts(PATIENCE, PATIENCE, PATIENCE)
_LIMIT = 8.0  # for all that the upstream is asked
_WHO = {
    Origin.SETTING: "as you have set it",
    Origin.UPSTREAM: "as the upstream says",
    Origin.MAP: "by the shipped map",
    Origin.LITELLM: "by litellm's map",
}


async def check(settings: Settings, names: Sequence[str], key: Key, tasks: Tasks) -> list[Finding]:
    named = [name for name in settings.models if not is_pattern(name)]
    wanted = list(dict.fromkeys([*named, *names]))
    if not wanted:
        return [passes("models", "none is named; --model NAME shows how large a model's window is")]
    known = ModelMap(said_by_the_user(settings.models))
    await asyncio.to_thread(known.load)
    # What is asked here is kept nowhere.
    forgetful = LateWriter(MemoryStore(), tasks)
    said = await _said(settings, wanted, key, forgetful, tasks)
    windows = Windows(known, said, LearnedWindows(settings.upstream, forgetful))
    return [judged(name, windows.of(NOBODY, name)) for name in wanted]


async def _said(
    settings: Settings, names: Sequence[str], key: Key, forgetful: LateWriter, tasks: Tasks
) -> UpstreamsWord:
    if not settings.windows.ask:
        return Silence()
    try:
        origin = origin_of(settings.upstream, settings.tls.ca_file, verify=settings.tls.verify)
    except OSError:
        return Silence()  # told by the check of the upstream
    server = Upstream(root_of(settings.upstream), origin, _TIMEOUTS, Metrics(), tasks)
    asking = Asking(server, settings.upstream, forgetful, tasks, time_limit=PATIENCE)
    try:
        async with asyncio.timeout(_LIMIT):
            await _ask(asking, names, key)
    except TimeoutError:
        pass  # what has been said until now counts, and for the rest the maps
    finally:
        server.close()
    return asking


async def _ask(asking: Asking, names: Sequence[str], key: Key) -> None:
    for start in range(0, len(names), MOST_AT_ONCE):
        for name in names[start : start + MOST_AT_ONCE]:
            asking.about(name, key.headers)
        await asking.finished()


def judged(name: str, resolved: Resolved) -> Finding:
    if resolved.origin is Origin.DEFAULT:
        hint = "nothing is folded until the upstream says it; you can: window of this name in models"
        return warns(f"model {name}", "nobody has said how large its window is", hint)
    tokens = f"a window of {resolved.window.tokens:,} tokens, {_WHO[resolved.origin]}"
    return passes(f"model {name}", tokens)
