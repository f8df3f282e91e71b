"""Regular expressions from strangers, matched in linear time.

Kafka matches them with RE2; Python's own engine can take exponential time, with every other thread waiting. So only
its parser is used, and what it found is run as a finite automaton: a set of places in the expression, moved on by
each character, the moves remembered. What no automaton can do (back references, looking around) is refused, as RE2
does, and so is an expression that would cost too much.
"""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

PROGRAM_SIZE_MAX: Final = 1_000
STEPS_MAX: Final = 200_000
_MOVES_MAX: Final = 10_000
_MATCH: Final = -1


class _Place(NamedTuple):
    """What may be read here (None: nothing has to be), and the places after it."""

    accepts: tuple[Any, Any, int] | None
    after: tuple[int, ...]
    only_at: str = ""
    """`start` or `end`, for what holds there alone."""


class LinearRegex:
    """Raises ValueError if it is not an expression, or not one that is served."""

    def __init__(self, expression: str) -> None:
        try:
            tree = _parser.parse(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{expression!r} is not a regular expression: {error}") from error
        self._places: list[_Place] = []
        self._steps = 0
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        try:
            first = self._sequence(list(tree), _MATCH, tree.state.flags)
        except RecursionError as error:
            raise ValueError("The regular expression is too deep.") from error
        self._first = self._closure([first], at_start=True)

    def matches(self, text: str) -> bool:
        """The whole of it. Raises ValueError when all that was asked so far has cost too much."""
        places = self._first
        for character in text:
            move = (places, character)
            known = self._moves.get(move)
            if known is None:
                known = self._move(places, character)
                if len(self._moves) >= _MOVES_MAX:
                    self._moves.clear()
                self._moves[move] = known
            places = known
            if not places:
                return False
        return _MATCH in self._closure(sorted(places), at_start=not text, at_end=True)

    # ---- compiling, from the end to the start: a place knows what comes after it

    def _place(self, place: _Place) -> int:
        if len(self._places) >= PROGRAM_SIZE_MAX:
            raise ValueError("The regular expression is too large.")
        self._places.append(place)
        return len(self._places) - 1

    def _sequence(self, nodes: list[Any], after: int, flags: int) -> int:
        for node in reversed(nodes):
            after = self._node(node, after, flags)
        return after

    def _node(self, node: tuple[Any, Any], after: int, flags: int) -> int:
        kind, value = node
        if kind in (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            return self._place(_Place((kind, value, flags), (after,)))
        if kind is _constants.BRANCH:
            return self._place(
                _Place(None, tuple(self._sequence(list(one), after, flags) for one in value[1]))
            )
        if kind is _constants.SUBPATTERN:
            _, added, removed, inner = value
            return self._sequence(list(inner), after, (flags | added) & ~removed)
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(least, most, list(inner), after, flags)
        if kind is _constants.AT and value in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
            return self._place(_Place(None, (after,), "start"))
        if kind is _constants.AT and value in (_constants.AT_END, _constants.AT_END_STRING):
            return self._place(_Place(None, (after,), "end"))
        raise ValueError(f"Regular expressions with {str(kind).lower()} are not served.")

    def _repeat(self, least: int, most: Any, nodes: list[Any], after: int, flags: int) -> int:
        if most is _constants.MAXREPEAT:
            loop = self._place(_Place(None, ()))
            self._places[loop] = _Place(None, (self._sequence(nodes, loop, flags), after))
            after = loop
        else:
            end = after
            for _ in range(min(most - least, PROGRAM_SIZE_MAX)):
                after = self._place(_Place(None, (self._sequence(nodes, after, flags), end)))
        for _ in range(min(least, PROGRAM_SIZE_MAX + 1)):
            after = self._sequence(nodes, after, flags)
        return after

    # ---- running

    def _move(self, places: frozenset[int], character: str) -> frozenset[int]:
        self._spend(len(places))
        reached: list[int] = []
        for at in sorted(places):
            if at != _MATCH:
                place = self._places[at]
                if place.accepts is not None and _accepts(*place.accepts, character):
                    reached.extend(place.after)
        return self._closure(reached)

    def _closure(self, at: list[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """The places that are reached without reading. Those that hold only at the end wait until it has come."""
        found: set[int] = set()
        while at:
            self._spend(1)
            one = at.pop()
            if one in found:
                continue
            found.add(one)
            if one == _MATCH or self._places[one].accepts is not None:
                continue
            only_at = self._places[one].only_at
            if (only_at != "start" or at_start) and (only_at != "end" or at_end):
                at.extend(self._places[one].after)
        return frozenset(found)

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise ValueError("The regular expression costs too much.")


def _accepts(kind: Any, value: Any, flags: int, character: str) -> bool:
    if kind is _constants.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    spellings = [character]
    if flags & re.IGNORECASE:
        spellings += [character.lower()[0], character.upper()[0]]
    if kind is _constants.LITERAL:
        return any(ord(one) == value for one in spellings)
    if kind is _constants.NOT_LITERAL:
        return all(ord(one) != value for one in spellings)
    negated = bool(value) and value[0][0] is _constants.NEGATE
    return any(_is_in(value[negated:], one) for one in spellings) is not negated


def _is_in(members: list[tuple[Any, Any]], character: str) -> bool:
    for kind, value in members:
        if kind is _constants.LITERAL:
            found = ord(character) == value
        elif kind is _constants.RANGE:
            found = value[0] <= ord(character) <= value[1]
        else:
            found = _is_of(value, character)
        if found:
            return True
    return False


def _is_of(category: Any, character: str) -> bool:
    """The classes are those of ASCII, as RE2 has them."""
    is_ascii = character.isascii()
    if category in (_constants.CATEGORY_DIGIT, _constants.CATEGORY_NOT_DIGIT):
        found = is_ascii and character.isdigit()
    elif category in (_constants.CATEGORY_SPACE, _constants.CATEGORY_NOT_SPACE):
        found = character in " \t\n\r\f"
    else:
        found = is_ascii and (character.isalnum() or character == "_")
    return found is not str(category).startswith("CATEGORY_NOT")
