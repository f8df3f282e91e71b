"""Names of certificates as Java prints them, and the dates of validity."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from flintmq.security.certificate import read_certificate
from support.tls.certificates import DAY, authority, now


def subject_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    return named(x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes]))


def named(name: x509.Name) -> str:
    return read_certificate(authority().issue(name).certificate.public_bytes(Encoding.DER)).subject


def test_the_last_part_comes_first() -> None:
    assert (
        subject_of(
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.STATE_OR_PROVINCE_NAME, "Bavaria"),
            (NameOID.LOCALITY_NAME, "Munich"),
            (NameOID.ORGANIZATION_NAME, "Example"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "Orders"),
            (NameOID.COMMON_NAME, "alice"),
        )
        == "CN=alice,OU=Orders,O=Example,L=Munich,ST=Bavaria,C=DE"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('a,b+c"d\\e<f>g;h=i#j', 'a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        (" two  ", "\\ two\\ \\ "),
        ("Zoë 東京", "Zoë 東京"),
        ("a/b:c", "a/b:c"),
    ],
)
def test_characters_are_escaped_as_java_does(value: str, written: str) -> None:
    assert subject_of((NameOID.COMMON_NAME, value)) == f"CN={written}"


def test_types_without_a_keyword_are_numbers_with_an_encoded_value() -> None:
    assert subject_of((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "a")) == (
        "CN=a,1.2.840.113549.1.9.1=#1605" + b"a@b.c".hex()
    )


def test_several_attributes_in_one_part_are_joined_with_plus() -> None:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "7")]
            )
        ]
    )
    assert sorted(named(name).split("+")) == ["CN=a", "UID=7"]


def test_other_encodings_of_text_are_read() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Zoë", _type=_ASN1Type.BMPString)])
    assert named(name) == "CN=Zoë"


def test_the_dates_are_those_of_the_certificate() -> None:
    begin = now().replace(microsecond=0) - DAY
    for end in (begin + 2 * DAY, datetime.datetime(2055, 1, 1, tzinfo=datetime.UTC)):
        issued = authority().issue("a", not_before=begin, not_after=end)
        info = read_certificate(issued.certificate.public_bytes(Encoding.DER))
        assert (info.not_before, info.not_after) == (begin.timestamp(), end.timestamp())


CERTIFICATE = authority().issue("someone").certificate.public_bytes(Encoding.DER)


@given(st.binary(max_size=64))
def test_bytes_that_are_no_certificate_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_certificate(data)


@given(st.integers(0, len(CERTIFICATE) - 1), st.integers(0, 255))
def test_a_damaged_certificate_is_read_or_is_a_value_error(position: int, byte: int) -> None:
    damaged = bytearray(CERTIFICATE)
    damaged[position] = byte
    try:
        read_certificate(bytes(damaged))
    except ValueError:
        pass
