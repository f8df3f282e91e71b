"""Settings for TLS and SASL of a pipeline: for its own brokers only, and in no fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.pipeline import Pipeline, examine
from flintmq.pipeline.security import connection_options, pipeline_security
from flintmq.pipeline.spec.changes import fingerprints
from flintmq.pipeline.spec.model import TopicSink, TopicSource

TEXT = """
name: p
bootstrap_servers: a:1
security:
  security.protocol: SASL_SSL
  sasl.mechanism: PLAIN
  sasl.username: alice
  sasl.password: ${env:PASSWORD_OF_ALICE}
sources:
  own: {topic: t}
  other: {topic: t, bootstrap_servers: "b:1"}
  with_options:
    topic: t
    options:
      kafka.security.protocol: SSL
      kafka.ssl.keystore.key: ${file:/key}
      kafka.ssl.keystore.certificate.chain: c
sinks:
  out:
    from: own
    topic: o
    options:
      kafka.security.protocol: SASL_SSL
      kafka.sasl.mechanism: PLAIN
      kafka.sasl.jaas.config: x required username="u" password="hunter2";
"""


def _load(tmp_path: Path, text: str) -> Pipeline:
    (tmp_path / "p.yaml").write_text(text)
    found = examine(str(tmp_path / "p.yaml"))
    assert found.pipeline is not None, found.problems
    assert found.is_valid, found.problems
    return found.pipeline


def test_settings_go_to_the_pipeline_s_brokers_only(tmp_path: Path) -> None:
    pipeline = _load(tmp_path, TEXT)
    own, other, with_options = (
        connection_options(pipeline, source)
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
    )
    assert own["kafka.sasl.password"] == "${env:PASSWORD_OF_ALICE}"
    assert other == {"kafka.bootstrap.servers": "b:1"}
    assert with_options == {"kafka.bootstrap.servers": "a:1"}
    assert pipeline_security(pipeline).username == "alice"
    sink = pipeline.sinks["out"]
    assert isinstance(sink, TopicSink)
    assert connection_options(pipeline, sink) == {"kafka.bootstrap.servers": "a:1"}


def test_no_secret_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    kept = json.dumps(fingerprints(_load(tmp_path, TEXT)))
    assert "hunter2" not in kept
    assert "/key" not in kept
    assert "kafka.security.protocol" in kept


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sasl.username: alice", "sasl.usernam: alice", "there is no setting sasl.usernam"),
        ("sasl.mechanism: PLAIN\n", "sasl.mechanism: GSSAPI\n", "sasl.mechanism=GSSAPI is not available"),
    ],
)
def test_wrong_settings_are_problems_of_the_file(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "p.yaml").write_text(TEXT.replace(old, new, 1))
    problems = examine(str(tmp_path / "p.yaml")).problems
    assert any(words in problem.message for problem in problems), problems
