"""Stores: a file is made once and whole, and whether it was made is known whatever became of the answer."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flintmq.lake.store.store import Store, StoreError, open_store
from flintmq.lake.tables.commit_log import CommitLog, new_id
from flintmq.lake.tables.factory import open_table
from flintmq.lake.tables.table import Conflict, Format, TableChange, TopicProgress
from support.lake.azure_server import AzureServer
from support.lake.data_files import SCHEMA, TOPIC, TOPIC_ID, rows_of, write_file
from support.lake.gcs_server import GcsServer
from support.lake.s3_server import BUCKET, S3Server
from support.wire.lossy_proxy import LossyProxy


def new_root() -> str:
    return f"s3://{BUCKET}/{new_id()}"


@pytest.fixture(params=["local", "s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "table"))
    scheme = {"s3": "s3", "gcs": "gs", "azure": "az"}[request.param]
    server: S3Server | GcsServer | AzureServer = request.getfixturevalue(request.param)
    return open_store(f"{scheme}://{BUCKET}/{new_id()}/deep/table", server.settings)


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.get("data/x") is None
    assert store.size("data/x") is None
    assert list(store.list("data")) == []
    store.delete(["data/x"])
    with pytest.raises(StoreError, match="data/x is not there"):
        store.open("data/x")


def test_files_are_copied_to_another_location(store: Store) -> None:
    paths = [f"data/b=c%20d/{number}" for number in range(40)]
    for path in paths:
        store.put_new(path, path.encode())
    store.put_new("left", b"left")
    target = open_store(f"{store.url}2", store.settings)
    copied: list[str] = []
    files = list(store.list("data"))
    for _ in range(2):
        store.copy_to(target.url, files, lambda one: copied.append(one.path))
    assert sorted(copied) == sorted(paths * 2)
    assert sorted(one.path for one in target.list("")) == sorted(paths)
    store.delete(paths)
    assert [target.get(path) for path in paths] == [path.encode() for path in paths]
    with pytest.raises(StoreError, match="is not there"):
        store.copy_to(target.url, files[:1])


def test_files_of_another_file_system_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path / "one"))
    store.put_new("data/x", b"x")
    link = os.link

    def refuse(source: str, target: str) -> None:
        if source == str(tmp_path / "one" / "data" / "x"):
            raise OSError(errno.EXDEV, "other file system")
        link(source, target)

    monkeypatch.setattr("os.link", refuse)
    store.copy_to(str(tmp_path / "two"), store.list("data"))
    assert (tmp_path / "two" / "data" / "x").read_bytes() == b"x"


def test_files_are_put_listed_read_and_deleted(store: Store) -> None:
    for name in ("a/1", "a/2", "a/b=c%20d/3", "z"):
        assert store.put_new(name, name.encode())
    assert sorted(entry.path for entry in store.list("a")) == ["a/1", "a/2", "a/b=c%20d/3"]
    assert sorted(entry.path for entry in store.list("a", after="a/1")) == ["a/2", "a/b=c%20d/3"]
    assert {entry.path: entry.size for entry in store.list("")}["a/b=c%20d/3"] == 11
    assert store.get("a/b=c%20d/3") == b"a/b=c%20d/3"
    with store.open("a/b=c%20d/3") as file:
        file.seek(2)
        assert file.read(3) == b"b=c"
        assert file.size() == 11
    store.delete(["a/1", "nowhere"])
    assert store.get("a/1") is None
    assert store.get("a/2") == b"a/2"


def test_a_file_is_never_changed(store: Store) -> None:
    assert store.put_new("log/1", b"mine")
    assert not store.put_new("log/1", b"other")
    assert store.put_new("log/1", b"mine"), "one's own is known again"
    with store.draft() as draft:
        draft.write(b"a draft")
        assert not store.publish(draft, "log/1")
    assert store.get("log/1") == b"mine"


def test_a_file_that_may_change_does(store: Store) -> None:
    store.put("_last", b"1")
    store.put("_last", b"2")
    assert store.get("_last") == b"2"


def test_a_draft_is_seen_under_its_name_only_when_it_is_whole(store: Store) -> None:
    with store.draft() as draft:
        draft.write(b"x" * 300_000)
        assert list(store.list("")) == []
        assert store.publish(draft, "data/whole")
    assert store.size("data/whole") == 300_000
    with store.draft() as draft:
        draft.write(b"nobody wants it")
    assert [entry.path for entry in store.list("")] == ["data/whole"]
    assert store.abandoned_drafts() == []


def test_a_store_goes_to_workers(store: Store) -> None:
    copy = pickle.loads(pickle.dumps(store))
    assert copy.put_new("x", b"1")
    assert store.get("x") == b"1"


def test_credentials_of_the_environment_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of mine")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_store("s3://bucket/table")
    assert store.settings == {"endpoint": "http://127.0.0.1:1", "allow_http": "true"}
    assert b"secret of mine" not in pickle.dumps(store)


def test_of_many_that_put_at_once_one_is_told_that_it_did(store: Store) -> None:
    log, barrier = CommitLog(store, "log"), threading.Barrier(4)
    won, lost = [], []

    def put(number: int) -> None:
        barrier.wait(30)
        try:
            log.append(0, [{"id": new_id(), "number": number}])
            won.append(number)
        except Conflict:
            lost.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 3)
    assert log.read(0)[0]["number"] == won[0]


@pytest.mark.parametrize(
    ("what", "times"),
    [("answer", 1), ("request", 1), ("answer", 9), pytest.param("request", 7, marks=pytest.mark.long)],
)
def test_a_commit_whose_answer_is_lost_is_done_once(s3: S3Server, what: str, times: int) -> None:
    url = f"{new_root()}/table"
    with LossyProxy(s3) as proxy:
        store = open_store(url, proxy.settings)
        log = CommitLog(store, "log")
        proxy.lose(what, of_put="/log/", times=times)
        log.append(0, [{"id": new_id(), "by": "me"}])
        assert len(proxy.puts) > 1, "the fault came to pass"
    assert open_store(url, s3.settings).get(log.path(0)) is not None
    of_another = CommitLog(open_store(url, s3.settings), "log")
    with pytest.raises(Conflict):
        of_another.append(0, [{"id": new_id(), "by": "another"}])


def test_a_lost_answer_to_anothers_commit_is_a_conflict(s3: S3Server) -> None:
    url = f"{new_root()}/table"
    CommitLog(open_store(url, s3.settings), "log").append(0, [{"id": new_id(), "by": "another"}])
    with LossyProxy(s3) as proxy:
        proxy.lose("answer", of_put="/log/")
        with pytest.raises(Conflict):
            CommitLog(open_store(url, proxy.settings), "log").append(0, [{"id": new_id(), "by": "me"}])


@pytest.mark.parametrize("format", [Format.PARQUET, pytest.param(Format.DELTA, marks=pytest.mark.long)])
def test_a_table_commits_through_a_store_that_loses_answers(s3: S3Server, format: Format) -> None:
    root = f"{new_root()}/lake"
    with LossyProxy(s3) as proxy:
        table = open_table(root, TOPIC, format, settings=proxy.settings)
        store = open_store(table.location, proxy.settings)
        state = table.create(SCHEMA)
        for start in (0, 10, 20):
            proxy.lose("answer", of_put="/data/")
            added = write_file(
                store, state.schema, rows_of(range(start, start + 10)), start=start, end=start + 10
            )
            proxy.lose("answer", of_put="_log/" if format is Format.DELTA else "/log/")
            progress = {TOPIC: TopicProgress(TOPIC_ID, {0: start + 10})}
            state = table.commit(TableChange(base=state, added=[added], progress=progress))
        assert sum(one.rows for one in table.files(state)) == 30
        assert state.progress[TOPIC].next_offsets == {0: 30}


def test_a_store_that_does_not_answer_is_an_error_that_says_so(s3: S3Server) -> None:
    with LossyProxy(s3) as proxy:
        store = open_store(f"{new_root()}/table", {**proxy.settings, "timeout": "2s"})
        proxy.lose("request", of_put="/log/", times=100)
        with pytest.raises(StoreError, match="not known whether it was written"):
            store.put_new("log/0", b"mine")


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store("s3://bucket/table", {"nonsense": "1"}).get("x")
    with pytest.raises(StoreError, match="ftp"):
        open_store("ftp://host/table")


def test_a_bucket_that_does_not_exist_is_named(s3: S3Server) -> None:
    with pytest.raises(StoreError, match=r"Does no-such-bucket exist\?.*--store"):
        list(open_store("s3://no-such-bucket/table", s3.settings).list("x"))


def test_drafts_of_the_dead_are_found_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from flintmq.lake.store.store import open_store\n"
        "with open_store(sys.argv[1]).draft() as draft:\n"
        "    draft.write(b'half a file')\n"
        "    draft.flush()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    store = open_store(str(tmp_path))
    with store.draft() as draft:
        (abandoned,) = store.abandoned_drafts()
        assert not os.path.samefile(draft.name, tmp_path / abandoned)
    store.delete([abandoned])
    assert store.abandoned_drafts() == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StoreError, match="File too large"):
            store.put_new("log/0", b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(store.list("")) == []
    assert store.abandoned_drafts() == []
    assert store.put_new("log/0", b"x" * 10_000)


def test_a_directory_that_cannot_be_created_is_an_error_that_names_the_option() -> None:
    with pytest.raises(StoreError, match=r"/proc/lake.*cannot be created.*--to"):
        open_store("/proc/lake").put_new("x", b"")
