"""Secrets: known shapes wherever they stand, given values however they are written, and nothing else."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.redact import REDACTED, SHORTEST, Redactor

# Made up, in pieces, so that no scanner takes this file for a leak.
BODY = "A1b2C3d4E5f6G7h8I9j0" * 3
KEYS = [
    "sk-" + "ant-api03-" + BODY,
    "sk-" + "proj-" + BODY,
    "sk-" + BODY,
    "sk_" + "live_" + BODY,
    "ghp" + "_" + BODY[:36],
    "github" + "_pat_" + BODY,
    "glpat" + "-" + BODY[:20],
    "xox" + "b-123456789012-" + BODY[:24],
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "AIza" + BODY[:35],
    "ya29" + "." + BODY,
    "hf" + "_" + BODY[:34],
    "gsk" + "_" + BODY,
    "npm" + "_" + BODY[:36],
    "SG." + BODY[:22] + "." + BODY[:43],
    "AGE-SECRET-KEY-1" + "QWERTYUIOPASDFGHJKLZXCVBNM23456789",
    "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + BODY[:43],
    "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END " + "RSA PRIVATE KEY-----",
    "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaA",
]


@pytest.mark.parametrize("key", KEYS, ids=[key[:12].strip() for key in KEYS])
def test_known_shapes_in_texts_and_in_json(key: str) -> None:
    clean = Redactor()
    assert clean.text(f"before {key} after").startswith(f"before {REDACTED}")
    for value in (key, {"x": [f"export K={key}"]}, {key: 1}, [[{"out": f"'{key}'"}]]):
        assert key not in json.dumps(clean.value(value))
        line = clean.line(json.dumps({"message": value}).encode() + b"\n")
        assert json.dumps(key)[1:-1].encode() not in line
        assert line.endswith(b"\n")
        json.loads(line)
    inner = json.dumps({"arguments": json.dumps({"key": key})}).encode()
    assert BODY[:16].encode() not in clean.line(inner)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [redacted]"),
        ('"authorization": "Basic dXNlcjpwYXNz"', '"authorization": "Basic [redacted]"'),
        ("https://me:hunter2pass@example.org/x", "https://me:[redacted]@example.org/x"),
        ("postgres://app:s3cr3t@db:5432/x", "postgres://app:[redacted]@db:5432/x"),
        ("OPENAI_API_KEY=abcdefghijkl make", "OPENAI_API_KEY=[redacted] make"),
        ("export DB_PASSWORD='correcthorse'", "export DB_PASSWORD='[redacted]'"),
        ("api_key: abcdefghijkl", "api_key: [redacted]"),
    ],
)
def test_places_where_a_secret_stands(text: str, right: str) -> None:
    assert Redactor().text(text) == right
    assert Redactor().text(right) == right


@pytest.mark.parametrize(
    "text",
    [
        *(
            "input_tokens: 12345678",
            "the token counts of 3 calls",
            "sk-learn and scikit-learn",
            "task-force-of-nine",
        ),
        *(
            "password: $PASSWORD",
            "https://example.org:8080/a@b",
            "commit 0123456789abcdef0123456789abcdef01234567",
        ),
        *(
            "def tokenize(text): return text.split()",
            "max_tokens=128000",
            "my-desk-lamp-is-on-the-table-here",
        ),
        *(
            "the secret of this is patience",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ",
            "risk-assessment-of-2026-and-on",
        ),
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor().text(text) == text


def test_what_stands_under_a_telling_key_goes_whatever_its_shape() -> None:
    value = {
        "api_key": "x1",
        "password": "p",
        "nested": {"access_token": "t", "refresh-token": "u"},
        "tokens": "12",
    }
    clean = Redactor().value(value)
    assert clean == {
        "api_key": REDACTED,
        "password": REDACTED,
        "nested": {"access_token": REDACTED, "refresh-token": REDACTED},
        "tokens": "12",
    }
    assert Redactor().value({"input_tokens": 5, "token": None, "secret": 3}) == {
        "input_tokens": 5,
        "token": None,
        "secret": 3,
    }


secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=SHORTEST, max_size=20)


@given(secrets, st.text(max_size=10), st.booleans())
def test_given_values_go_however_json_writes_them(secret: str, around: str, ascii: bool) -> None:
    clean = Redactor([secret])
    text = f"{around}{secret}{around}"
    assert secret not in clean.text(text).replace(REDACTED, "")
    for value in (text, {"a": [text]}, {"command": json.dumps({"b": text}, ensure_ascii=ascii)}):
        line = clean.line(json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass"))
        left = json.dumps(json.loads(line), ensure_ascii=False).replace(REDACTED, "")
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in left


def test_given_values_in_base64_and_in_urls() -> None:
    secret = "correct horse/battery+staple"
    clean = Redactor([secret])
    for form in (base64.b64encode(secret.encode()).decode(), quote(secret, safe=""), quote(secret)):
        assert REDACTED in clean.text(f"x={form}")


def test_a_value_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="5 characters is too short"):
        Redactor(["abcde"])


@given(st.binary(max_size=200))
def test_a_line_that_is_no_json_stays_as_it_is(line: bytes) -> None:
    text = line.decode("utf-8", "surrogateescape")
    if Redactor().text(text) == text:
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            assert Redactor().line(line) == line


def test_a_key_without_an_end_takes_nothing_else_away() -> None:
    begin = "-----BEGIN " + "PRIVATE KEY-----"
    assert (
        Redactor().text(f"it says `{begin}` there, and then more.")
        == f"it says `{REDACTED}` there, and then more."
    )
    encrypted = (
        f"{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nMIIE\nxyz=\n-----END "
        + "PRIVATE KEY-----\nok"
    )
    assert Redactor().text(encrypted) == f"{REDACTED}\nok"
    assert "MIIE" not in Redactor().text(json.dumps(encrypted))


def test_many_lines_that_look_like_keys_are_read_in_time_that_grows_with_them() -> None:
    for piece in ("sk-", "eyJ", "a:", "-----BEGIN PRIVATE KEY-----", "token=", "://a:", "Bearer ", "_token_"):
        Redactor(["secret-value"]).text(piece * 20_000)


@pytest.mark.parametrize(
    "piece", ["eyJ-", "a-", "a.", "SG.", "-----BEGIN PRIVATE KEY-----", "token=\\", "a://"]
)
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    begun = time.perf_counter()
    Redactor().text(piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - begun < 8


def test_a_private_key_is_one_with_numbers_or_marks_before_its_lines() -> None:
    begin, end = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
    for mark in ("     {}→", "{}\t", "> ", "- ", "-", '"'):
        text = "\n".join(mark.format(n) + each for n, each in enumerate((begin, BODY, BODY, end, "after")))
        clean = Redactor().text(text)
        assert BODY not in clean, mark
        assert "after" in clean
    assert BODY not in Redactor().text(f"1→{begin}\n2→{BODY}\n3→{BODY}")


def test_what_stands_under_a_telling_name_however_it_is_written() -> None:
    secret = "hunter2" + "-Hunter2"
    inner = json.dumps({"a": json.dumps({"api_key": secret})})
    for value in (inner, json.dumps(inner), {"clientSecret": secret}, {"password": [secret]}):
        assert secret not in json.dumps(Redactor().value(value))
    assert secret not in json.dumps(Redactor().value({"access_token": {"v": [secret], "n": 1}}))
    assert secret not in Redactor().text(f"X-Api-Key: {secret}")
    assert json.loads(json.loads(Redactor().text(inner))["a"]) == {"api_key": REDACTED}
    plain = {"tokens": 5, "input_tokens": 7, "secretary": "x" * 9, "max_token": 5, "monkey": "y" * 20}
    assert Redactor().value(plain) == plain
