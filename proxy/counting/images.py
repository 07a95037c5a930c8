"""What an image costs, by the formulas that the providers have published."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

DEFAULT_RULE = "tiles-85-170"


def image_tokens(rule: str, width: int, height: int, detail: str) -> int:
    """An unknown rule is the default one; any detail but `low` is high, as `auto` nearly always is."""
    price = RULES.get(rule, RULES[DEFAULT_RULE])
    return price(max(1, width), max(1, height), detail)


def _tiles(base: int, tile: int, width: int, height: int, detail: str) -> int:
    """OpenAI: fit into a square of 2,048, the short side into 768; then count the tiles of 512 on it."""
    if detail == "low":
        return base
    width, height = _shrunk(width, height, 2048 / max(width, height))
    width, height = _shrunk(width, height, 768 / min(width, height))
    return base + tile * math.ceil(width / 512) * math.ceil(height / 512)


def _patches(multiplier: float, width: int, height: int, _detail: str) -> int:
    """OpenAI: the patches of 32 pixels that cover the image, shrunk where there would be more than 1,536."""
    across, down = math.ceil(width / 32), math.ceil(height / 32)
    if across * down > 1536:
        across, down = _fewer_patches(width, height)
    return math.ceil(min(1536, across * down) * multiplier)


def _fewer_patches(width: int, height: int) -> tuple[int, int]:
    ratio = math.sqrt(32 * 32 * 1536 / (width * height))
    across, down = width * ratio / 32, height * ratio / 32
    # Shrunk further, until one side is a whole number of patches.
    further = min(_whole(across) / across, _whole(down) / down)
    return _covering(across * further), _covering(down * further)


def _whole(patches: float) -> int:
    return max(1, math.floor(patches))


def _covering(patches: float) -> int:
    return math.ceil(patches - 1e-9)  # a side that is whole by construction may be a hair above it


def _anthropic(width: int, height: int, _detail: str) -> int:
    """Long edge into 1,568, then an area of 750 pixels is a token; about 1,600 at most."""
    width, height = _shrunk(width, height, 1568 / max(width, height))
    return min(1600, math.ceil(width * height / 750))


def _gemini(width: int, height: int, _detail: str) -> int:
    """258 for a small image and for each tile of a larger one, two thirds of whose short side is a tile's."""
    if max(width, height) <= 384:
        return 258
    tile = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * math.ceil(width / tile) * math.ceil(height / tile)


def _shrunk(width: int, height: int, ratio: float) -> tuple[int, int]:
    # To the nearest pixel, as billed: 2,049 by 513 is eight tiles, 2,050 by 513 is four.
    return (max(1, round(width * ratio)), max(1, round(height * ratio))) if ratio < 1 else (width, height)


RULES: dict[str, Callable[[int, int, str], int]] = {
    "tiles-85-170": partial(_tiles, 85, 170),  # gpt-4o, gpt-4.1, gpt-4.5
    "tiles-70-140": partial(_tiles, 70, 140),  # gpt-5
    "tiles-75-150": partial(_tiles, 75, 150),  # o1, o3
    "tiles-65-129": partial(_tiles, 65, 129),  # computer-use-preview
    "tiles-2833-5667": partial(_tiles, 2833, 5667),  # gpt-4o-mini
    "patches-1.62": partial(_patches, 1.62),  # gpt-4.1-mini, gpt-5-mini
    "patches-2.46": partial(_patches, 2.46),  # gpt-4.1-nano, gpt-5-nano
    "patches-1.72": partial(_patches, 1.72),  # o4-mini
    "anthropic": _anthropic,
    "gemini": _gemini,
}
