"""Write the table of rights in `docs/security.md` from `broker/required_rights.py`.

scripts/make_security_doc.py            writes the table between its two marks
scripts/make_security_doc.py --check    exits with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from flintmq.broker.apis import APIS, Api
from flintmq.broker.required_rights import RequiredRight
from flintmq.security.authorization.words import operation_word

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "security.md"
BEGIN = "<!-- rights: written by scripts/make_security_doc.py -->\n"
END = "<!-- rights: end -->\n"
HEAD = "| API | operation | resource | in which case | without it |\n|---|---|---|---|---|\n"


def rows(api: Api) -> str:
    if not api.rights:
        return f"| {api.name} | none |  |  |  |\n"
    return "".join(f"| {api.name} | {_row(right)} |\n" for right in api.rights)


def _row(right: RequiredRight) -> str:
    cases = [right.when] if right.when else []
    if right.versions is not None:
        lowest, highest = right.versions
        cases.append(f"version {lowest}" if lowest == highest else f"versions {lowest}–{highest}")
    either = " or ".join(_right(one) for one in right.alternatives)
    if either:
        cases.append(f"or instead {either}")
    outcome = "left out of the response" if right.is_hidden else f"`{right.error_code.name}`"
    return f"{operation_word(right.operation)} | {_resource(right)} | {'; '.join(cases)} | {outcome}"


def _right(right: RequiredRight) -> str:
    case = f" ({right.when})" if right.when else ""
    return f"{operation_word(right.operation)} on {_resource(right)}{case}"


def _resource(right: RequiredRight) -> str:
    return right.resource.name.lower().replace("_", " ")


def table() -> str:
    return HEAD + "".join(rows(api) for api in APIS)


def document(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    text = DOCUMENT.read_text()
    new = document(text)
    if "--check" in sys.argv:
        return 0 if text == new else 1
    DOCUMENT.write_text(new)
    print(f"wrote {DOCUMENT}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
