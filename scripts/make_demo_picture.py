"""Make docs/demo.svg: a picture of the demo's terminal, from a real run.

.venv/bin/python scripts/make_demo_picture.py [--seconds 60]
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console

from flintmq.demo.conductor import conduct
from flintmq.demo.metrics import DemoMetrics
from flintmq.demo.view import Scene, screen

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
WIDTH, HEIGHT = 104, 34


class Photograph:
    """Shows nothing, and keeps the last screen on which the shop was open and results were there."""

    def __init__(self) -> None:
        self.svg = ""

    def __enter__(self) -> Photograph:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def update(self, metrics: DemoMetrics, scene: Scene) -> None:
        if metrics.windows and metrics.dead and metrics.bought and scene.passed_s < scene.seconds:
            self.svg = drawn(metrics, scene)

    def tell(self, lines: list[str]) -> None:
        print("\n".join(lines))


def drawn(metrics: DemoMetrics, scene: Scene) -> str:
    # Where the folder was is of no interest, and another one each time.
    scene = Scene(scene.passed_s, scene.seconds, "127.0.0.1:9092", scene.file, "demo.yaml")
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=WIDTH, height=HEIGHT)
    console.print(screen(metrics, scene, width=WIDTH, height=HEIGHT), height=HEIGHT)
    svg = console.export_svg(title="./flint demo", unique_id="demo")
    # Whatever font of fixed width there is: a picture must not fetch one.
    return re.sub(r"\s*(@font-face \{.*?\}|<!--.*?-->)", "", svg, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    photograph = Photograph()
    conduct(seconds=parser.parse_args().seconds, rate=500, keep=None, seed=1, show=photograph)
    if not photograph.svg:
        raise SystemExit("there were no results while the shop was open: give it more --seconds")
    PICTURE.write_text(photograph.svg)


if __name__ == "__main__":
    main()
