"""What a guardian is for: nothing of a run lives on, and what is told of it is exact."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from supervisor import CliError, RequestError, SupervisorError
from supervisor.model.completion import Exit
from supervisor.process import guarded, modes
from supervisor.process.child import start_child
from supervisor.process.guarded import GuardedChild, start_guarded
from supervisor.process.guardian_protocol import Report, pack_program
from supervisor.process.modes import Found, find_mode

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
ESCAPEE = ROOT / "fixtures" / "escapee.py"
PYTHON = (sys.executable, "-I", "-S")
SHELL = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

MODES = ("scope", "loop", "pidns")
WORKLOADS = ("session", "daemon", "bare", "renamed", "stubborn", "holder", "comet")
TRIES = 5
SECONDS_TO_DIE = 2.0

HOLD = """
import sys
import trio
from supervisor.process.guarded import start_guarded

async def main(mode, work, fork, *argv):
    child = await start_guarded(
        argv, {}, work=work, run_id="held", has_stdin=False, mode=mode
    )
    seen = b""
    while b"ready" not in seen:
        seen += await child.stdout.receive_some(100)
    copy = 0
    if fork == "fork":
        import os
        copy = os.fork()  # without exec: a copy of every descriptor
        if copy == 0:
            import time
            time.sleep(20)
            os._exit(0)
    print(copy, flush=True)
    await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""
"""A supervising process of its own, which holds a run until it is killed."""


@dataclass(frozen=True)
class Ledger:
    """What the processes of an escapee have signed, and which of them live."""

    path: Path

    def command(self, workload: str) -> list[str]:
        return [*PYTHON, str(ESCAPEE), workload, str(self.path)]

    def signed(self) -> set[tuple[int, int]]:
        """Pid, in its own namespace, and start time of every process there has been."""
        lines = self.path.read_text().splitlines()
        return {(int(pid), int(start)) for pid, start in map(str.split, lines)}

    def living(self) -> list[int]:
        """Pids, as seen from here, of those that live. A zombie is not dead: nobody has proven it."""
        signed = self.signed()
        return [
            int(name) for name in os.listdir("/proc") if name.isdigit() and self._is(name, signed)
        ]

    def _is(self, name: str, signed: set[tuple[int, int]]) -> bool:
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            lines = Path(f"/proc/{name}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return False
        inner = next((line.split()[-1] for line in lines if line.startswith("NSpid:")), name)
        return (int(inner), int(fields[19])) in signed

    async def dies(self) -> None:
        """Come back when nobody lives; fail after some seconds."""
        await until(lambda: not self.living(), SECONDS_TO_DIE)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Look at what sends no event until it holds."""
    with trio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.002)


async def require(mode: str) -> None:
    """Skip a test whose mode this machine does not have."""
    found = await find_mode(mode)  # type: ignore[arg-type]
    if found.mode != mode:
        pytest.skip(f"no {mode} here: {found.reason}")


async def start(mode: str, argv: Any, environ: Any = SHELL, **given: Any) -> GuardedChild:
    given = {"work": "/", "run_id": "r", "has_stdin": False, **given}
    return await start_guarded(argv, environ, mode=mode, **given)  # type: ignore[arg-type]


async def start_ready(mode: str, argv: list[str], **given: Any) -> GuardedChild:
    """Start what prints "ready", and wait for that."""
    child = await start(mode, argv, **given)
    seen = b""
    while b"ready" not in seen:
        data = await child.stdout.receive_some(100)
        assert data, f"it ended too early: {seen!r} {await read(child.stderr)!r}"
        seen += data
    return child


async def read(stream: trio.lowlevel.FdStream) -> bytes:
    data = b""
    async for chunk in stream:
        data += chunk
    return data


async def finish(child: GuardedChild, grace: float = 5.0) -> tuple[dict[int, str], tuple[str, ...]]:
    """End and close; gives the names of what was killed, and what is left."""
    with trio.CancelScope(shield=True):
        killed, left = await child.end(polite="TERM", grace=grace)
        await child.close()
    return {each.pid: each.name for each in killed}, left


async def run(
    mode: str, argv: Any, environ: Any = SHELL, **given: Any
) -> tuple[bytes, GuardedChild]:
    """Run a program to its own end; gives what it printed."""
    child = await start(mode, argv, environ, **given)
    output = await read(child.stdout)
    await child.wait()
    assert await finish(child) == ({}, ())
    assert child.proven
    return output, child


def inner_of(child: GuardedChild) -> int:
    (inner,) = psutil.Process(outer_of(child)).children()
    return inner.pid


def outer_of(child: GuardedChild) -> int:
    return child._process.pid


def hold(
    mode: str, work: Path, argv: list[str], fork: str = "-"
) -> tuple[subprocess.Popen[str], int]:
    """A supervising process with a run that is ready; and the pid of its forked copy, or 0."""
    environ = {**SHELL, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD, mode, str(work), fork, *argv]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True)
    assert host.stdout is not None
    return host, int(host.stdout.readline())


# ---- nothing lives on


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("mode", MODES)
async def test_nothing_escapes(mode: str, workload: str, tmp_path: Path) -> None:
    await require(mode)
    for attempt in range(TRIES):
        ledger = Ledger(tmp_path / f"ledger-{attempt}")
        child = await start_ready(mode, ledger.command(workload))
        assert child.mode == mode
        killed, left = await finish(child, grace=0)
        assert ledger.living() == []
        assert (child.proven, left) == (True, ())
        assert len(ledger.signed()) >= 4
        assert len(killed) >= (1 if workload == "comet" else 3)


@pytest.mark.parametrize("workload", ["daemon", "comet"])
@pytest.mark.parametrize("who", ["outer", "inner"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_killed_guardian_leaves_nothing(
    mode: str, who: str, workload: str, tmp_path: Path
) -> None:
    await require(mode)
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready(mode, ledger.command(workload))
    os.kill(outer_of(child) if who == "outer" else inner_of(child), signal.SIGKILL)
    await ledger.dies()
    await child.wait()
    assert (await finish(child))[1] == ()
    assert child.proven
    if mode != "pidns":  # there the kernel itself killed it, and tells nobody
        assert child.exit == Exit(code=None, signal=signal.SIGKILL, ended_by_us=False)


@pytest.mark.parametrize("workload", ["daemon", "comet"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_killed_supervisor_leaves_nothing(mode: str, workload: str, tmp_path: Path) -> None:
    await require(mode)
    ledger = Ledger(tmp_path / "ledger")
    host, _ = await trio.to_thread.run_sync(hold, mode, tmp_path, ledger.command(workload))
    with host:
        assert ledger.living() != []
        host.kill()
        await ledger.dies()


async def test_close_alone_ends_the_run(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    child = await start_ready("scope", ledger.command("daemon"))
    await child.close()
    await child.close()
    await ledger.dies()
    await trio.to_thread.run_sync(child._process.wait)


async def test_a_run_ends_alone(tmp_path: Path) -> None:
    bystander = await trio.to_thread.run_sync(subprocess.Popen, ["sleep", "20"])
    for mode in ("scope", "loop"):
        doomed, other = Ledger(tmp_path / f"{mode}-1"), Ledger(tmp_path / f"{mode}-2")
        first = await start_ready(mode, doomed.command("daemon"))
        second = await start_ready(mode, other.command("daemon"))
        before = other.living()
        await finish(first, grace=0)
        assert doomed.living() == []
        assert other.living() == before != []
        assert second.exit is None
        await finish(second, grace=0)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


async def test_many_runs_leave_neither_zombies_nor_descriptors(tmp_path: Path) -> None:
    def state() -> tuple[set[str], set[int]]:
        children = psutil.Process().children(recursive=True)
        return set(os.listdir("/proc/self/fd")), {child.pid for child in children}

    await run("scope", ["true"])
    before = state()
    for i in range(50):
        await run("loop" if i % 2 else "scope", ["true"], has_stdin=True)
    assert state() == before


# ---- what is told is exact


async def test_every_exit_code_is_reported() -> None:
    seen: dict[int, Exit | None] = {}
    limit = trio.CapacityLimiter(4)

    async def one(code: int) -> None:
        async with limit:
            mode = "loop" if code % 2 else "scope"
            seen[code] = (await run(mode, ["sh", "-c", f"exit {code}"]))[1].exit

    async with trio.open_nursery() as nursery:
        for code in range(256):
            nursery.start_soon(one, code)
    assert seen == {c: Exit(code=c, signal=None, ended_by_us=False) for c in range(256)}


async def test_every_deadly_signal_is_reported() -> None:
    harmless = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH"}
    stopping = {"SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
    kill_itself = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    for number in signal.Signals:
        if number.name not in harmless | stopping:
            script = f"{kill_itself} os.kill(os.getpid(), {int(number)})"
            _, child = await run("scope", [*PYTHON, "-c", script])
            expected = Exit(code=None, signal=int(number), ended_by_us=False)
            if number not in (
                signal.SIGPIPE,
                signal.SIGXFSZ,
                signal.SIGINT,
            ):  # Python's own handling
                assert child.exit == expected


async def test_what_it_used_is_reported() -> None:
    script = """
import time
block = b"x" * 60_000_000
while time.process_time() < 0.2: pass
"""
    for mode in ("scope", "loop"):
        _, child = await run(mode, [*PYTHON, "-c", script])
        assert child.resources is not None
        assert child.resources.user_seconds + child.resources.system_seconds >= 0.2
        assert 60_000_000 < child.resources.peak_bytes < 300_000_000


async def test_who_was_killed_is_reported_by_name() -> None:
    script = r"""
import ctypes, os
for name in (b"two words", b"line\nbreak", b"(odd) 1 2", b"\xff\xfe"):
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, ctypes.c_char_p(name), 0, 0, 0)
        os.write(1, b".")
        os.read(0, 1)
        os._exit(0)
os.read(0, 1)
"""
    child = await start("scope", [*PYTHON, "-c", script], has_stdin=True)
    seen = b""
    while len(seen) < 4:
        seen += await child.stdout.receive_some(4)
    killed, _ = await finish(child, grace=0)
    assert sorted(killed.values()) == ["(odd) 1 2", "line\nbreak", "two words", "\ufffd\ufffd"]
    assert child.pid not in killed


async def test_the_exit_is_ours_only_if_it_came_after_our_signal() -> None:
    child = await start("scope", ["cat"], has_stdin=True)
    assert child.stdin is not None
    child.stdin.close()
    select.select([child._status], [], [])  # it has ended, and nobody has read that yet
    await finish(child)
    assert child.exit == Exit(code=0, signal=None, ended_by_us=False)
    child = await start("scope", ["sleep", "20"])
    await finish(child)
    assert child.exit == Exit(code=None, signal=signal.SIGTERM, ended_by_us=True)


async def test_descendants_may_be_given_time() -> None:
    quick = "(sleep 0.05; echo late) & exit 3"
    child = await start("scope", ["sh", "-c", quick], settle_ms=10_000)
    assert await read(child.stdout) == b"late\n"
    await until(lambda: child.proven)  # by itself
    assert await finish(child) == ({}, ())
    assert child.exit == Exit(code=3, signal=None, ended_by_us=False)
    child = await start("scope", ["sh", "-c", "sleep 20 & exit 3"], settle_ms=50)
    await child.wait()
    assert await read(child.stdout) == b""  # the end of file comes by itself
    assert list((await finish(child))[0].values()) == ["sleep"]


# ---- the politeness


@pytest.mark.parametrize("polite", ["TERM", "INT"])
async def test_the_polite_signal_arrives(polite: str) -> None:
    script = f"trap 'echo asked; exit 4' {polite}; echo ready; while :; do read -r x; done"
    child = await start_ready("scope", ["sh", "-c", script], has_stdin=True)
    await child.end(polite=polite, grace=10)  # type: ignore[arg-type]
    assert await read(child.stdout) == b"asked\n"
    assert child.exit == Exit(code=4, signal=None, ended_by_us=True)
    await child.close()


async def test_a_stopped_leader_hears_it() -> None:
    child = await start_ready(
        "loop", ["sh", "-c", "trap 'exit 4' TERM; echo ready; kill -STOP $$; :"]
    )
    await until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
    await finish(child)
    assert child.exit == Exit(code=4, signal=None, ended_by_us=True)


async def test_several_tasks_may_wait_and_be_cancelled() -> None:
    child = await start("scope", ["cat"], has_stdin=True)
    seen: list[Exit | None] = []

    async def wait() -> None:
        await child.wait()
        seen.append(child.exit)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        with trio.move_on_after(0.01):
            await child.wait()
        assert child.stdin is not None
        await child.stdin.aclose()
    assert seen == [Exit(code=0, signal=None, ended_by_us=False)] * 3
    first = await child.end(polite="TERM", grace=0)
    assert await child.end(polite="TERM", grace=0) == first
    await child.close()


# ---- the same as a bare start


def show(what: str) -> list[str]:
    return [*PYTHON, "-c", f"import os, sys; {what}"]


@pytest.mark.parametrize(
    "what",
    [
        "os.write(1, open('/proc/self/environ', 'rb').read())",
        "os.write(1, open('/proc/self/cmdline', 'rb').read())",
        "print(os.getcwd())",
        "print(sorted(os.listdir('/proc/self/fd')))",
        "print(os.getpid() == os.getsid(0) == os.getpgid(0))",
        "print(os.umask(0), os.nice(0), os.isatty(0), len(os.read(0, 10)))",
    ],
)
async def test_the_cli_sees_what_it_would_see_without_a_guardian(what: str, tmp_path: Path) -> None:
    environ = {"ODD \u00fc": "a=b\nc", "PYTHONPATH": "/nowhere", "LD_BIND_NOW": "1", "EMPTY": ""}
    argv = [*show(what), "", "an argument", "\u00fc\udcff"]
    bare = await start_child(argv, environ, work=str(tmp_path), run_id="r", has_stdin=False)
    expected = await read(bare.stdout)
    await bare.end(polite="TERM", grace=5)
    await bare.close()
    assert expected
    for mode in ("scope", "loop"):
        output, _ = await run(mode, argv, environ, work=str(tmp_path))
        assert output == expected


@pytest.mark.parametrize("mode", ["scope", "loop"])
async def test_no_signal_is_ignored_or_blocked_for_the_cli(mode: str) -> None:
    """Under nohup or in some CI the host ignores SIGHUP; a CLI shall not inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        argv = ["/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status"]
        output, _ = await run(mode, argv, {"PATH": os.defpath})
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [line.split()[1] for line in output.splitlines()] == [b"0" * 16] * 2


async def test_a_large_command_line_and_environment_pass() -> None:
    environ = {f"V{i}": "v" * 100_000 for i in range(5)}
    argv = [*show("print(len(''.join(sys.argv)), ''.join(os.environ.values()).count('v'))")]
    output, _ = await run("scope", [*argv, *["a" * 100_000] * 6], environ)
    assert output == b"600002 500000\n"


async def trouble(starting: Callable[..., Any], argv: list[str], environ: Any, work: str) -> Any:
    """The error that a start ends in."""
    with pytest.raises(SupervisorError) as caught:
        await starting(argv, environ, work=work, run_id="r", has_stdin=False)
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    return caught.value.code, str(caught.value), cause.errno


async def test_a_failed_exec_is_told_as_without_a_guardian(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program\n")
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "text").chmod(0o755)
    (tmp_path / "lost").write_text("#!/nonexistent/interpreter\n")
    (tmp_path / "lost").chmod(0o755)
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    total = 3_000_000 if limit == 8 << 20 else 8_000_000
    cases: list[tuple[list[str], dict[str, str], str]] = [
        ([str(tmp_path / "missing")], {}, "/"),
        ([str(tmp_path / "data")], {}, "/"),
        ([str(tmp_path / "text")], {}, "/"),
        ([str(tmp_path / "lost")], {}, "/"),
        ([str(tmp_path)], {}, "/"),
        ([f"{tmp_path}/data/below"], {}, "/"),
        (["missing"], {"PATH": f"{tmp_path}:/bin"}, "/"),
        (["data"], {"PATH": f"{tmp_path}:/bin"}, "/"),
        (["true", "a" * 140_000], SHELL, "/"),
        (["true", *["a" * 100_000] * (total // 100_000)], SHELL, "/"),
        (["true"], SHELL, str(tmp_path / "missing")),
    ]

    async def guarded_start(*given: Any, **named: Any) -> None:
        await start_guarded(*given, mode="scope", **named)

    for case in cases:
        expected = await trouble(start_child, *case)
        assert await trouble(guarded_start, *case) == expected
    assert psutil.Process().children() == []
    with pytest.raises(RequestError):
        await start("scope", ["true", "a" * 140_000])
    with pytest.raises(ValueError, match="null"):
        await start("scope", ["true", "a\0b"])


# ---- without a proof


async def test_without_a_proof_the_living_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "PROOF_WAIT", 0.2)
    child = await start_ready("loop", ["sh", "-c", "setsid sleep 20 & echo ready; exec sleep 20"])
    pair = (outer_of(child), inner_of(child))
    below = psutil.Process(outer_of(child)).children(recursive=True)[1:]
    await until(lambda: [process.name() for process in below] == ["sleep", "sleep"])
    for pid in pair:
        os.kill(pid, signal.SIGSTOP)
    nobody, left = await child.end(polite="TERM", grace=0)
    assert (nobody, child.proven) == ((), False)
    assert len(left) == 2
    assert f"The process 'sleep' (pid {child.pid}, user {os.getuid()}, sleeping) " in " ".join(left)
    for pid in reversed(pair):
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    killed, left = await finish(child)
    assert (list(killed.values()), left) == (["sleep"], ())
    assert child.proven


async def test_a_run_without_guardians_is_looked_for() -> None:
    mark = {**SHELL, "SUPERVISOR_RUN": "orphan"}
    script = "setsid sleep 20 >/dev/null & echo ready; exec sleep 20"
    child = await start_ready("loop", ["sh", "-c", script], environ=mark, run_id="orphan")
    pair = (outer_of(child), inner_of(child))
    below = psutil.Process(inner_of(child)).children(recursive=True)
    await until(lambda: [process.name() for process in below] == ["sleep", "sleep"])
    for number in (signal.SIGSTOP, signal.SIGKILL):  # at once, as far as they are concerned
        for pid in pair:
            os.kill(pid, number)
    await child.wait()
    killed, left = await finish(child)
    assert (list(killed.values())[-1:], left, child.proven) == (["sleep"], (), False)


# ---- modes


async def test_the_mode_is_found_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await find_mode()
    assert found.mode in ("scope", "loop")
    assert (found.reason is None) == (found.mode == "scope")
    assert await find_mode() is found
    assert await find_mode("group") == Found("group", None)
    assert (await find_mode("pidns")).mode in ("pidns", found.mode)
    for name, value in (("frozen", True), ("executable", ""), ("executable", "/usr/bin/app")):
        with monkeypatch.context() as patch:
            patch.setattr(modes, "_found", {})
            patch.setattr(sys, name, value, raising=False)
            refused = await find_mode()
        assert refused.mode == "group"
        assert refused.reason is not None
        assert refused.reason.endswith(".")


async def test_a_guardian_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "guardian_file", lambda: "/nonexistent/guardian.py")
    with pytest.raises(CliError, match="guardian"):
        await start("scope", ["true"])
    monkeypatch.setattr(modes, "_found", {})
    found = await find_mode()
    assert (found.mode, "guardian" in str(found.reason)) == ("group", True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (None, None),
        ("abi 0", "no Landlock"),
        ("abi 5", "ABI 5"),
        ("refused 7", os.strerror(7)),
        ("witness", "cannot be tested"),
        ("open", "did not hold"),
    ],
)
def test_every_weakness_has_its_sentence(words: str | None, told: str | None) -> None:
    sentence = modes._sentence(words)
    assert sentence == told or (told is not None and told in str(sentence))


# ---- the protocol


@given(st.binary(max_size=200), st.integers(0, 50))
def test_no_noise_breaks_the_reader(noise: bytes, cut: int) -> None:
    report = Report()
    for piece in (
        noise[:cut],
        noise[cut:],
        b"\nM loop abi 5\nP 77\nX 256 0.5 0.25 4096\nK 8 6162\nD x\n",
    ):
        report.feed(piece)
    assert (report.mode, report.weakness, report.leader, report.status) == (
        "loop",
        "abi 5",
        77,
        256,
    )
    assert report.resources is not None
    assert report.resources.peak_bytes == 4096
    assert report.alive[8] == "ab"
    assert report.proven


def test_what_cannot_be_passed_on_is_refused() -> None:
    for argv, environ in ((["a\0"], {}), (["a"], {"N": "\0"}), (["a"], {"N=": "v"})):
        with pytest.raises(ValueError, match=r"null|illegal"):
            pack_program(argv, environ)
