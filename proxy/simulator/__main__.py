"""`python -m proxy.simulator`: a provider on a port of your choice."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import get_args

from proxy.simulator.config import Overflow, SimulatorConfig, Summaries
from proxy.simulator.server import Simulator


def _arguments() -> argparse.Namespace:
    default = SimulatorConfig()
    parser = argparse.ArgumentParser(prog="python -m proxy.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="0 takes a free one")
    parser.add_argument("--window", type=int, default=default.window, help="tokens a model takes")
    parser.add_argument("--model", action="append", metavar="NAME", help="a name to list; may be repeated")
    parser.add_argument("--api-key", help="refuse every other key")
    parser.add_argument("--counting", choices=("tiktoken", "rough"), default=default.counting)
    parser.add_argument("--tokenizer-factor", type=float, default=default.tokenizer_factor)
    parser.add_argument("--no-prompt-cache", action="store_true", help="report no cached tokens")
    parser.add_argument("--answer-tokens", type=int, default=default.answer_tokens)
    parser.add_argument("--chunk-delay", type=float, default=default.chunk_delay, metavar="SECONDS")
    parser.add_argument("--compress", action="store_true", help="compress answers for clients that accept it")
    parser.add_argument("--summaries", choices=get_args(Summaries), default=default.summaries)
    parser.add_argument("--summary-delay", type=float, default=default.summary_delay, metavar="SECONDS")
    parser.add_argument("--overflow", choices=get_args(Overflow), default=default.overflow)
    parser.add_argument("--strict-template", action="store_true", help="refuse what many chat templates do")
    parser.add_argument("--refuse-stream-options", action="store_true")
    parser.add_argument("--accept-unknown-parameters", action="store_true")
    return parser.parse_args()


def _config(arguments: argparse.Namespace) -> SimulatorConfig:
    return SimulatorConfig(
        window=arguments.window,
        model_names=tuple(arguments.model or SimulatorConfig().model_names),
        api_key=arguments.api_key,
        counting=arguments.counting,
        tokenizer_factor=arguments.tokenizer_factor,
        cache_min_tokens=None if arguments.no_prompt_cache else SimulatorConfig().cache_min_tokens,
        answer_tokens=arguments.answer_tokens,
        chunk_delay=arguments.chunk_delay,
        compress=arguments.compress,
        summaries=arguments.summaries,
        summary_delay=arguments.summary_delay,
        overflow=arguments.overflow,
        strict_template=arguments.strict_template,
        refuses_stream_options=arguments.refuse_stream_options,
        refuses_unknown_parameters=not arguments.accept_unknown_parameters,
        record=False,  # nobody can look at it from outside
    )


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Simulator(_config(arguments), host=arguments.host, port=arguments.port) as simulator:
        print(f"simulator listening at {simulator.base_url}", flush=True)
        await stop.wait()


def main() -> None:
    arguments = _arguments()
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(arguments))
    else:
        uvloop.run(_serve(arguments))


if __name__ == "__main__":
    main()
