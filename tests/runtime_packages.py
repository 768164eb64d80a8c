"""ONNX Runtime's own reader of model packages, which Python has no call for: its C interface, by ctypes.

`OrtApi::GetModelPackageApi` hands out a table of its own, since 1.31. Both tables are stable: functions are only ever
added to them, so a place in them, which is what the numbers here are, stays what it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

SINCE = 31
CREATE_ENV, CREATE_SESSION_OPTIONS, GET_ERROR_MESSAGE, RUN = 3, 10, 2, 9
CREATE_TENSOR, TENSOR_DATA, CPU_MEMORY, PACKAGES = 49, 51, 69, 427
RELEASE_ENV, RELEASE_SESSION, RELEASE_VALUE, RELEASE_SESSION_OPTIONS, RELEASE_MEMORY = 92, 95, 96, 100, 94
FLOAT = 1  # of ONNXTensorElementDataType
PACKAGE_TABLE = (
    *("CreateModelPackageOptionsFromSessionOptions", "ReleaseModelPackageOptions", "CreateModelPackageContext"),
    *("ReleaseModelPackageContext", "ModelPackage_GetSchemaVersion", "ModelPackage_GetComponentCount"),
    *("ModelPackage_GetComponentNames", "ModelPackage_GetVariantCount", "ModelPackage_GetVariantNames"),
    *("ModelPackage_GetVariantEpName", "ModelPackage_ResolveStringRef", "SelectComponent"),
    *("ReleaseModelPackageComponentContext", "ModelPackageComponent_GetSelectedVariantName"),
    *("ModelPackageComponent_GetSelectedVariantFolderPath", "CreateSession"),
)


class Refused(Exception):
    """What the runtime says of a package that it does not take."""


class Runtime:
    """The installed runtime, with an environment; `skip`s where it is too old or cannot be reached like this."""

    def __init__(self) -> None:
        version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
        found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
        if version < (1, SINCE) or not found:
            pytest.skip(f"onnxruntime {onnxruntime.__version__} has no model packages, or not in this system's form")
        library = ctypes.CDLL(str(found[-1]))
        library.OrtGetApiBase.restype = POINTER(c_void_p)
        get_api = ctypes.CFUNCTYPE(c_void_p, c_uint32)(library.OrtGetApiBase()[0])
        self._table = ctypes.cast(get_api(SINCE), POINTER(c_void_p))
        self._packages = ctypes.cast(ctypes.CFUNCTYPE(c_void_p)(self._table[PACKAGES])(), POINTER(c_void_p))
        self.env = c_void_p()
        self.call(CREATE_ENV, c_int, c_char_p, POINTER(c_void_p))(3, b"tests", byref(self.env))

    def call(self, place: int | str, *kinds: type):
        """A function by its place, or one of packages by its name, that raises what its status says."""
        function = ctypes.CFUNCTYPE(c_void_p, *kinds)(self._address(place))

        def checked(*arguments: object) -> None:
            status = function(*arguments)
            if status:
                raise Refused(ctypes.CFUNCTYPE(c_char_p, c_void_p)(self._table[GET_ERROR_MESSAGE])(status).decode())

        return checked

    def release(self, place: int | str, handle: c_void_p) -> None:
        ctypes.CFUNCTYPE(None, c_void_p)(self._address(place))(handle)

    def _address(self, place: int | str) -> int:
        found = self._table[place] if isinstance(place, int) else self._packages[PACKAGE_TABLE.index(place)]
        assert found
        return found


class OpenPackage:
    """A package as the runtime reads it."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self._runtime, self._context = runtime, c_void_p()
        create = runtime.call("CreateModelPackageContext", c_char_p, POINTER(c_void_p))
        create(str(folder).encode(), byref(self._context))

    def close(self) -> None:
        self._runtime.release("ReleaseModelPackageContext", self._context)

    @property
    def schema_version(self) -> int:
        version = c_int64()
        self._runtime.call("ModelPackage_GetSchemaVersion", c_void_p, POINTER(c_int64))(self._context, byref(version))
        return version.value

    def components(self) -> list[str]:
        names, count = POINTER(c_char_p)(), c_size_t()
        kinds = (c_void_p, POINTER(POINTER(c_char_p)), POINTER(c_size_t))
        self._runtime.call("ModelPackage_GetComponentNames", *kinds)(self._context, byref(names), byref(count))
        return [names[i].decode() for i in range(count.value)]

    def variants(self, component: str) -> list[str]:
        names, count = POINTER(c_char_p)(), c_size_t()
        kinds = (c_void_p, c_char_p, POINTER(POINTER(c_char_p)), POINTER(c_size_t))
        call = self._runtime.call("ModelPackage_GetVariantNames", *kinds)
        call(self._context, component.encode(), byref(names), byref(count))
        return [names[i].decode() for i in range(count.value)]

    def provider(self, component: str, variant: str) -> str:
        name = c_char_p()
        call = self._runtime.call("ModelPackage_GetVariantEpName", c_void_p, c_char_p, c_char_p, POINTER(c_char_p))
        call(self._context, component.encode(), variant.encode(), byref(name))
        assert name.value
        return name.value.decode()

    @contextmanager
    def session(self, component: str) -> Iterator[tuple[str, c_void_p]]:
        """The variant that the runtime chooses for the CPU, and a session with what the package says of it."""
        runtime, wanted, chosen, one, session = self._runtime, c_void_p(), c_void_p(), c_void_p(), c_void_p()
        runtime.call(CREATE_SESSION_OPTIONS, POINTER(c_void_p))(byref(wanted))
        name, handles = "CreateModelPackageOptionsFromSessionOptions", (c_void_p, c_void_p, POINTER(c_void_p))
        runtime.call(name, *handles)(runtime.env, wanted, byref(chosen))
        select = runtime.call("SelectComponent", c_void_p, c_char_p, c_void_p, POINTER(c_void_p))
        select(self._context, component.encode(), chosen, byref(one))
        variant = c_char_p()
        runtime.call("ModelPackageComponent_GetSelectedVariantName", c_void_p, POINTER(c_char_p))(one, byref(variant))
        create = runtime.call("CreateSession", c_void_p, c_void_p, c_void_p, POINTER(c_void_p))
        create(runtime.env, one, None, byref(session))
        assert variant.value
        yield variant.value.decode(), session
        runtime.release(RELEASE_SESSION, session)
        runtime.release("ReleaseModelPackageComponentContext", one)
        runtime.release("ReleaseModelPackageOptions", chosen)
        runtime.release(RELEASE_SESSION_OPTIONS, wanted)


def run(runtime: Runtime, session: c_void_p, images: np.ndarray, classes: int) -> np.ndarray:
    """Logits of images, by a session of the C interface."""
    memory, value, answer, data = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    runtime.call(CPU_MEMORY, c_int, c_int, POINTER(c_void_p))(0, 0, byref(memory))
    images = np.ascontiguousarray(images, dtype=np.float32)
    shape = (c_int64 * images.ndim)(*images.shape)
    kinds = (c_void_p, c_void_p, c_size_t, POINTER(c_int64), c_size_t, c_int, POINTER(c_void_p))
    create = runtime.call(CREATE_TENSOR, *kinds)
    create(memory, images.ctypes.data, images.nbytes, shape, images.ndim, FLOAT, byref(value))
    names = [POINTER(c_char_p), POINTER(c_void_p), c_size_t, POINTER(c_char_p), c_size_t, POINTER(c_void_p)]
    asked, told, given = (c_char_p * 1)(b"input"), (c_char_p * 1)(b"logits"), (c_void_p * 1)(value)
    runtime.call(RUN, c_void_p, c_void_p, *names)(session, None, asked, given, 1, told, 1, byref(answer))
    runtime.call(TENSOR_DATA, c_void_p, POINTER(c_void_p))(answer, byref(data))
    logits = np.ctypeslib.as_array(ctypes.cast(data, POINTER(ctypes.c_float)), (len(images), classes)).copy()
    for handle in (answer, value):
        runtime.release(RELEASE_VALUE, handle)
    runtime.release(RELEASE_MEMORY, memory)
    return logits
