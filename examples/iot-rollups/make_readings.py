"""Readings of devices, one JSON object a line: an hour of them, or what comes after it with some far too late.

python make_readings.py [--devices 10] [--minutes 60] [--later] [--seed 1] | flintmq produce readings
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from datetime import UTC, datetime, timedelta
from random import Random

BEGIN = datetime(2026, 1, 15, 12, tzinfo=UTC)
Reading = dict[str, str | float]


def readings(devices: int, minutes: int, seed: int, *, begin: datetime = BEGIN) -> list[Reading]:
    """Four a minute of each device, in the order in which they arrive: up to a minute late."""
    random = Random(seed)
    arriving: list[tuple[datetime, Reading]] = []
    for number in range(devices):
        for at_s in range(0, minutes * 60, 15):
            at = begin + timedelta(seconds=at_s)
            celsius = 20 + number + 5 * math.sin(at_s / 600) + random.gauss(0, 0.3)
            if random.random() < 0.005:
                celsius = 999.9  # a broken sensor: goes to readings.dead
            reading: Reading = {
                "device": f"device-{number}",
                "celsius": round(celsius, 2),
                "at": at.isoformat(),
            }
            arriving.append((at + timedelta(seconds=random.uniform(0, 60)), reading))
    return [reading for _, reading in sorted(arriving, key=lambda one: one[0])]


def later(devices: int, minutes: int, seed: int) -> list[Reading]:
    """The next minutes, and one reading of each device from long ago: too late for its window."""
    after = BEGIN + timedelta(minutes=minutes)
    lost: list[Reading] = [
        {"device": f"device-{number}", "celsius": 0.0, "at": BEGIN.isoformat()} for number in range(devices)
    ]
    return lost + readings(devices, minutes, seed + 1, begin=after)


def main() -> None:
    parser = argparse.ArgumentParser(description="Readings, one JSON object a line.")
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--later", action="store_true", help="what comes after, with some far too late")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    make = later if options.later else readings
    made = make(options.devices, options.minutes, options.seed)
    sys.stdout.write("".join(json.dumps(one) + "\n" for one in made))


if __name__ == "__main__":
    main()
