"""Keys made for a test, to sign bundles with."""

from __future__ import annotations

from pathlib import Path

BROUGHT = "the extra `dev` brings it"


def key_pair(stem: Path, curve: str = "SECP256R1", password: bytes | None = None) -> None:
    """`STEM.pem` and `STEM.pub`, on an elliptic curve."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(getattr(ec, curve)())
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    stem.with_suffix(".pem").write_bytes(key.private_bytes(pem, pkcs8, hidden))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    stem.with_suffix(".pub").write_bytes(public)


def rsa_key() -> bytes:
    """A private key that is on no curve."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return rsa.generate_private_key(65537, 2048).private_bytes(pem, pkcs8, serialization.NoEncryption())
