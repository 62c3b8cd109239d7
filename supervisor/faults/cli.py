"""A scripted stand-in for a vendor's CLI: it does what its first argument says, step by step.

    cli.py '[["print", "hello"], ["exit", 0]]' …the adapter's own arguments, which it ignores…

Steps:
    ["print", TEXT]            a line on standard output
    ["write", HEX]             bytes on standard output, at once
    ["file", PATH]             the bytes of a file on standard output
    ["filler", N]              one line of N bytes on standard output
    ["repeat", N, TEXT]        the same line N times, in as few writes as the system takes
    ["flood", TEXT]            the same line without end
    ["endless_line"]           bytes without end and without a newline
    ["stderr", TEXT]           a line on standard error
    ["stderr_filler", N]       N bytes on standard error
    ["read"]                   standard input to its end
    ["save_input", PATH]       standard input to its end, or the file of --prompt-file, into a file
    ["environment", PATH]      every variable, one NAME=VALUE a line, into a file
    ["arguments", PATH]        the arguments after the script, one a line, into a file
    ["touch", PATH]            an empty file: a sign for the test
    ["wait_for", PATH]         until the file exists
    ["ignore", NAME]           ignore a signal, e.g. "SIGTERM"
    ["child", HOW, PIPES]      a background process that sleeps. HOW is "same" (the CLI's group),
                               "session" (setsid), "daemon" (two forks and setsid) or "naked" (the same
                               with an empty environment). PIPES is "hold" (it keeps standard output
                               and error) or "closed".
    ["orphan"]                 a grandchild that ends at once and is nobody's to wait for
    ["pid", PATH]              the process's own pid into a file
    ["ledger", PATH]           from here on, each process that is started adds a line to the file:
                               its pid and its start time in clock ticks
    ["close_stdout"]           end of file for the reader, without an exit
    ["hang"]                   do nothing more
    ["kill", NAME]             end by a signal
    ["exit", CODE]             end

Asked for its version alone, it tells one. It ends by itself after 60 s, and so does what it starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself would double the start time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

LIFETIME = 60
ledger: int | None = None


def emit(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def read_all() -> bytes:
    chunks: list[bytes] = []
    while chunk := os.read(0, 65536):
        chunks.append(chunk)
    return b"".join(chunks)


def prompt_file() -> bytes:
    if "--prompt-file" not in sys.argv:
        return b""
    with open(sys.argv[sys.argv.index("--prompt-file") + 1], "rb") as stream:
        return stream.read()


def save(path: str, data: bytes) -> None:
    with open(path + ".part", "wb") as stream:
        stream.write(data)
    os.rename(path + ".part", path)


def enter_ledger() -> None:
    if ledger is not None:
        with open("/proc/self/stat") as stream:
            ticks = stream.read().rpartition(")")[2].split()[19]
        os.write(ledger, f"{os.getpid()} {ticks}\n".encode())


def become_sleeper(how: str, pipes: str) -> NoReturn:
    """In a forked child: be the background process. It never returns."""
    if how in ("session", "daemon", "naked"):
        os.setsid()
    if how in ("daemon", "naked") and os.fork():
        os._exit(0)
    enter_ledger()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if pipes == "closed":
        os.dup2(null, 1)
        os.dup2(null, 2)
    environ: Mapping[str, str] = {} if how == "naked" else os.environ
    code = f"import time; time.sleep({LIFETIME})"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], environ)


def start_child(how: str, pipes: str) -> None:
    """Start it and wait until it is in the ledger and past its last fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        become_sleeper(how, pipes)
    os.close(write)
    os.read(read, 1)  # the end of the pipe comes with the exec, which closes it
    os.close(read)


def start_orphan() -> None:
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        os._exit(0)


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)


def emit_for_ever(data: bytes) -> None:
    while True:
        emit(data)


def step(name: str, *given: Any) -> None:
    global ledger
    match name:
        case "print":
            emit(given[0].encode() + b"\n")
        case "write":
            emit(bytes.fromhex(given[0]))
        case "file":
            with open(given[0], "rb") as stream:
                emit(stream.read())
        case "filler":
            emit(b"x" * given[0] + b"\n")
        case "repeat":
            emit((given[1].encode() + b"\n") * given[0])
        case "flood":
            emit_for_ever((given[0].encode() + b"\n") * 200)
        case "endless_line":
            emit_for_ever(b"x" * 65536)
        case "stderr":
            os.write(2, given[0].encode() + b"\n")
        case "stderr_filler":
            for _ in range(0, given[0], 1000):
                os.write(2, b"e" * 1000)
        case "read":
            read_all()
        case "save_input":
            save(given[0], read_all() or prompt_file())
        case "environment":
            save(given[0], "\n".join(f"{n}={v}" for n, v in os.environ.items()).encode())
        case "arguments":
            save(given[0], "\n".join(sys.argv[2:]).encode())
        case "touch":
            save(given[0], b"")
        case "wait_for":
            wait_for(given[0])
        case "ignore":
            signal.signal(getattr(signal, given[0]), signal.SIG_IGN)
        case "child":
            start_child(*given)
        case "orphan":
            start_orphan()
        case "pid":
            save(given[0], str(os.getpid()).encode())
        case "ledger":
            ledger = os.open(given[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            enter_ledger()
        case "close_stdout":
            os.close(1)
        case "hang":
            while True:
                signal.pause()
        case "kill":
            os.kill(os.getpid(), getattr(signal, given[0]))
        case "exit":
            os._exit(given[0])
        case _:
            raise SystemExit(f"unknown step {name!r}")


if sys.argv[2:] == ["--version"]:
    emit(b"scripted 999.0.0\n")
    sys.exit(0)
signal.alarm(LIFETIME)
for each in json.loads(sys.argv[1]):
    step(*each)
