"""The guardian of one run: a program of its own that stands between the supervisor and a CLI.

    python -I -S guardian.py MODE CONTROL STATUS PARCEL SUPERVISOR SETTLE_MS RUN_ID

It is two processes, so that no single death leaves anything behind:

    supervisor ──▶ OUTER ──▶ INNER ──▶ the leader (the CLI) ──▶ whatever that starts

Both are subreapers: a process of the run that loses its parent, however it arranges that, becomes a
child of INNER, or of OUTER once INNER is gone. So "no child left" (ECHILD from wait4) is a proof that
nothing of the run is left. If INNER dies, OUTER kills what it inherits; if OUTER or the supervisor
dies, INNER sees the end of a pipe or of a process, and kills.

MODE        scope   Landlock keeps signals inside of the run, so one kill(-1) reaches all of it at once
            loop    kill the own children until there is none; orphans become children, so that ends
            pidns   INNER is PID 1 of a new PID namespace
CONTROL     read end of a pipe that the supervisor alone writes: "T" asks the leader's process group
            to end by SIGTERM, "I" by SIGINT; "K", anything else and the end of file kill everything
STATUS      write end of a pipe: what the supervisor is told, see below
PARCEL      memory file with the CLI's command line and environment, see `Program`. Carried so, they
            meet no other limit than at a bare exec, and mean nothing to this interpreter
SUPERVISOR  pidfd of the supervisor, or -1. It tells of its death even if another process, forked from
            it without exec, still holds a copy of CONTROL
SETTLE_MS   how long descendants may live on after the leader has ended by itself
RUN_ID      for whoever reads the process list

Status lines, ASCII words, never waited for; all of them fit into one page:

    M MODE WHY…                 the mode in force; WHY is "-", or why it is not the one asked for:
                                "abi N", "witness", "open", "refused ERRNO"
    P PID                       the leader runs; PID as the supervisor sees it
    E ERRNO                     or: exec failed
    F ERRNO WORDS…              the guardian itself failed, at WORDS; without a P before, nothing ran
    X STATUS USER SYSTEM PEAK   the leader has ended: wait status, CPU seconds, peak memory in bytes
    K PID NAME                  was alive when the kill began; NAME is hex-encoded, "-" if empty
    D inner|outer               proof: nothing is left. The last line

Only built-in modules and ctypes are imported (which imports os): signal, typing, contextlib or
dataclasses would add a quarter to the start time. One file, for the same reason.
"""

import ctypes
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from resource import struct_rusage
    from typing import NoReturn

    Seen = Callable[[int, int, struct_rusage], None]
else:
    import _signal as signal

# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# landlock(7), landlock_create_ruleset(2), landlock_restrict_self(2). These call numbers are the same
# on every architecture but alpha, where the kernel refuses them.
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1 << 0
LANDLOCK_SCOPE_SIGNAL = 1 << 1
LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF = 1 << 0
ABI_WITH_SIGNAL_SCOPE = 6
ABI_WITH_LOG_FLAGS = 7

# unshare(2), mount(2)
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 1 << 1, 1 << 2, 1 << 3
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18

FIRST_PAUSE = 0.0001
LONGEST_PAUSE = 0.02
"""Seconds between two rounds of killing. Only uninterruptible I/O takes more than a few rounds."""

MAX_NAMED = 64
"""How many processes are reported: as many as fit with their names into one atomic write, pipe(7)."""

MAX_VISITED = 1000
"""How many processes are looked at for that."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def attempt(call: "Callable[..., object]", *given: object) -> int:
    """Make a system call whose failure changes nothing; gives its errno, 0 if it succeeded."""
    try:
        call(*given)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def check(what: str, result: int) -> int:
    """Raise what a C function has left in errno if its result says so."""
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    check("prctl", libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def read_all(descriptor: int) -> bytes:
    chunks: list[bytes] = []
    while chunk := os.read(descriptor, 65536):
        chunks.append(chunk)
    return b"".join(chunks)


# ---- the fence


def landlock_abi() -> int:
    """Version of Landlock's interface; 0 if the kernel has none or it is switched off."""
    size, flags = ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_CREATE_RULESET_VERSION)
    return max(0, libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, size, flags))


def raise_fence() -> None:
    """Enter a new Landlock domain: from now on, signals reach this domain and those inside it only.

    Children are born into it, and nobody leaves one. The kernel asks everybody but root to give up
    gaining privileges first.
    """
    files, network = 0, 0  # nothing but signals is restricted
    attributes = (ctypes.c_uint64 * 3)(files, network, LANDLOCK_SCOPE_SIGNAL)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    made = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size, ctypes.c_uint32(0))
    ruleset = check("landlock_create_ruleset", made)
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        # Else each process that a kill(-1) does not reach would be an entry in the audit log.
        quiet = landlock_abi() >= ABI_WITH_LOG_FLAGS
        flags = ctypes.c_uint32(LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF if quiet else 0)
        entered = libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), flags)
        check("landlock_restrict_self", entered)
    finally:
        os.close(ruleset)


def try_signal(pid: int) -> int:
    """The errno that a signal to `pid` would meet, 0 if it would arrive. Sends none: kill(2)."""
    return attempt(os.kill, pid, 0)


class Fence:
    """The knowledge that a fence stands around this process and all that descends from it.

    `fence_off` alone makes one, after it has seen the fence work: without a fence, kill(-1) would end
    every process of the user, and for root the machine.
    """

    def kill_inside(self) -> None:
        """SIGKILL to everything inside of the fence but this process itself.

        One call is enough, however fast the others fork: the kernel lets no fork finish in a process
        that has a fatal signal pending.
        """
        attempt(os.kill, -1, signal.SIGKILL)


def fence_off(witness: int) -> "tuple[Fence | None, str]":
    """Raise the fence and see it stand: `witness` could be signalled before, and is refused now.

    Gives None and the reason when anything but exactly that is seen.
    """
    abi = landlock_abi()
    if abi < ABI_WITH_SIGNAL_SCOPE:
        return None, f"abi {abi}"
    if witness <= 0 or try_signal(witness) != 0:
        return None, "witness"  # a parent with other credentials would prove nothing
    refused = attempt(raise_fence)
    if refused:
        return None, f"refused {refused}"
    if try_signal(witness) != errno.EPERM:
        return None, "open"
    return Fence(), "-"


# ---- what /proc tells


class Proc:
    """One mounted /proc, held open: proc(5). It numbers processes as its own PID namespace does."""

    def __init__(self) -> None:
        self._folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        # Missing in kernels without CONFIG_PROC_CHILDREN.
        self._lists_children = os.access("thread-self/children", os.R_OK, dir_fd=self._folder)

    def me(self) -> int:
        """The pid of the calling process."""
        return int(os.readlink("self", dir_fd=self._folder))

    def children(self, pid: int) -> list[int]:
        """The children of a process, ended ones too; [] if it is gone."""
        if not self._lists_children:
            pids = [int(name) for name in self._names(".") if name.isdigit()]
            return [each for each in pids if self.stat(each)[2] == pid]
        lists = [self._read(f"{pid}/task/{task}/children") for task in self._names(f"{pid}/task")]
        return [int(word) for text in lists for word in text.split()]

    def living(self, root: int) -> list[tuple[int, bytes]]:
        """Pid and name of the descendants of `root` that have not ended, `MAX_NAMED` at most.

        Orphans move up while we look, past places where we have been: so we look until nothing new
        turns up, or there are too many.
        """
        found: list[tuple[int, bytes]] = []
        visited, known = {root}, 0
        while known < len(visited) < MAX_VISITED:
            known = len(visited)
            todo = [root]
            while todo and len(visited) < MAX_VISITED:
                children = self.children(todo.pop())
                todo += children
                for pid in children:
                    if pid not in visited:
                        visited.add(pid)
                        name, state, _ = self.stat(pid)
                        if state not in ("Z", "X", ""):  # zombie, dead, gone
                            found.append((pid, name))
        return found[:MAX_NAMED]

    def stat(self, pid: int) -> tuple[bytes, str, int]:
        """Name, letter of the state and parent of a process; the state is "" if it is gone."""
        text = self._read(f"{pid}/stat")
        start, end = text.find(b"("), text.rfind(b")")  # a name may hold both
        if end < 0:
            return b"", "", 0
        state, parent = text[end + 1 :].split(None, 2)[:2]
        return text[start + 1 : end], state.decode(), int(parent)

    def _names(self, path: str) -> list[str]:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
        except OSError:
            return []
        try:
            return os.listdir(folder)
        except OSError:
            return []
        finally:
            os.close(folder)

    def _read(self, path: str) -> bytes:
        try:
            file = os.open(path, os.O_RDONLY, dir_fd=self._folder)
        except OSError:
            return b""
        try:
            return read_all(file)
        except OSError:
            return b""
        finally:
            os.close(file)


# ---- what the guardian is asked, and what it answers


class Order:
    """The guardian's command line."""

    def __init__(self, words: list[str]) -> None:
        self.mode = words[0]
        self.control, self.status, self.parcel, self.supervisor = map(int, words[1:5])
        self.settle = int(words[5]) / 1000
        """Seconds."""

    def hide_descriptors(self) -> None:
        """Keep them from the CLI."""
        for descriptor in (self.control, self.status, self.parcel, self.supervisor):
            if descriptor >= 0:
                os.set_inheritable(descriptor, False)


class Program:
    """What the leader becomes.

    The parcel's fields are separated by NUL: "PATHS ARGUMENTS", two numbers; so many paths to try one
    after the other; so many arguments, the program's name among them; the environment as NAME=VALUE.
    """

    def __init__(self, parcel: int) -> None:
        head, *fields = os.pread(parcel, os.fstat(parcel).st_size, 0).split(b"\0")
        paths, arguments = map(int, head.split())
        self._paths = fields[:paths]
        self._argv = fields[paths : paths + arguments]
        self._environ = dict(field.split(b"=", 1) for field in fields[paths + arguments :])

    def execute(self) -> int:
        """Become it; comes back only with the errno of the failure, the one that execvp(3) gives."""
        problem = errno.ENOENT
        for path in self._paths:
            if problem in (errno.ENOENT, errno.ENOTDIR):
                problem = attempt(os.execve, path, self._argv, self._environ)
            else:
                attempt(os.execve, path, self._argv, self._environ)
        return problem


class Status:
    """Writes status lines. Whether anybody reads them makes no difference to the guardian."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def say(self, *lines: str) -> None:
        attempt(os.write, self._descriptor, "".join(f"{line}\n" for line in lines).encode())

    def fail(self, error: OSError) -> None:
        self.say(f"F {error.errno} {error.strerror} {error.filename or ''}")

    def leader_ended(self, status: int, usage: "struct_rusage") -> None:
        peak = usage.ru_maxrss * 1024  # getrusage(2): kilobytes
        self.say(f"X {status} {usage.ru_utime:f} {usage.ru_stime:f} {peak}")

    def still_alive(self, found: list[tuple[int, bytes]]) -> None:
        self.say(*(f"K {pid} {name.hex() or '-'}" for pid, name in found))


# ---- signals, reaping, killing


def handle_signals(handling: int) -> None:
    """Ignore or restore every signal and block none; SIGCHLD is never ignored, see wait(2)."""
    for number in range(1, signal.NSIG):
        # Refused for SIGKILL, SIGSTOP, and two that the C library keeps for itself.
        ours = signal.SIG_DFL if number == signal.SIGCHLD else handling
        attempt(signal.signal, number, ours)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def reap(seen: "Seen") -> bool:
    """Reap what has ended, and tell whether any child is left."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        seen(pid, status, usage)


def load_usage() -> None:
    """Load what wait4 answers with, while there is time and file descriptors are to be had."""
    import resource  # noqa: F401  # pyright: ignore[reportUnusedImport]


def kill_everything(proc: Proc, fence: Fence | None, seen: "Seen") -> None:
    """Come back when this subreaper has no child left, hence no descendant; however long it takes.

    A child's number cannot be another's before the child is reaped, which happens here alone. The
    children of a killed child become children, so it is enough to kill those.
    """
    pause = FIRST_PAUSE
    while reap(seen):
        if fence is not None:
            fence.kill_inside()
        for pid in proc.children(os.getpid()):
            attempt(os.kill, pid, signal.SIGKILL)  # refused by a program with other credentials
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def leave_pipes(null: int) -> None:
    """Let go of the CLI's standard streams: somebody waits for their end."""
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


# ---- mode pidns


def enter_namespaces() -> None:
    """Let the next child be PID 1 of a namespace of its own: user_namespaces(7), pid_namespaces(7).

    An unprivileged process may map itself only, and must give up changing its groups for that.
    """
    user, group = os.getuid(), os.getgid()
    check("unshare", libc.unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS))
    own_user, own_group = f"{user} {user} 1", f"{group} {group} 1"
    for name, text in (("setgroups", "deny"), ("uid_map", own_user), ("gid_map", own_group)):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)


def mount_proc() -> None:
    """Mount a /proc that shows this PID namespace, seen in this mount namespace alone."""
    private = ctypes.c_ulong(MS_REC | MS_PRIVATE)
    check("mount /", libc.mount(b"none", b"/", None, private, None))
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC)
    check("mount /proc", libc.mount(b"proc", b"/proc", b"proc", flags, None))


# ---- INNER


class Inner:
    """Starts the leader, serves the supervisor, and ends when nothing of the run is left."""

    def __init__(self, order: Order, status: Status, outside: Proc, outer_lives: int) -> None:
        self._order = order
        self._status = status
        self._outside = self._own = outside
        self._outer_lives = outer_lives
        self._fence: Fence | None = None
        self._child_ended = -1
        self._leader = 0
        self._runs = False
        """Whether the leader, once forked, is not reaped and has not failed to exec."""
        self._why = "-"
        self._report = -1
        self._said = b""
        self._poll = select.poll()
        self._until: float | None = None
        """When the descendants have had their time."""

    def run(self, program: Program, mode: str, why: str, told: int, null: int) -> "NoReturn":
        """Do it all.

        Args:
            mode, why: what OUTER could arrange.
            told: where OUTER reads the leader's pid.
            null: /dev/null.
        """
        try:
            self._why = why
            self._prepare(mode)
            self._start(program, told)
            leave_pipes(null)
            load_usage()
            self._serve()
            self._status.still_alive(self._outside.living(self._outside.me()))
            kill_everything(self._own, self._fence, self._seen)
            self._status.say("D inner")
            os._exit(0)
        except OSError as error:
            self._status.fail(error)
        finally:
            os._exit(1)  # OUTER takes over

    def _prepare(self, mode: str) -> None:
        if mode == "pidns":
            mount_proc()
            self._own = Proc()
        else:
            prctl(PR_SET_CHILD_SUBREAPER, 1)  # fork does not hand it on
        if mode == "scope":
            # A domain inside of OUTER's, so that OUTER is out of reach, and the witness.
            self._fence, self._why = fence_off(os.getppid())
        self._child_ended, write = os.pipe()
        os.set_blocking(self._child_ended, False)
        os.set_blocking(write, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def _start(self, program: Program, told: int) -> None:
        self._report, write = os.pipe()
        os.set_blocking(self._report, False)
        me = os.getpid()
        self._leader = os.fork()
        if self._leader == 0:
            become_leader(program, write, self._outside, me, fenced=self._fence is not None)
        self._runs = True
        os.close(write)
        os.write(told, b"%d" % self._leader)

    def _serve(self) -> None:
        """Come back when everything is to be killed, or nothing is left."""
        control, supervisor = self._order.control, self._order.supervisor
        ours = (control, supervisor, self._outer_lives, self._child_ended, self._report)
        for descriptor in ours:
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)
        while self._until is None or time.monotonic() < self._until:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._patience())}
            if self._report in ready or self._child_ended in ready:
                self._hear()
            if self._child_ended in ready:
                attempt(os.read, self._child_ended, 4096)
                if not reap(self._seen):
                    return
            if supervisor in ready or self._outer_lives in ready:
                return
            if control in ready and not self._obey(os.read(control, 1)):
                return

    def _hear(self) -> None:
        """Take what the new leader says, and pass it on when exec, or its end, has closed the pipe.

        Never waited for: the program may lie on a file system that does not answer.
        """
        if self._report < 0:
            return
        try:
            while data := os.read(self._report, 4096):
                self._said += data
        except BlockingIOError:
            return
        self._poll.unregister(self._report)
        os.close(self._report)
        self._report = -1
        pid, unfenced, problem = parse_report(self._said)
        if unfenced:
            self._fence, self._why = None, f"refused {unfenced}"
        mode = self._order.mode
        if mode == "scope" and self._fence is None:
            mode = "loop"
        self._runs = problem == 0
        answer = f"P {pid or self._leader}" if self._runs else f"E {problem}"
        self._status.say(f"M {mode} {self._why}", answer)

    def _patience(self) -> float | None:
        """Milliseconds until there is something to do by itself."""
        if self._until is None:
            return None
        return max(0.0, self._until - time.monotonic()) * 1000

    def _seen(self, pid: int, status: int, usage: "struct_rusage") -> None:
        if pid == self._leader and self._runs:
            self._runs = False
            self._until = time.monotonic() + self._order.settle
            self._status.leader_ended(status, usage)

    def _obey(self, command: bytes) -> bool:
        """Carry out a polite command; tells whether it was one."""
        polite = {b"T": signal.SIGTERM, b"I": signal.SIGINT}.get(command)
        if polite is None:
            return False
        if self._runs:  # else the group's number may be another's by now
            attempt(os.kill, -self._leader, polite)
            attempt(os.kill, -self._leader, signal.SIGCONT)  # the stopped would not hear of it
        return True


def become_leader(
    program: Program, report: int, outside: Proc, parent: int, *, fenced: bool
) -> "NoReturn":
    """Turn this new process into the CLI.

    Writes to `report` what `parse_report` reads.
    """
    problem = errno.EIO
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        if parent != 1:  # with the PID 1 of its namespace, it ends anyway
            # Sent when the thread ends that forked; INNER has but one.
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
        os.write(report, b"P%d " % outside.me())
        # Inside of INNER's fence, so that the run cannot signal INNER.
        refused = attempt(raise_fence) if fenced else 0
        if refused:
            os.write(report, b"U%d " % refused)
        handle_signals(signal.SIG_DFL)
        problem = program.execute()
    except OSError as error:
        problem = error.errno or errno.EIO
    finally:
        os.write(report, b"E%d " % problem)
        os._exit(127)


def parse_report(text: bytes) -> tuple[int, int, int]:
    """What a new leader has said: its pid as the supervisor sees it; the errno of a fence that was
    wanted and refused; the errno of exec. Each is 0 if it did not say it.
    """
    said = {word[:1]: int(word[1:]) for word in text.split()}
    return said.get(b"P", 0), said.get(b"U", 0), said.get(b"E", 0)


# ---- OUTER


def guard(order: Order, status: Status) -> "NoReturn":
    """Prepare the ground, fork INNER, and outlive it."""
    handle_signals(signal.SIG_IGN)  # the supervisor ends a run, and not by a signal
    order.hide_descriptors()
    program = Program(order.parcel)
    os.close(order.parcel)
    proc, null = Proc(), os.open("/dev/null", os.O_RDWR)
    fence, mode, why = None, order.mode, "-"
    if mode == "pidns":
        enter_namespaces()
    else:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    if mode == "scope":
        fence, why = fence_off(os.getppid())
        mode = "loop" if fence is None else mode
    # Other processes of the user shall neither trace us nor open our descriptors through /proc.
    prctl(PR_SET_DUMPABLE, 0)
    alive_read, alive_write = os.pipe()  # its end tells INNER that OUTER has gone
    told_read, told_write = os.pipe()  # the leader's pid, in case INNER does not see its end
    inner = os.fork()
    if inner == 0:
        os.close(alive_write)
        os.close(told_read)
        Inner(order, status, proc, alive_read).run(program, mode, why, told_write, null)
    for descriptor in (alive_read, told_write, order.control):
        os.close(descriptor)
    leave_pipes(null)
    load_usage()
    ended = outlive(inner)
    if ended != 0:  # else INNER has said it all
        if mode != "pidns":  # a PID 1 is reaped after everything else in its namespace
            take_over(status, proc, fence, told_read)
        status.say("D outer")
    os._exit(0)


def outlive(inner: int) -> int:
    """Wait for INNER's end; gives its wait status. Whoever stops INNER gains nothing by it."""
    while True:
        _, status = os.waitpid(inner, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(inner, signal.SIGCONT)


def take_over(status: Status, proc: Proc, fence: Fence | None, told: int) -> None:
    """INNER has died, and its children are ours: kill them."""
    os.set_blocking(told, False)
    try:
        leader = int(os.read(told, 32) or b"0")
    except BlockingIOError:
        leader = 0

    def seen(pid: int, ended: int, usage: "struct_rusage") -> None:
        if pid == leader:
            status.leader_ended(ended, usage)

    status.still_alive(proc.living(proc.me()))
    kill_everything(proc, fence, seen)


def main() -> None:
    order = Order(sys.argv[1:])
    status = Status(order.status)
    try:
        guard(order, status)
    except OSError as error:
        status.fail(error)
        os._exit(1)


if __name__ == "__main__":
    main()
