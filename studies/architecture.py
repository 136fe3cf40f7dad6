"""The picture of docs/architecture.md, drawn from the imports of the code.

    python -m studies.architecture

The rooms and what leaves them stand in the table of the page. An arrow leads from a room to one that imports from it.
An arrow that follows from others is left out. A test compares the picture, the page and the code.
"""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sbil.files import write_text

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sbil"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "figures" / "architecture.svg"

HEIGHT, GAP_ABOVE, GAP_BESIDE, MARGIN = 46, 26, 28, 20  # of boxes and between them
WIDE, NARROW, PADDING = 8.6, 6.4, 28  # the width of a letter of a name and of the line below it; beside both
STYLE = """
    .paper { fill: #ffffff } .room { fill: #eef4fa; stroke: #0072b2; stroke-width: 1.5 }
    .name { font-weight: 600; fill: #111111 } .what { font-size: 12px; fill: #444444 }
    .arrow { fill: none; stroke: #555555; stroke-width: 1.6 } .tip { fill: #555555 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #15191e } .room { fill: #1e2a36; stroke: #56b4e9 }
      .name { fill: #f2f2f2 } .what { fill: #c8c8c8 } .arrow { stroke: #a8a8a8 } .tip { fill: #a8a8a8 }
    }"""


@dataclass(frozen=True)
class Row:
    """One row of the table: rooms that stand together, and what leaves them."""

    rooms: tuple[str, ...]
    leaves: str


Graph = dict[int, set[int]]  # the rows that each row imports from


def table(text: str) -> list[Row]:
    """The rows of the table of rooms, from the top down."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if rooms := re.findall(r"`(\w+)(?:/|\.py)`", cells[1]) if len(cells) == 5 else []:
            rows.append(Row(tuple(rooms), cells[3].replace("`", "")))
    return rows


def room_of(path: Path) -> str:
    """The room of a file of the package: a folder, or the file itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def room_files() -> list[Path]:
    """Every Python file that lies in a room."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if not room_of(path).startswith("__")]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "sbil":
            names |= {f"sbil.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("sbil.")}


def imports(rows: list[Row]) -> Graph:
    """What each row imports from, without itself."""
    row_of = {room: number for number, row in enumerate(rows) for room in row.rooms}
    found: Graph = {number: set() for number in range(len(rows))}
    for path in room_files():
        number = row_of[room_of(path)]
        found[number] |= {row_of[room] for room in imported(path) if room in row_of} - {number}
    return found


def reduced(graph: Graph) -> Graph:
    """The graph without the arrows that follow from others."""
    reached: Graph = {}
    for number in sorted(graph):  # a row imports from rows above it only
        reached[number] = set().union(graph[number], *(reached[above] for above in graph[number]))
    return {
        number: {one for one in above if not any(one in reached[other] for other in above)}
        for number, above in graph.items()
    }


def levels(graph: Graph) -> list[int]:
    """The level of each row: below all that it imports from, and close to the first that imports from it."""
    level = [0] * len(graph)
    for number in sorted(graph):
        level[number] = max((level[above] + 1 for above in graph[number]), default=0)
    for number in sorted(graph, reverse=True):
        users = [level[other] for other, above in graph.items() if number in above]
        level[number] = max(level[number], min(users, default=0) - 1)
    return level


@dataclass
class Place:
    """A box of a row, or a bend (without a row) where an arrow passes a level."""

    level: int
    above: list["Place"]
    row: Row | None = None
    x: float = 0.0

    @property
    def name(self) -> str:
        return " · ".join(self.row.rooms) if self.row else ""

    @property
    def width(self) -> float:
        if self.row is None:
            return 0.0
        return max(WIDE * len(self.name), NARROW * len(self.row.leaves)) + PADDING

    @property
    def top(self) -> float:
        return MARGIN + self.level * (HEIGHT + GAP_ABOVE)


def placed(rows: list[Row], graph: Graph) -> list[Place]:
    """Boxes and bends with their positions: each level is ordered by what lies above, and centred."""
    level = levels(graph)
    boxes = [Place(level[number], [], row) for number, row in enumerate(rows)]
    places = list(boxes)
    for number, above in graph.items():
        for one in sorted(above):
            end = boxes[one]
            for bend in range(level[one] + 1, level[number]):
                end = Place(bend, [end])
                places.append(end)
            boxes[number].above.append(end)
    by_level = defaultdict(list)
    for place in places:
        by_level[place.level].append(place)
    for _, line in sorted(by_level.items()):
        line.sort(key=lambda place: sum(each.x for each in place.above) / max(len(place.above), 1))
        x = -(sum(place.width for place in line) + GAP_BESIDE * (len(line) - 1)) / 2
        for place in line:
            place.x = x + place.width / 2
            x += place.width + GAP_BESIDE
    return places


def arrow(start: Place, end: Place) -> str:
    """The line from the lower edge of one place to the upper edge of another; a tip where it meets a box."""
    y0, y1 = start.top + HEIGHT, end.top - (6 if end.row else 0)
    middle = (y0 + y1) / 2
    line = f"M{start.x:.1f} {y0}C{start.x:.1f} {middle:.1f} {end.x:.1f} {middle:.1f} {end.x:.1f} {y1}"
    through = "" if end.row else f"V{end.top + HEIGHT}"
    tip = f'<path class="tip" d="M{end.x - 4:.1f} {y1}h8l-4 6z"/>' if end.row else ""
    return f'<path class="arrow" d="{line}{through}"/>{tip}'


def box(place: Place) -> str:
    """The box of a row: the names of its rooms, and what leaves them."""
    assert place.row
    lines = [("name", place.name)] + [("what", place.row.leaves)] * bool(place.row.leaves)
    first = place.top + HEIGHT / 2 + 5 - 9 * (len(lines) - 1)
    texts = "".join(
        f'<text class="{kind}" x="{place.x:.1f}" y="{first + 18 * line:.1f}">{escape(text)}</text>'
        for line, (kind, text) in enumerate(lines)
    )
    left, width = place.x - place.width / 2, place.width
    return f'<rect class="room" x="{left:.1f}" y="{place.top}" width="{width:.1f}" height="{HEIGHT}" rx="8"/>{texts}'


def picture() -> str:
    """The SVG file."""
    rows = table(PAGE.read_text())
    places = placed(rows, reduced(imports(rows)))
    left = min(place.x - place.width / 2 for place in places) - MARGIN
    width = max(place.x + place.width / 2 for place in places) + MARGIN - left
    height = max(place.top for place in places) + HEIGHT + MARGIN
    frame = f"{left:.1f} 0 {width:.1f} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{frame}" font-family="system-ui, sans-serif" font-size="14"'
        ' text-anchor="middle" role="img" aria-label="The rooms of sbil; an arrow leads to a room that imports">',
        f"  <style>{STYLE}\n  </style>",
        f'  <rect class="paper" x="{left:.1f}" width="{width:.1f}" height="{height}"/>',
        *(f"  {arrow(above, place)}" for place in places for above in place.above),
        *(f"  {box(place)}" for place in places if place.row),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    write_text(PICTURE, picture())
