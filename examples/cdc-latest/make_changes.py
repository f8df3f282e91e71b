"""Changes of a table of customers, as a database's change log has them: one JSON object a line, in order.

python make_changes.py [--customers 40] [--seed 1] | flintmq produce customers.changes
"""

from __future__ import annotations

import argparse
import json
import sys
from random import Random
from typing import Any

CITIES = ("Berlin", "Lyon", "Porto", "Cork", "Malmö", "Torino")


def changes(customers: int, seed: int) -> list[dict[str, Any]]:
    """Each has a version: a later one replaces an earlier one, in whatever order they are read."""
    random = Random(seed)
    made: list[dict[str, Any]] = []
    alive: dict[int, dict[str, Any]] = {}

    def tell(op: str, row: dict[str, Any]) -> None:
        made.append({"op": op, "version": len(made) + 1, **row})

    for number in range(1, customers + 1):
        alive[number] = {"id": number, "city": random.choice(CITIES), "points": 0}
        tell("insert", alive[number])
    for _ in range(customers * 5):
        number = random.choice(list(alive))
        if random.random() < 0.03 and len(alive) > 1:
            tell("delete", alive.pop(number))
            continue
        alive[number] = {**alive[number], "points": alive[number]["points"] + random.randint(1, 50)}
        if random.random() < 0.2:
            alive[number]["city"] = random.choice(CITIES)
        tell("update", alive[number])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Changes, one JSON object a line.")
    parser.add_argument("--customers", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made = changes(options.customers, options.seed)
    sys.stdout.write("".join(json.dumps(one) + "\n" for one in made))


if __name__ == "__main__":
    main()
