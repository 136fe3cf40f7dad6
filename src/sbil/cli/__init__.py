"""The command line: one file per command. Its first line says what it does, its dataclass gives the options.

Nothing here imports JAX before a command runs, so help and error messages appear at once.
"""

import contextlib
import errno
import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from sbil.cli import programs
from sbil.errors import UserError, unknown
from sbil.version import __version__

# The order of the help. Commands that are not named here come after these, by name.
ORDER = (
    *("quickstart", "check", "view", "train", "evaluate", "compare", "predict", "export", "show", "verify", "watch"),
    *("demos", "clinical", "reproduce", "report", "algorithms", "info"),
)

INTERRUPTED = "interrupted; nothing finished is lost: train, quickstart and reproduce continue where they stopped."
PATIENCE = 1.5  # seconds from a signal to the end of the process

# Errors of a disk. Every other error of the system is our fault and shows its traceback.
DISK_TROUBLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE),
    *(errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
)

HELP = """usage: sbil COMMAND [options]      (sbil COMMAND --help says more)

Learn a policy from recorded decisions alone: no reward, no simulator, no second try.

commands:
{commands}

examples:
  sbil quickstart
  sbil demos collect --env CartPole-v1 --trajectories 20 --out demos.npz
  sbil train edm --data demos.npz --out policy/
  sbil evaluate policy/ --env CartPole-v1
"""


def commands() -> dict[str, str]:
    """Return the summary of each command by name: the first line of its docstring. No command is imported."""
    found = {}
    for path in Path(__file__).parent.glob("*.py"):
        if summary := re.search(rf'^"""sbil {path.stem}: (.*?)\.?(?:""")?$', path.read_text("utf-8"), re.MULTILINE):
            found[path.stem] = summary[1]
    names = [name for name in ORDER if name in found] + sorted(found.keys() - {*ORDER})
    return {name: found[name] for name in names}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    Status 0: done; 1: `verify` found a difference, or `check` something that stops training; 2: a UserError; 130:
    interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _leaving_promptly():
            _dispatch(words)
            sys.stdout.flush()
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print(f"\n{INTERRUPTED}", file=sys.stderr)
        _leave(130)
    except BrokenPipeError:
        _leave(0)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # rich meets the closed pipe first, and exits with 1
            _leave(0)
        raise
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror}; nothing already written was changed.")


def program() -> None:
    """Run `main` as its own process, which ends at once when it is interrupted.

    The interpreter would first wait for compiled work that still runs, which may take minutes.
    """
    sys.unraisablehook = _unraisable
    programs.keep()
    try:
        main()
    except SystemExit as leaving:
        if leaving.code == 130:
            sys.stderr.flush()
            os._exit(130)
        raise


def _unraisable(trouble: "sys.UnraisableHookArgs") -> None:
    """Exit at once if Ctrl-C came while Python could not raise an error; Python would print it and go on."""
    if issubclass(trouble.exc_type, KeyboardInterrupt):
        _leave_at_once()
    sys.__unraisablehook__(trouble)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt. While a module is imported exit instead: a compiled one must not be half imported."""
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave_at_once() -> None:
    """End the process, after the state of a training that runs was written. This may be in another thread."""
    if running := sys.modules.get("sbil.checkpoint"):
        with contextlib.suppress(Exception):
            running.write_running()
    os.write(2, f"\n{INTERRUPTED}\n".encode())
    os._exit(130)


@contextlib.contextmanager
def _leaving_promptly() -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the command, also while it runs compiled code.

    Python handles a signal between two of its own steps, and a step of training may take many seconds. A thread hears
    of the signal at once, and ends the process if the command has not ended within `PATIENCE`. Files are written whole
    or not at all, so nothing has to be cleaned up.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def listen() -> None:
        while number := os.read(reader, 1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                time.sleep(PATIENCE)
                _leave_at_once()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN or number == signal.SIGTERM:  # in the background Ctrl-C is ignored
            signal.signal(number, _interrupted)
    heard = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(heard)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        os.close(writer)


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        lines = (f"  {name:12} {summary}" for name, summary in commands().items())
        print(HELP.format(commands="\n".join(lines)), end="")
    elif words[0] in ("-V", "--version"):
        print(f"sbil {__version__}")
    elif words[0] not in commands():
        raise unknown("command", words[0], commands())
    else:
        module = import_module(f"sbil.cli.{words[0]}")
        module.run(parse(module.Command, f"sbil {words[0]}", words[1:], module.EXAMPLES))


def parse(command: Any, program: str, words: list[str], examples: Sequence[str]) -> Any:
    """Let tyro read the options into a dataclass; add examples to its help, and make its complaints one line."""
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(command, prog=program, args=words, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as leaving:
        if leaving.code in (0, None):
            print("examples:", *(f"  {example}" for example in examples), sep="\n", flush=True)
            raise
        raise UserError(f"{_one_line(complaint.getvalue(), examples[0])} (see {program} --help)") from None


def _one_line(box: str, example: str) -> str:
    """The first part of a complaint of tyro, without the frame around it, which is drawn in lines or in hyphens.

    A value that belongs to no option comes first, with an example of the command.
    """
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" │╭╮╰╯") for line in box.splitlines()]
    parts = [""]
    for line in lines[1:]:
        if line and set(line) <= {"─", "-"}:
            parts.append("")
        else:
            parts[-1] += f" {line}" if line else ""
    loose = re.search(r"^ Unrecognized options: ([^-\s,][^\s,]*)", "\n".join(parts), re.MULTILINE)
    if loose:
        return f"'{loose[1]}' belongs to no option; each value follows its option, as in: {example}"
    return _plainly(next((part.strip() for part in parts if part), "")) or "these options could not be read"


def _plainly(complaint: str) -> str:
    """A complaint of tyro without the words of Python: --updates must be a whole number. Got '1e3'."""
    value = re.match(r"Error parsing (\S+): .*?(?:: |from \[)('.*?'|\".*?\")(?:\]|\.|$)", complaint)
    kinds = {"int()": "a whole number", "INT": "a whole number", "float": "a number", "FLOAT": "a number"}
    kind = next((words for name, words in kinds.items() if re.search(rf"(?<!\w){re.escape(name)}", complaint)), None)
    if value and kind:
        return f"{value[1]} must be {kind}. Got {value[2]}."
    choice = re.match(r"invalid choice ('.*?') for argument '(\S+)'\. Expected one of \((.*)\)\.", complaint)
    if choice:
        known = ", ".join(sorted({name.strip(" '") for name in choice[3].split(",")} - {"", "None"}))
        return f"{choice[2]} must be one of {known}. Got {choice[1]}."
    return complaint.replace("Expected 1 values.", "It needs one.")


def _fail(message: str) -> None:
    print(f"sbil: {' '.join(message.split())}", file=sys.stderr)
    _leave(2)


def _leave(status: int) -> None:
    """Exit without the interpreter's complaints about a closed pipe; output that is left is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if status != 2 and sys.stdout.closed:
        os._exit(status)
    raise SystemExit(status)
