"""Names of certificates and mapping rules, compared with Java and Kafka themselves."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from flintmq.security.certificate import read_certificate
from flintmq.security.principal_mapping import PrincipalMapping
from support.clients.java_program import compile_java, java_command
from support.tls.certificates import authority

SEED = 20260
TYPES = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS,
    NameOID.TITLE,
)
LETTERS = "abcXYZ 019 ,=+<>#;\"\\/:@*.-_'()"
WIDE = "äß東京é"
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*)$/$1@$2/L,DEFAULT",
    "RULE:^.*CN=([^,]*).*$/$1/U",
    "RULE:.*/x/",
    "RULE:(.*)/$1-$2-$10/",
    r"RULE:^(.)(.*)$/\$$2\/$1/",
    "RULE:^(?<first>.)(.*)$/${first}$2/ , DEFAULT",
    "RULE:CN=a.*/literal/,RULE:^(CN|O)=(.*)$/$2/L",
    "  RULE:^CN=(.*)$/user-$1/ ,, DEFAULT ",
)


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def names(rng: random.Random, count: int) -> list[x509.Name]:
    found = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(TYPES)
            is_ascii = kind in (NameOID.EMAIL_ADDRESS, NameOID.DOMAIN_COMPONENT)
            letters = LETTERS if is_ascii else LETTERS + WIDE
            parts.append(x509.NameAttribute(kind, "".join(rng.choices(letters, k=rng.randint(1, 12)))))
        found.append(x509.Name(parts))
    return found


def test_names_and_rules_are_read_as_java_and_kafka_read_them(tmp_path: Path) -> None:
    compile_java(tmp_path, ["PrincipalNames"], jars=["kafka-clients"])
    rng = random.Random(SEED)
    certificates = [
        authority().issue(name).certificate.public_bytes(Encoding.DER) for name in names(rng, 200)
    ]
    ours: list[str | None] = [read_certificate(der).subject for der in certificates]
    questions = [f"name {encoded(der)}" for der in certificates]
    for rules in RULES:
        mapping = PrincipalMapping(rules)
        for name in [subject for subject in ours[:40] if subject is not None]:
            questions.append(f"map {encoded(rules)} {encoded(name)}")
            ours.append(mapping.name_of(name))
    (tmp_path / "questions").write_text("\n".join(questions))
    command = java_command("PrincipalNames", [str(tmp_path / "questions")], tmp_path, jars=["kafka-clients"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    theirs = [
        None if line == "-" else base64.b64decode(line[1:]).decode() for line in done.stdout.splitlines()
    ]
    assert theirs == ours, f"seed {SEED}"
