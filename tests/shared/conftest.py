"""The same servers as for the stores alone."""

from tests.store.conftest import servers, valkey

__all__ = ["servers", "valkey"]
