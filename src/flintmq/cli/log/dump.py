"""`flintmq dump-log`: what is in the files of a log, and whether it is sound."""

from __future__ import annotations

import json
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES, CommandFailure, Exit
from flintmq.cli.common.output import many, size, time_of
from flintmq.cli.common.record_printer import headers_text, json_bytes, json_headers
from flintmq.cli.log.files import DumpedBatch, FileKind, FileReport, codec_name, files_in, inspect, kind_of
from flintmq.errors import RequestError
from flintmq.records.record import Record


@click.command(
    "dump-log",
    cls=Command,
    examples=(
        "flintmq dump-log flintmq-data",
        "flintmq dump-log flintmq-data/orders-0 --batches",
        "flintmq dump-log flintmq-data/orders-0/00000000000000000000.log --records --json",
    ),
    exit_codes={**LOCAL_CODES, Exit.FAILED: "something is damaged, or cannot be read"},
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--batches", is_flag=True, help="Show every batch, and every entry of the other files.")
@click.option("--records", is_flag=True, help="Show every record too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object for each line.")
def command(paths: tuple[str, ...], batches: bool, records: bool, as_json: bool) -> None:
    """Show and check the files of a log, without a broker.

    A PATH is a segment, an index, a snapshot, a checkpoint, a partition's folder, or the whole data folder.
    Every CRC is checked, every record is read, indexes are held against their segments. Nothing is changed.
    A broker may run meanwhile: what it is writing at the moment can look unfinished.
    """
    dump = _Dump(as_json, show_batches=batches or records, show_records=records)
    for path in paths:
        found = files_in(path)
        for file in found:
            kind = kind_of(file)
            if kind is None:
                raise CommandFailure(f"{file} has not the name of any file of a log")
            try:
                dump.file(file, kind)
            except OSError as error:
                raise CommandFailure(f"{file} cannot be read: {error.strerror}") from None
        if not found:
            raise CommandFailure(f"{path} holds no files of a log")
    dump.end()
    if dump.damaged:
        raise SystemExit(Exit.FAILED)


class _Dump:
    def __init__(self, as_json: bool, *, show_batches: bool, show_records: bool) -> None:
        self.damaged = 0
        self._files = 0
        self._as_json = as_json
        self._show_batches = show_batches
        self._show_records = show_records

    def file(self, path: str, kind: FileKind) -> None:
        if self._show_batches and not self._as_json:
            click.secho(path, bold=True)
        report = inspect(path, kind, lambda batch: self._batch(path, batch))
        self._files += 1
        self.damaged += bool(report.damage)
        if self._as_json:
            fields: dict[str, Any] = {"type": "file", "file": path, "kind": kind.value, **report.facts}
            if self._show_batches:
                fields["entries"] = report.entries
            _line({**fields, "damage": report.damage})
            return
        if self._show_batches:
            for entry in report.entries:
                click.echo("  " + "  ".join(f"{name} {value}" for name, value in entry.items()))
        click.echo(f"{path}: {_summary(report)}")
        for words in report.damage:
            click.secho(f"  DAMAGED {words}", fg="red")

    def end(self) -> None:
        if not self._as_json:
            verdict = f"{self.damaged} damaged" if self.damaged else "all sound"
            click.secho(f"{many(self._files, 'file')}, {verdict}.", fg="red" if self.damaged else "green")

    def _batch(self, path: str, batch: DumpedBatch) -> None:
        if not self._show_batches:
            return
        fields = _batch_fields(batch)
        if self._as_json:
            _line({"type": "batch", "file": path, **fields})
        else:
            click.echo("  " + "  ".join(f"{name} {_shown(value)}" for name, value in fields.items()))
        if self._show_records and batch.crc_right:
            try:
                records = batch.records()
            except RequestError:
                return  # the report on the file says so
            for record in records:
                self._record(path, record)

    def _record(self, path: str, record: Record) -> None:
        if self._as_json:
            fields = {"offset": record.offset, "timestamp": record.timestamp}
            content = {**json_bytes("key", record.key), **json_bytes("value", record.value)}
            headers = json_headers(record.headers)
            _line({"type": "record", "file": path, **fields, **content, "headers": headers})
            return
        parts = [f"offset {record.offset}", time_of(record.timestamp)]
        parts += [f"key {_text(record.key)}", f"value {_text(record.value)}"]
        if record.headers:
            parts.append(f"headers {_text(headers_text(record.headers))}")
        click.echo("    " + "  ".join(parts))


def _batch_fields(batch: DumpedBatch) -> dict[str, Any]:
    header = batch.header
    fields: dict[str, Any] = {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": codec_name(header.codec),
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "crc": "right" if batch.crc_right else "WRONG",
    }
    if header.producer_id >= 0:
        fields |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
    if header.is_transactional or header.is_control:
        fields |= {"transactional": header.is_transactional, "control": header.is_control}
    return fields


def _summary(report: FileReport) -> str:
    facts = report.facts
    if report.kind is not FileKind.SEGMENT:
        entries = "1 entry" if len(report.entries) == 1 else f"{len(report.entries):,} entries"
        return f"{report.kind.value}, {entries}"
    words = f"segment, {many(facts['batches'], 'batch').replace('batchs', 'batches')}, "
    words += f"{many(facts['records'], 'record')}, {size(facts['bytes'])}"
    if facts["last_offset"] is not None:
        words += f", offsets {facts['first_offset']} to {facts['last_offset']}"
        words += f", until {time_of(facts['max_timestamp'])}, {'/'.join(facts['codecs'])}"
    return words


def _line(fields: dict[str, Any]) -> None:
    click.echo(json.dumps(fields, ensure_ascii=True))


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    try:
        return json.dumps(content.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return "0x" + content.hex()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
