"""Uploaded files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from proxy.simulator.answers import Answer, ApiError, json_answer
from proxy.simulator.chat import CREATED
from proxy.simulator.multipart import parts
from proxy.simulator.recorder import ReceivedRequest

DOWNLOAD_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    id: str
    filename: str
    purpose: str
    size: int
    sha256: str
    content: memoryview | None  # None: too large to be kept

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": CREATED,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "sha256": self.sha256,
        }


class Files:
    def __init__(self, max_kept: int) -> None:
        self._max_kept = max_kept
        self._stored: dict[str, StoredFile] = {}
        self._uploads = 0

    def upload(self, received: ReceivedRequest) -> Answer:
        form = {part.name: part for part in parts(received.data, received.header("content-type"))}
        for required in ("file", "purpose"):
            if required not in form:
                text = f"Missing required parameter: '{required}'."
                raise ApiError(text, param=required, code="missing_required_parameter")
        purpose = str(form["purpose"].content, "utf-8", "replace")
        stored = self._store(form["file"].filename or "file", purpose, form["file"].content)
        return json_answer(stored.as_json())

    def _store(self, filename: str, purpose: str, content: memoryview) -> StoredFile:
        self._uploads += 1
        digest = hashlib.sha256(content).hexdigest()
        kept = content if len(content) <= self._max_kept else None
        stored = StoredFile(f"file-{self._uploads:024d}", filename, purpose, len(content), digest, kept)
        self._stored[stored.id] = stored
        return stored

    def listing(self, received: ReceivedRequest) -> Answer:
        data = [stored.as_json() for stored in self._stored.values()]
        return json_answer({"object": "list", "data": data, "has_more": False})

    def one(self, received: ReceivedRequest, file_id: str) -> Answer:
        return json_answer(self._find(file_id).as_json())

    def content(self, received: ReceivedRequest, file_id: str) -> Answer:
        stored = self._find(file_id)
        if stored.content is None:
            raise ApiError(f"The content of {file_id} was too large to be kept.", param="id")
        view = stored.content
        pieces = tuple(view[start : start + DOWNLOAD_PIECE] for start in range(0, len(view), DOWNLOAD_PIECE))
        disposition = f'attachment; filename="{stored.filename.encode("ascii", "replace").decode()}"'
        headers = (("content-type", "application/octet-stream"), ("content-disposition", disposition))
        return Answer(200, headers, pieces)

    def delete(self, received: ReceivedRequest, file_id: str) -> Answer:
        del self._stored[self._find(file_id).id]
        return json_answer({"id": file_id, "object": "file", "deleted": True})

    def _find(self, file_id: str) -> StoredFile:
        if file_id not in self._stored:
            raise ApiError(f"No such File object: {file_id}", status=404, param="id")
        return self._stored[file_id]
