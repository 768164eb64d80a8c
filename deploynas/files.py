"""How our files are read and written: YAML by hand, JSON by machine, never pickle.

Hand-written files are validated as a whole and every mistake is reported at once, with its line.
Generated files carry `schema` and `schema_version`, ignore unknown keys, refuse a newer version, and
are written to a temporary name first, so that no reader ever sees half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deploynas.errors import InputError
from deploynas.parsing import LARGEST_JSON, LARGEST_YAML, dotted, json_of, shown, text_of, yaml_of

if TYPE_CHECKING:
    import pydantic
    import yaml
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound="pydantic.BaseModel")

MOST_MISTAKES = 20  # of a hand-written file that are shown

# which command writes a file of each schema
MADE_BY = {
    "deploynas/latency-table": "profile",
    "deploynas/bench": "bench",
    "deploynas/comparison": "check --out",
    "deploynas/checkpoint": "train` or `deploynas finetune",
    "deploynas/training-state": "train",
    "deploynas/trained-quantization": "finetune --int8",
    "deploynas/estimator": "estimate",
    "deploynas/insights": "explain --json",
    "deploynas/search-result": "search --out",
    "deploynas/report": "export",
    "deploynas/manifest": "export",
    "deploynas/pruned": "prune",
    "deploynas/step": "run",
}


def read_yaml(path: Path, model: type[Model]) -> Model:
    """Read a hand-written file; raise one error that lists every mistake and its line."""
    root, data = yaml_of(text_of(path, LARGEST_YAML), path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a mapping of keys to values, found {_kind(data)}")
    errors = _validation_errors(data, model)
    mistakes = _duplicate_keys(root, str(path))
    mistakes += [f"{path.name}:{_line(root, e['loc'])}: `{dotted(e['loc'])}` {_say(e)}" for e in errors]
    if mistakes:
        more = f"\n  and {len(mistakes) - MOST_MISTAKES} more" if len(mistakes) > MOST_MISTAKES else ""
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise InputError(
            f"{path} has {count}:\n" + "\n".join(f"  {mistake}" for mistake in mistakes[:MOST_MISTAKES]) + more,
            hint=_known_keys_hint(model, [e["loc"] for e in errors if e["type"] == "extra_forbidden"]),
        )
    return model.model_validate(data)


def read_yaml_value(path: Path, key: str) -> object:
    """One value of a hand-written file, to tell which model reads it; None where it has none, or is no mapping."""
    _, data = yaml_of(text_of(path, LARGEST_YAML), path)
    return data.get(key) if isinstance(data, dict) else None


def read_schema(path: Path) -> str | None:
    """Which of our schemas a JSON file says it has."""
    data = json_of(text_of(path, LARGEST_JSON), path)
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, str) else None


def read_json(path: Path, schema: str, version: int) -> dict[str, Any]:
    """Read a generated file of the given schema, at most of the given version."""
    return _of_schema(json_of(text_of(path, LARGEST_JSON), path), path, schema, version)


def _of_schema(data: object, path: Path, schema: str, version: int) -> dict[str, Any]:
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema or not isinstance(data, dict):
        raise InputError(
            f"{path}: expected a file of schema `{schema}`, found {f'`{shown(found)}`' if found else _kind(data)}",
            hint=_makers_hint(schema, found),
        )
    found_version = data.get("schema_version")
    if not isinstance(found_version, int) or isinstance(found_version, bool) or found_version < 1:
        raise InputError(f"{path}: `schema_version` must be a positive integer, found {shown(found_version)}")
    if found_version > version:
        raise InputError(
            f"{path}: written by a newer deploynas (schema version {found_version}, this one reads up to {version})",
            hint="upgrade deploynas on this machine",
        )
    return data


def _makers_hint(schema: str, found: object) -> str | None:
    """Which command makes the file that was wanted, and which made the one that was given."""
    if schema not in MADE_BY:
        return None
    given = f"; this one is from `deploynas {MADE_BY[found]}`" if isinstance(found, str) and found in MADE_BY else ""
    return f"`deploynas {MADE_BY[schema]}` writes one{given}"


def parse_json(path: Path, model: type[Model]) -> Model:
    """Read and validate a generated file; the model names its own `schema` and `schema_version`."""
    import pydantic

    schema = model.model_fields["schema_"].default
    version = model.model_fields["schema_version"].default
    text = text_of(path, LARGEST_JSON)
    _of_schema(json_of(text, path), path, schema, version)
    try:
        return model.model_validate_json(text, strict=True)  # nothing is read as what it is not: "1", true, 1.0
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{path}: damaged: `{dotted(first['loc'])}` {_say(first)}",
            hint="the file was changed by hand or cut off; write it again",
        ) from error


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write a document under a temporary name, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    write_bytes(path, (text + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """All of the content or none of it: a reader never sees half a file, even after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        move_into_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Windows refuses to move what any program has open, which virus scanners and indexers do for moments
OPEN_ELSEWHERE = (5, 32)  # its codes for "access denied" and "used by another process"
PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)


def move_into_place(source: Path, target: Path) -> None:
    """Rename a file over another one, or a folder to a name that is free."""
    for pause in (*PAUSES_S, None):
        try:
            source.replace(target)
            return
        except PermissionError as error:
            if getattr(error, "winerror", None) not in OPEN_ELSEWHERE:
                raise  # the rights are missing; waiting does not bring them
            if pause is None:
                raise InputError(
                    f"{target}: cannot be replaced: another program has it, or something in it, open",
                    hint="close what shows it and repeat the command",
                ) from error
            time.sleep(pause)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def content_hash(document: object) -> str:
    """A short, stable name for a JSON-like value (the same content, the same name)."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def now() -> str:
    """The date of provenance records: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _validation_errors(data: dict, model: type[Model]) -> Sequence[ErrorDetails]:
    import pydantic

    try:
        model.model_validate(data)
    except pydantic.ValidationError as error:
        return error.errors()
    return []


def checked_record(model: type[Model], record: object, where: str) -> Model:
    """A record inside a generated file that is kept as it was found until somebody wants to know what it says."""
    import pydantic

    try:
        return model.model_validate(record)
    except pydantic.ValidationError as error:
        raise InputError(
            f"{where} is damaged: {mistakes_of(error)[0]}",
            hint="the file was changed by hand or cut off; write it again",
        ) from error


def known_only(model: type[pydantic.BaseModel], record: dict[str, Any]) -> dict[str, Any]:
    """A record of a generated file without keys that a strict model does not know, at every level."""
    known = {field.alias or name: field for name, field in model.model_fields.items()}
    kept = {key: value for key, value in record.items() if key in known}
    for key, value in kept.items():
        inner = _model_in(known[key].annotation)
        if isinstance(value, dict) and inner is not None:
            kept[key] = known_only(inner, value)
    return kept


def mistakes_of(error: pydantic.ValidationError) -> list[str]:
    """Every mistake of data that came from elsewhere than a file, one phrase each."""
    return [f"`{dotted(item['loc'])}` {_say(item)}" for item in error.errors()]


def _say(error: ErrorDetails) -> str:
    """Pydantic's message in the house's words: what it must be, what it is."""
    kind, message = error["type"], error["msg"]
    if kind == "extra_forbidden":
        return "is an unknown key"
    if kind == "missing":
        return "is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        context = error["ctx"]
        key = str(context["discriminator"]).strip("'")
        return f"must have a `{key}` that is known" + (
            f", got {shown(repr(context['tag']))} (known: {context['expected_tags']})" if "tag" in context else ""
        )
    message = message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("should ")
    got = error.get("input")
    named = isinstance(got, (str, int, float, bool, list)) or got is None
    ending = f", got {shown(repr(got))}" if named else ""
    return f"must {message}{ending}" if not message.startswith("must") else f"{message}{ending}"


def _line(root: yaml.Node, location: tuple) -> int:
    """The line of a validation error's place, or of the closest thing around it that exists."""
    import yaml

    node, line = root, root.start_mark.line
    for part in location:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = (node.value[part], node.value[part])
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return line + 1


def _duplicate_keys(node: yaml.Node, path: str) -> list[str]:
    """YAML silently keeps the last of two equal keys; a person who wrote two deserves to know."""
    import yaml

    mistakes = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    mistakes.append(f"{Path(path).name}:{key.start_mark.line + 1}: `{shown(key.value)}` appears twice")
                seen.add(key.value)
            mistakes += _duplicate_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            mistakes += _duplicate_keys(item, path)
    return mistakes


def _known_keys_hint(model: type[Model], unknown: Sequence[tuple]) -> str | None:
    """What may be written in each place where a key was unknown; at the top also what belongs inside each key."""
    hints = []
    for place in dict.fromkeys(location[:-1] for location in unknown):
        inside = _model_at(model, place)
        keys = _keys(inside) if place else _keys_with_nested(inside)
        where = f" in `{dotted(tuple(part for part in place if isinstance(part, str)))}`" if place else ""
        hints.append(f"known keys{where}: {keys}")
    return "; ".join(dict.fromkeys(hints)) or None


def _model_at(model: type[pydantic.BaseModel], place: tuple) -> type[pydantic.BaseModel]:
    """The model that describes what lies at a place of the file."""
    for part in place:
        if isinstance(part, str):
            found = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
            model = (_model_in(found.annotation) if found else None) or model
    return model


def _model_in(annotation: object) -> type[pydantic.BaseModel] | None:
    """The model inside an annotation such as `list[Stage]` or `First | None`."""
    import typing

    import pydantic

    # Python 3.10 takes `dict[str, int]` for a type, and then no class can be its parent
    alone = typing.get_origin(annotation) is None
    if alone and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((found for found in inner if found), None)


def _keys(model: type[pydantic.BaseModel]) -> str:
    return ", ".join(f"`{field.alias or name}`" for name, field in model.model_fields.items())


def _keys_with_nested(model: type[pydantic.BaseModel]) -> str:
    texts = []
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        texts.append(f"`{field.alias or name}`" + (f" ({_keys(inner)})" if inner else ""))
    return ", ".join(texts)


def _kind(data: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a string", type(None): "nothing"}
    return names.get(type(data), f"a {type(data).__name__}")
