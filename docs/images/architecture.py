"""Draws ``architecture.svg``: the rooms of the code and the flow of data between them.

Run it after a change: ``python docs/images/architecture.py``.
"""

from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 980, 400
ROOM, FILE, INK, ARROW = "#dbeafe", "#fef3c7", "#1e293b", "#64748b"
FONT = "font-family='system-ui, sans-serif'"


class Box(NamedTuple):
    """A rectangle with a title and a line below it; rooms are blue, files are yellow."""

    x: int
    y: int
    width: int
    title: str
    text: str
    fill: str = ROOM
    height: int = 52

    def right(self) -> tuple[int, int]:
        """The middle of the right side."""
        return self.x + self.width, self.y + self.height // 2

    def left(self) -> tuple[int, int]:
        """The middle of the left side."""
        return self.x, self.y + self.height // 2

    def svg(self) -> str:
        """The rectangle and its text."""
        x, y = self.x + self.width // 2, self.y + 22
        kind = "monospace" if self.fill == ROOM else "system-ui, sans-serif"
        return (
            f"<rect x='{self.x}' y='{self.y}' width='{self.width}' height='{self.height}' rx='6' "
            f"fill='{self.fill}' stroke='{ARROW}'/>\n"
            f"<text x='{x}' y='{y}' text-anchor='middle' font-family='{kind}' font-size='15' "
            f"font-weight='bold' fill='{INK}'>{self.title}</text>\n"
            f"<text x='{x}' y='{y + 18}' text-anchor='middle' {FONT} font-size='11' "
            f"fill='{INK}'>{self.text}</text>\n"
        )


CLI = Box(10, 10, 960, "cli", "the partlabel command: arguments to calls, results to text")
BASE = Box(10, 338, 960, "base", "errors, files, random numbers, the terminal")
LABEL_FILES = Box(10, 100, 110, "label files", "CSV, COCO, ...", FILE)
IMAGE_FILES = Box(10, 250, 110, "image files", "JPEG, PNG, ...", FILE)
LABELS = Box(160, 100, 130, "labels", "LabelTable, formats")
IMAGES = Box(160, 250, 130, "images", "decoding, views")
LEARNING = Box(330, 100, 130, "learning", "methods, losses")
MODELS = Box(330, 250, 130, "models", "backbone, head")
TRAINING = Box(500, 175, 110, "training", "the one loop")
RUN = Box(650, 175, 90, "run", "a folder", FILE)
JUDGING = Box(780, 175, 190, "judging", "scores, completed labels")
METRICS = Box(780, 100, 190, "metrics", "figures, calibration, guarantee")
OUTPUT = Box(780, 250, 190, "output", "report, review page, export")

BOXES = [CLI, BASE, LABEL_FILES, IMAGE_FILES, LABELS, IMAGES, LEARNING, MODELS, TRAINING, RUN]
BOXES += [JUDGING, METRICS, OUTPUT]
ACROSS = [
    (LABEL_FILES, LABELS),
    (IMAGE_FILES, IMAGES),
    (LABELS, LEARNING),
    (IMAGES, MODELS),
    (LEARNING, TRAINING),
    (MODELS, TRAINING),
    (TRAINING, RUN),
    (RUN, JUDGING),
]
DOWN = [(METRICS, JUDGING), (JUDGING, OUTPUT)]


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """A line with a head at its end."""
    (x1, y1), (x2, y2) = start, end
    return (
        f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{ARROW}' stroke-width='1.5' "
        "marker-end='url(#head)'/>\n"
    )


def draw() -> str:
    """The whole picture."""
    lines = [arrow(one.right(), other.left()) for one, other in ACROSS]
    down = [arrow((one.x + 95, one.y + one.height), (one.x + 95, other.y)) for one, other in DOWN]
    down.append(arrow((MODELS.x + 65, MODELS.y), (LEARNING.x + 65, LEARNING.y + LEARNING.height)))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}'>\n"
        "<defs><marker id='head' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' "
        f"markerHeight='8' orient='auto'><path d='M0 0L8 4L0 8z' fill='{ARROW}'/></marker></defs>\n"
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='8' fill='white'/>\n"
        f"{''.join(lines + down)}{''.join(box.svg() for box in BOXES)}</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
