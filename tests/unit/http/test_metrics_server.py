"""Metrics of programs that are not brokers."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from flintmq.errors import ConfigurationError
from flintmq.http.metrics_server import MetricsServer
from flintmq.http.server import PortTaken
from flintmq.metrics import CONTENT_TYPE

TEXT = "flintmq_lake_conflicts_total 1\n"


def text() -> str:
    return TEXT


@pytest.mark.parametrize("path", ["/metrics", "/prometheus", "/metrics?name=x"])
def test_metrics_are_served_until_the_end_of_the_block(path: str) -> None:
    with MetricsServer(text, port=0) as server:
        url = f"http://127.0.0.1:{server.port}{path}"
        for _ in range(2):
            with urllib.request.urlopen(url, timeout=10) as response:
                assert response.headers["Content-Type"] == CONTENT_TYPE
                assert response.read().decode() == TEXT
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=10)


def test_there_is_no_other_page() -> None:
    with MetricsServer(text, port=0) as server, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/else", timeout=10)
    assert refused.value.code == 404


def test_metrics_that_cannot_be_made_are_an_error_of_that_request_only() -> None:
    texts = iter([None, TEXT])

    def sometimes() -> str:
        found = next(texts)
        if found is None:
            raise RuntimeError("a bug")
        return found

    with MetricsServer(sometimes, port=0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(url, timeout=10)
        assert failed.value.code == 500
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.read().decode() == TEXT


def test_a_port_that_is_taken_names_the_option() -> None:
    with (
        MetricsServer(text, port=0) as server,
        pytest.raises(PortTaken, match=r"--metrics-port.*Choose another port, or 0"),
        MetricsServer(text, port=server.port),
    ):
        pass


def test_an_address_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match="Cannot listen"),
        MetricsServer(text, port=0, host="192.0.2.1"),
    ):
        pass
