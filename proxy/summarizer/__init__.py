"""Asking a model for a summary."""

from proxy.summarizer.upstream import UpstreamSummarizer
from proxy.summarizer.wanted import Summarizer, SummaryFailed, Wanted, Written

__all__ = ["Summarizer", "SummaryFailed", "UpstreamSummarizer", "Wanted", "Written"]
