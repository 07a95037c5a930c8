"""Costs are worked out by hand from what the providers have published; see the notes beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.images import DEFAULT_RULE, RULES, image_tokens


@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [
        (1, 1, 1),
        (512, 512, 1),
        (513, 512, 2),
        (513, 513, 4),
        (768, 768, 4),
        (1024, 1024, 4),  # 768 x 768: OpenAI's own example, 765 tokens
        (2048, 4096, 6),  # 1024 x 2048, then 768 x 1536: OpenAI's own example, 1,105 tokens
        (4096, 2048, 6),
        (1920, 1080, 6),  # 1365 x 768
        (4032, 3024, 4),  # 2048 x 1536, then 1024 x 768
        (3000, 600, 4),  # 2048 x 410
        (20_000, 100, 4),  # 2048 x 10
        (65_535, 1, 4),  # 2048 x 1, never 0
        (1, 65_535, 4),
        (2049, 513, 8),  # 2048 x 512.7, which is 513
        (2050, 513, 4),  # 2048 x 512.5, just below, which is 512
    ],
)
@pytest.mark.parametrize(
    ("rule", "base", "tile"),
    [
        ("tiles-85-170", 85, 170),
        ("tiles-70-140", 70, 140),
        ("tiles-75-150", 75, 150),
        ("tiles-65-129", 65, 129),
        ("tiles-2833-5667", 2833, 5667),
    ],
)
def test_a_base_and_the_tiles_that_cover_the_scaled_image(
    rule: str, base: int, tile: int, width: int, height: int, tiles: int
) -> None:
    assert image_tokens(rule, width, height, "high") == base + tile * tiles
    assert image_tokens(rule, width, height, "auto") == base + tile * tiles
    assert image_tokens(rule, width, height, "low") == base


@pytest.mark.parametrize(
    ("width", "height", "patches"),
    [
        (1, 1, 1),
        (32, 32, 1),
        (33, 32, 2),
        (512, 512, 256),
        (1024, 1024, 1024),  # OpenAI's own example
        (1800, 2400, 1452),  # OpenAI's own example: 57 x 75 would be too many, 33 x 44 it is
        (2048, 4096, 1458),  # 27.71 x 55.43 patches, shrunk to 27 x 54
        (1024, 1536, 1536),  # just fits
        (4096, 4096, 1521),  # 39.19 a side, so 39 x 39
        (65_535, 1, 1536),  # a line of 2,048 patches
        (65_535, 65_535, 1521),
    ],
)
@pytest.mark.parametrize(
    ("rule", "hundredths"), [("patches-1.62", 162), ("patches-2.46", 246), ("patches-1.72", 172)]
)
def test_patches_up_to_a_limit_times_a_factor(
    rule: str, hundredths: int, width: int, height: int, patches: int
) -> None:
    expected = -(-patches * hundredths // 100)
    for detail in ("low", "high", "auto"):
        assert image_tokens(rule, width, height, detail) == expected


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1, 1, 1),
        (200, 200, 54),  # Anthropic's own examples: about 54, 1,334 and 1,590
        (1000, 1000, 1334),
        (1092, 1092, 1590),
        (512, 512, 350),  # 349.5
        (1024, 1024, 1399),  # 1,398.1
        (2048, 4096, 1600),  # 784 x 1568 would be 1,639
        (4096, 1024, 820),  # 1568 x 392 is 819.5
        (65_535, 1, 3),  # 1568 x 1 is 2.1
    ],
)
def test_anthropics_images_by_their_area(width: int, height: int, tokens: int) -> None:
    for detail in ("low", "high", "auto"):
        assert image_tokens("anthropic", width, height, detail) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [
        (1, 1, 1),
        (384, 384, 1),
        (385, 384, 4),  # tiles of 256
        (512, 512, 4),  # tiles of 341
        (960, 540, 6),  # Google's own example: tiles of 360, 3 x 2
        (1024, 1024, 4),  # tiles of 682
        (2048, 4096, 18),  # tiles of 768, no larger: 3 x 6
        (5000, 1, 20),  # tiles of 256, no smaller
    ],
)
def test_geminis_images_by_tiles_of_their_own_size(width: int, height: int, tiles: int) -> None:
    for detail in ("low", "high", "auto"):
        assert image_tokens("gemini", width, height, detail) == 258 * tiles


def test_an_unknown_rule_is_the_default_one_and_an_unknown_detail_is_high() -> None:
    assert image_tokens("of tomorrow", 1024, 1024, "high") == 765
    assert image_tokens(DEFAULT_RULE, 1024, 1024, "original") == 765


@given(st.sampled_from(sorted(RULES)), st.integers(-5, 10**9), st.integers(-5, 10**9), st.text(max_size=5))
def test_any_size_costs_something_and_an_image_on_its_side_costs_the_same(
    rule: str, width: int, height: int, detail: str
) -> None:
    assert image_tokens(rule, width, height, detail) == image_tokens(rule, height, width, detail) > 0
