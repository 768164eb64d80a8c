"""A signature of a bundle, made and checked by `model-signing` with a key on an elliptic curve, without any network.

`model.sig` is a Sigstore bundle in the library's own format: an in-toto statement with the SHA-256 of every file of the
folder, the manifest among them, itself and what git keeps for itself aside. `model_signing verify key` checks it too.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from deploynas.errors import GateError, InputError
from deploynas.export.bundle import MANIFEST, SIGNATURE, ManifestFile
from deploynas.files import parse_json

INSTALL = 'pip install "deploynas[sign]"'
MAKE_KEYS = (
    "`openssl ecparam -name prime256v1 -genkey -noout -out key.pem` makes one, `openssl ec -in key.pem -pubout` the "
    "public one to it"
)


@dataclass(frozen=True)
class VerifiedBundle:
    """A signature that holds: whose, and of what."""

    key: str  # SHA-256 of the public key, as the signature names it
    files: int
    model: str | None  # the one to deploy, by the manifest


def is_signed(folder: Path) -> bool:
    return (folder / SIGNATURE).exists()


def require_signer(key: str | Path) -> None:
    """Fail before hours of work rather than after them: without the library, or with a key that cannot sign."""
    _signer(Path(key))


def sign_bundle(folder: Path, key: str | Path) -> None:
    """Sign what is there now; call it last."""
    signer, folder = _signer(Path(key)), folder.resolve()
    hashing = _library().hashing.Config().set_ignored_paths(paths=[folder / SIGNATURE], ignore_git_paths=True)
    try:
        signer.set_hashing_config(hashing).sign(folder, folder / SIGNATURE)
    except ValueError as error:  # of a link in the folder
        raise InputError(f"{folder.name} cannot be signed: {error}") from error


def verify_bundle(folder: Path, public_key: str | Path) -> VerifiedBundle:
    """Raise `GateError` if a bundle is not, whole and unchanged, what the holder of the key has signed."""
    verifier = _verifier(Path(public_key))
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is not a bundle: it has no {MANIFEST}")
    if not is_signed(folder):
        raise GateError(f"{folder} is not signed: it has no {SIGNATURE}", hint="`deploynas export --sign KEY` signs")
    try:
        with redirect_stdout(StringIO()):  # what it says of old formats would stand among answers
            verifier.verify(folder.resolve(), folder.resolve() / SIGNATURE)
        covered = _covered(folder)
    except Exception as error:  # its own, cryptography's, and whatever a broken file makes of parsers: all mean no
        reason = " ".join(str(error).split()) or f"it was not made with the private key to {public_key}"
        raise GateError(f"the signature of {folder} does not hold: {reason}") from error
    manifest = parse_json(folder / MANIFEST, ManifestFile)
    left_out = sorted({MANIFEST, *(file.path for file in manifest.files)} - covered)
    if left_out:  # signed by somebody who told the library to ignore them
        raise GateError(f"the signature of {folder} does not hold: it does not cover {', '.join(left_out)}")
    return VerifiedBundle(_fingerprint(Path(public_key)), len(covered), manifest.model)


def _covered(folder: Path) -> set[str]:
    """The files that a signature is of, which has been verified."""
    envelope = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    return {str(resource["name"]) for resource in statement["predicate"]["resources"]}


def _fingerprint(public_key: Path) -> str:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_public_key(public_key.read_bytes())
    written = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(*written)).hexdigest()


def _signer(key: Path) -> Any:
    return _of_key(key, lambda path: _library().signing.Config().use_elliptic_key_signer(private_key=path))


def _verifier(key: Path) -> Any:
    return _of_key(key, lambda path: _library().verifying.Config().use_elliptic_key_verifier(public_key=path))


def _of_key(key: Path, made: Callable[[Path], Any]) -> Any:
    _library()
    if not key.is_file():
        raise InputError(f"{key}: no such key file", hint=MAKE_KEYS)
    try:
        return made(key)
    except Exception as error:  # cryptography's many, for files and curves that are none
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{key} cannot be used as a key: {reason}", hint=MAKE_KEYS) from error


def _library() -> Any:
    """Late: it takes half a second, and few have it."""
    try:
        import model_signing
    except ImportError as error:
        raise InputError(f"signatures need the package model-signing ({error})", hint=INSTALL) from error
    return model_signing
