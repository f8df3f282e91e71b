"""The kinds of object stores: how each is addressed, which settings it has, and how pyiceberg names them.

A setting has one name here, and serves the store itself, deltalake and pyiceberg. Names are those of the provider's
own variables, without their prefix (`AWS_REGION` is `region`); prefixes and a few other spellings are taken too.
This module must not know tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

_GIB: Final = 1024**3
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    scheme: str
    """Of URLs as they are kept."""
    schemes: tuple[str, ...]
    """All that are taken."""
    open: Callable[..., ObjectStore]
    variables: str
    """How the provider's variables begin, for people."""
    prefixes: tuple[str, ...]
    """What may stand before a setting's name."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Other names of settings."""
    from_environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Settings that workers elsewhere cannot know, and the variables that may hold them. No credentials."""
    iceberg_names: Mapping[str, str] = field(default_factory=dict)
    iceberg_scheme: str
    iceberg_properties: Callable[[Mapping[str, str]], dict[str, str]] = lambda settings: {}
    """What pyiceberg needs beside `iceberg_names`."""
    upload_bytes_max: int = 5 * _GIB
    """What the store takes in one put; only such a put can be conditional."""

    def resolved(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings by their names here, with what the environment says of those that are not given."""
        found = {}
        for name, variables in self.from_environment.items():
            values = [value for variable in variables if (value := os.environ.get(variable))]
            if values:
                found[name] = values[0]
        for given, value in settings.items():
            name = given.lower().replace("-", "_")
            for prefix in self.prefixes:
                name = name.removeprefix(prefix)
            found[self.same.get(name, name)] = value
        if found.get("endpoint", "").startswith("http://"):
            found.setdefault("allow_http", "true")
        return found


def _azure_for_iceberg(settings: Mapping[str, str]) -> dict[str, str]:
    found = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if endpoint := settings.get("endpoint"):
        parts = urlsplit(endpoint)
        # An emulator has the account in the path; pyarrow puts it there by itself.
        for kind in ("blob", "dfs"):
            found[f"adls.{kind}-storage-authority"] = parts.netloc
            found[f"adls.{kind}-storage-scheme"] = parts.scheme
    return found


S3: Final = Provider(
    scheme="s3",
    schemes=("s3", "s3a"),
    open=S3Store,
    variables="AWS_…",
    prefixes=("aws_",),
    same={"endpoint_url": "endpoint", "endpoint_url_s3": "endpoint", "default_region": "region"},
    from_environment={
        "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "allow_http": ("AWS_ALLOW_HTTP",),
        "virtual_hosted_style_request": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
    },
    iceberg_scheme="s3",
    iceberg_names={
        "endpoint": "s3.endpoint",
        "region": "s3.region",
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
        "token": "s3.session-token",
        "virtual_hosted_style_request": "s3.force-virtual-addressing",
    },
)
GCS: Final = Provider(
    scheme="gs",
    schemes=("gs", "gcs"),
    open=GCSStore,
    variables="GOOGLE_…",
    prefixes=("google_",),
    same={"service_account_path": "service_account"},
    iceberg_scheme="gs",
    iceberg_names={"oauth2_token": "gcs.oauth2.token", "service_host": "gcs.service.host"},
)
AZURE: Final = Provider(
    scheme="az",
    schemes=("az", "azure", "abfs", "abfss"),
    open=AzureStore,
    variables="AZURE_…",
    prefixes=("azure_", "storage_"),
    same={"access_key": "account_key", "master_key": "account_key", "sas_key": "sas_token"},
    from_environment={
        "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
        "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        "use_emulator": ("AZURE_STORAGE_USE_EMULATOR",),
    },
    iceberg_scheme="abfs",
    iceberg_names={
        "account_name": "adls.account-name",
        "account_key": "adls.account-key",
        "sas_token": "adls.sas-token",
        "tenant_id": "adls.tenant-id",
        "client_id": "adls.client-id",
        "client_secret": "adls.client-secret",
    },
    iceberg_properties=_azure_for_iceberg,
    upload_bytes_max=5000 * _MIB,
)
_BY_SCHEME: Final = {scheme: one for one in (S3, GCS, AZURE) for scheme in one.schemes}


def provider_of(scheme: str) -> Provider | None:
    return _BY_SCHEME.get(scheme)


def normalized(provider: Provider, rest: str, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the URL of what stands after `://`, and the settings; an account within an address becomes a setting."""
    given: dict[str, Any] = dict(settings)
    container, slash, path = rest.rstrip("/").partition("/")
    if provider is AZURE and "@" in container:
        container, _, host = container.partition("@")
        given.setdefault("account_name", host.partition(".")[0])
    return f"{provider.scheme}://{container}{slash}{path}", given
