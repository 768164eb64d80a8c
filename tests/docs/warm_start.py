"""`deploynas` without its start-up time: a process that has imported everything forks itself for each command.

Importing torch takes longer than most examples of the documentation. As `deploynas` on the PATH of an example this file
asks the waiting process; `serve` is that process. The command runs in a fork with the caller's folder and output.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import sys
from pathlib import Path

SOCKET = "DEPLOYNAS_WARM_START"
HEAVY = (
    "torch",
    "timm",
    "timm.data",
    "torchvision",
    "scipy.stats",
    "scipy.optimize",
    "onnxruntime",
    "sklearn.linear_model",
)


def serve(place: Path) -> None:
    """Wait for commands, one at a time, until killed."""
    from deploynas.cli import COMMANDS, main

    for module in (*HEAVY, "deploynas.pipeline.run", *(f"deploynas.cli.{name}" for name in COMMANDS)):
        importlib.import_module(module)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        print("ready", flush=True)
        while True:
            caller, _ = listener.accept()
            with caller:
                request, outputs, _, _ = socket.recv_fds(caller, 1 << 16, 2)
                child = os.fork()
                if not child:
                    listener.close()
                    _perform(json.loads(request), outputs, main)
                for output in outputs:
                    os.close(output)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                with contextlib.suppress(BrokenPipeError):
                    caller.sendall(str(status).encode())


def _perform(request: dict, outputs: list[int], main: object) -> None:
    """In the fork; does not return."""
    code: object = 1
    try:
        for output, own in zip(outputs, (1, 2), strict=True):
            os.dup2(output, own)
        os.chdir(request["folder"])
        sys.argv = ["deploynas", *request["arguments"]]
        main()  # type: ignore[operator]
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def ask() -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET])
        request = json.dumps({"folder": os.getcwd(), "arguments": sys.argv[1:]}).encode()
        socket.send_fds(server, [request], [1, 2])
        return int(server.recv(16) or b"1")


if __name__ == "__main__":
    sys.exit(ask())
