"""Clicks of some users over a day, one JSON object a line: bursts with pauses between them.

python make_clicks.py [--users 50] [--seed 1] | flintmq produce clicks
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

DAY = datetime(2026, 1, 15, tzinfo=UTC)
PAGES = ("/", "/search", "/product", "/basket", "/checkout")


def clicks(users: int, seed: int) -> list[dict[str, str]]:
    """By time. A user comes back a few times, and stays for a few clicks."""
    random = Random(seed)
    made = [
        {"user": f"user-{number}", "page": random.choice(PAGES), "at": at.isoformat()}
        for number in range(users)
        for at in visits(random)
    ]
    # The last click of the day is long after all others: it closes every session.
    made.append({"user": "night-watch", "page": "/", "at": (DAY + timedelta(days=2)).isoformat()})
    return sorted(made, key=lambda one: one["at"])


def visits(random: Random) -> Iterator[datetime]:
    at = DAY + timedelta(minutes=random.uniform(0, 600))
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(1, 8)):
            yield at
            at += timedelta(seconds=random.uniform(5, 900))
        at += timedelta(minutes=random.uniform(31, 180))


def main() -> None:
    parser = argparse.ArgumentParser(description="Clicks, one JSON object a line.")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lines = [json.dumps(one) for one in clicks(options.users, options.seed)]
    # One that nobody can read: it goes to clicks.dead.
    lines.insert(len(lines) // 2, '{"user": "user-1", "page": ')
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
