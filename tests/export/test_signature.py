"""Keys that cannot sign or check, signatures that are none: each is said before anything is done, and by its name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from keys import BROUGHT, key_pair, rsa_key

from deploynas.errors import GateError, InputError
from deploynas.export.bundle import MANIFEST, SIGNATURE, ManifestAbout, refresh_manifest, staged, write_manifest
from deploynas.export.signature import is_signed, require_signer, sign_bundle, verify_bundle

model_signing = pytest.importorskip("model_signing", reason=BROUGHT)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    with staged(tmp_path / "bundle") as stage:
        (stage / "sub").mkdir()
        (stage / "sub" / 'größe "x".txt').write_text("a")
        (stage / "model.onnx").write_bytes(b"model")
        write_manifest(stage, {"table": None}, ManifestAbout(), "model.onnx")
        key_pair(tmp_path / "key")
        sign_bundle(stage, tmp_path / "key.pem")
    return tmp_path / "bundle"


def test_a_signature_covers_everything_but_itself_and_names_the_folder(bundle: Path, tmp_path: Path) -> None:
    found = verify_bundle(bundle, tmp_path / "key.pub")
    assert (found.files, found.model) == (3, "model.onnx")
    signed = (bundle / SIGNATURE).read_bytes()
    assert found.key.encode() in signed
    assert str(tmp_path).encode() not in signed
    refresh_manifest(bundle)  # nothing has changed: the list does not hold the signature
    assert verify_bundle(bundle, tmp_path / "key.pub") == found


def test_a_folder_given_by_a_relative_path_is_signed_alike(bundle: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sign_bundle(Path("bundle"), "key.pem")
    assert verify_bundle(Path("bundle"), "key.pub").files == 3
    monkeypatch.chdir(bundle)
    assert verify_bundle(Path("."), "../key.pub").files == 3


def test_what_git_keeps_for_itself_may_come_and_go(bundle: Path, tmp_path: Path) -> None:
    """A hub adds `.gitattributes` to whatever is put there."""
    (bundle / ".gitattributes").write_text("*.onnx filter=lfs\n")
    assert verify_bundle(bundle, tmp_path / "key.pub").files == 3


@pytest.mark.parametrize("kind", ["missing", "text", "password", "rsa", "curve", "public", "folder"])
def test_a_key_that_cannot_sign_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    if kind == "text":
        path.write_text("no key")
    elif kind == "password":
        key_pair(tmp_path / "key", password=b"secret")
    elif kind == "rsa":
        path.write_bytes(rsa_key())
    elif kind == "curve":
        key_pair(tmp_path / "key", curve="SECP256K1")
    elif kind == "public":
        key_pair(tmp_path / "key")
        path = tmp_path / "key.pub"
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"key\.p") as refused:
        require_signer(path)
    assert "openssl ecparam" in (refused.value.hint or "")


def test_a_key_that_cannot_check_is_bad_usage_and_no_verdict(bundle: Path, tmp_path: Path) -> None:
    for name in ("key.pem", "nowhere.pub"):
        with pytest.raises(InputError, match=name):
            verify_bundle(bundle, tmp_path / name)
    with pytest.raises(InputError, match="is not a bundle"):
        verify_bundle(tmp_path, tmp_path / "key.pub")


def test_no_signature_and_anothers_are_both_no(bundle: Path, tmp_path: Path) -> None:
    key_pair(tmp_path / "other")
    with pytest.raises(GateError, match="Key mismatch"):
        verify_bundle(bundle, tmp_path / "other.pub")
    (bundle / SIGNATURE).unlink()
    assert not is_signed(bundle)
    with pytest.raises(GateError, match="is not signed"):
        verify_bundle(bundle, tmp_path / "key.pub")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", b"\xff\xfe", b'{"dsseEnvelope": {"payload": "e30="}}'])
def test_a_broken_signature_is_a_no_and_no_crash(content: bytes, bundle: Path, tmp_path: Path) -> None:
    (bundle / SIGNATURE).write_bytes(content)
    with pytest.raises(GateError, match="does not hold"):
        verify_bundle(bundle, tmp_path / "key.pub")


def test_another_name_of_the_key_in_the_signature_helps_nobody(bundle: Path, tmp_path: Path) -> None:
    """Whoever writes the name of the trusted key into their own signature."""
    trusted = verify_bundle(bundle, tmp_path / "key.pub").key
    key_pair(tmp_path / "other")
    sign_bundle(bundle, tmp_path / "other.pem")
    forged = json.loads((bundle / SIGNATURE).read_text())
    forged["verificationMaterial"]["publicKey"]["hint"] = trusted
    (bundle / SIGNATURE).write_text(json.dumps(forged))
    with pytest.raises(GateError, match="not made with the private key"):
        verify_bundle(bundle, tmp_path / "key.pub")


def test_a_signature_that_leaves_files_out_is_none_of_the_bundle(bundle: Path, tmp_path: Path) -> None:
    """As the library's own tool makes one with `--ignore-paths`: the model could be any."""
    ignored = model_signing.hashing.Config().set_ignored_paths(paths=[bundle / SIGNATURE, bundle / "model.onnx"])
    signing = model_signing.signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key.pem")
    signing.set_hashing_config(ignored).sign(bundle, bundle / SIGNATURE)
    with pytest.raises(GateError, match=r"does not cover model\.onnx"):
        verify_bundle(bundle, tmp_path / "key.pub")


def test_links_are_not_signed(bundle: Path, tmp_path: Path) -> None:
    (bundle / "link.onnx").symlink_to(bundle / "model.onnx")
    with pytest.raises(InputError, match="cannot be signed"):
        sign_bundle(bundle, tmp_path / "key.pem")


def test_without_the_library_the_answer_is_what_to_install(bundle: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    for done in (lambda: require_signer(tmp_path / "key.pem"), lambda: verify_bundle(bundle, tmp_path / "key.pub")):
        with pytest.raises(InputError, match="model-signing") as refused:
            done()
        assert refused.value.hint == 'pip install "deploynas[sign]"'


def test_a_manifest_of_another_inside_the_bundle_is_listed_too(tmp_path: Path) -> None:
    """A package's own manifest.json is a file like any other."""
    with staged(tmp_path / "bundle") as stage:
        (stage / "inner").mkdir()
        (stage / "inner" / MANIFEST).write_text("{}")
        write_manifest(stage, {}, ManifestAbout())
    assert "inner/manifest.json" in (tmp_path / "bundle" / MANIFEST).read_text()
