"""Asking a model for a summary."""

from proxy.summarizer.through_litellm import LitellmSummarizer
from proxy.summarizer.upstream import UpstreamSummarizer
from proxy.summarizer.wanted import TOO_LONG, Summarizer, SummaryFailed, SummaryRefused, Wanted, Written
from proxy.summarizer.ways import Way, preferred_model, summarizer_for, way_for

__all__ = [
    "TOO_LONG",
    "LitellmSummarizer",
    "Summarizer",
    "SummaryFailed",
    "SummaryRefused",
    "UpstreamSummarizer",
    "Wanted",
    "Way",
    "Written",
    "preferred_model",
    "summarizer_for",
    "way_for",
]
