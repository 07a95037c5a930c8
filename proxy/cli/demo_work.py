"""The conversation of `tailfold demo`: a service is changed file by file, with an assistant and tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

SYSTEM: Message = {
    "role": "system",
    "content": "You are a careful programmer. Read before you change, and run the tests after every change.",
}

# What a turn adds to the history, about.
TOKENS_PER_TURN = 300

_AREAS = ("orders", "suppliers", "invoices", "parcels", "returns", "customers", "prices", "stock")
_LAYERS = ("api", "queries", "models", "views", "jobs")
_WISHES = (
    "It still pages by offset; rows that arrive meanwhile are shown twice. Move it to cursors, and keep the "
    "old parameter working until release 4.2.",
    "The totals are computed in Python, one query per row. Let the database add them up, and leave the "
    "rounding as it is, because the accountants rely on it.",
    "Errors are swallowed here and become an empty list. Let them through, and log only the request id.",
)
_TOOLS = ("read_file", "run_tests", "search")


def _tool(name: str, description: str) -> dict[str, Any]:
    text = {"type": "string", "description": "a path or a pattern"}
    parameters = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = [
    _tool("read_file", "A file with numbers before its lines"),
    _tool("run_tests", "What the tests of a module say"),
    _tool("search", "Lines that match a pattern"),
]


@dataclass(frozen=True, slots=True)
class Work:
    """What one turn is about; of the same number always the same."""

    number: int

    @property
    def question(self) -> Message:
        wish = _WISHES[self.number % len(_WISHES)]
        # The simulated model calls the tools that a user's text names in this way.
        text = f"Step {self.number}: please go on with {self.path}. {wish} Begin with call:{self.tool}."
        return {"role": "user", "content": text}

    @property
    def tool(self) -> str:
        return _TOOLS[self.number % len(_TOOLS)]

    @property
    def path(self) -> str:
        return f"shop/{self._area}/{_LAYERS[self.number // len(_AREAS) % len(_LAYERS)]}.py"

    @property
    def _area(self) -> str:
        return _AREAS[self.number % len(_AREAS)]

    def result(self, call: str) -> Message:
        text = {"read_file": self._file, "run_tests": self._tests, "search": self._matches}[self.tool]()
        return {"role": "tool", "tool_call_id": call, "content": text}

    def _file(self) -> str:
        area, limit = self._area, 20 + self.number
        lines = [
            f"# {self.path}, revision {1000 + 37 * self.number:x}",
            f"def list_{area}(request, offset=0, limit={limit}):",
            f"    rows = db.query('select * from {area} order by id', offset, limit)",
            f"    total = sum(row.amount for row in rows if row.state != 'void_{self.number}')",
            f"    return page(rows, total, next=offset + {limit})",
            "",
            f"def count_{area}(request):",
            f"    return db.scalar('select count(*) from {area} where shop = ?', request.shop)",
            "",
            f"def export_{area}(request, since='2024-{1 + self.number % 12:02}-01'):",
            f"    return csv(db.query('select * from {area} where changed >= ?', since))",
        ]
        return "\n".join(f"{number:3} {line}" for number, line in enumerate(lines, 1))

    def _tests(self) -> str:
        tests = ["first_page", "last_page", "empty_shop", "two_shops", "void_rows", "export_since"]
        outcomes = [
            f"tests/{self._area}/test_{name}.py::test_{name}_{self.number} "
            + ("FAILED" if (self.number + index) % 4 == 0 else "PASSED")
            for index, name in enumerate(tests)
        ]
        failed = sum(outcome.endswith("FAILED") for outcome in outcomes)
        summary = f"{failed} failed, {len(tests) - failed} passed in {2 + self.number / 10:.1f}s"
        return "\n".join([*outcomes, summary])

    def _matches(self) -> str:
        callers = ("views/list.html", "jobs/nightly.py", "api/public.py", "admin/tables.py", "tests/pages.py")
        return "\n".join(
            f"shop/{caller}:{11 * self.number + 3 * line}: list_{self._area}(request, offset={20 * line})"
            f"  # page {line} of the {self._area}"
            for line, caller in enumerate(callers, 1)
        )
