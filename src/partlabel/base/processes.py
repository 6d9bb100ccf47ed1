"""Several processes that carry out one command, as ``torchrun`` starts them.

All processes run the same code on the same labels and settings. Work on images is shared out: each
process decodes its share and passes it through the network, and the results are exchanged in the
order of the processes. Everything else, such as losses, queues and pseudo-labels, is computed by
each process on all results, so that it does not depend on the number of processes. The first
process alone writes files. The others have a folder of their own, which is removed in the end.

Within :func:`together`, :func:`size` is the number of processes. Outside of it, and without
``torchrun``, it is 1, and each function here returns at once.
"""

import atexit
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from partlabel.base.errors import InputError, JobError, PartlabelError
from partlabel.base.launch import TIMEOUT, is_launched, launched_rank, number_in, timeout
from partlabel.base.process_meeting import agree_on_name, connect
from partlabel.base.process_words import Words

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class LostProcessError(JobError):
    """Another process ended, hangs, or cannot be reached."""


class _State:
    """What this process knows about the others."""

    together = False
    alone = False
    words: Words | None = None  # set once the processes have met


_state = _State()


# -- who we are ------------------------------------------------------------------------------------


def size() -> int:
    """The number of processes that share the work."""
    return number_in("WORLD_SIZE", 1) if _state.together else 1


def rank() -> int:
    """The number of this process, from 0 on."""
    return launched_rank() if _state.together else 0


def has_whole_batches() -> bool:
    """Whether losses are computed of whole batches in each process, as a training of ours does."""
    return _state.together or _state.alone


def is_first() -> bool:
    """Whether this is the process that writes files."""
    return rank() == 0


# -- together and alone ----------------------------------------------------------------------------


@contextmanager
def together() -> Iterator[None]:
    """Share out the work of this block to all processes of ``torchrun``; all must enter it."""
    if not is_launched():
        if number_in("WORLD_SIZE", 1) > 1:
            raise InputError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torchrun did not start this "
                "process. Start all with `torchrun --nproc-per-node N -m partlabel ...`, or unset "
                "WORLD_SIZE for a single process"
            )
        yield
        return
    if _state.together or _state.alone:
        yield
        return
    _state.together = True
    try:
        if _state.words is None:
            _meet()
        yield
    finally:
        _state.together = False


@contextmanager
def alone() -> Iterator[None]:
    """Do all the work of this block in this process."""
    before = _state.together, _state.alone
    _state.together, _state.alone = False, True
    try:
        yield
    finally:
        _state.together, _state.alone = before


def _meet() -> None:
    """Connect all processes, and check that they run the same versions."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from partlabel.version import VERSION

    seconds = timeout()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store = connect(seconds, hosts=rank() == 0)
        name = agree_on_name(store, rank(), size(), seconds)
        dist.init_process_group(
            backend,
            timeout=timedelta(seconds=seconds),
            store=dist.PrefixStore(name, store),  # type: ignore[attr-defined]
            rank=rank(),
            world_size=size(),
        )
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise LostProcessError(
            f"the {size()} processes did not find each other within {seconds:g} seconds ({error})"
        ) from error
    _state.words = Words.open(name, rank(), size())
    _state.words.names = exchange(_state.words.name)
    agree({"partlabel": VERSION, "torch": torch.__version__})
    atexit.register(_part)


def _part() -> None:
    """Disconnect, so that the others notice at once."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


# -- what is exchanged, always in the order of the processes ---------------------------------------


def exchange(value: T) -> list[T]:
    """The values of all processes."""
    if size() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * size()
    with collective():
        dist.all_gather_object(values, value)
    return values


def collect(value: T) -> list[T]:
    """The values of all processes in the first one; an empty list in the others."""
    if size() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] | None = [None] * size() if is_first() else None
    with collective():
        dist.gather_object(value, values)
    return values or []


def from_first(value: T) -> T:
    """The value of the first process."""
    if size() == 1:
        return value
    import torch.distributed as dist

    values: list[Any] = [value if is_first() else None]
    with collective():
        dist.broadcast_object_list(values)
    return values[0]  # type: ignore[no-any-return]


def average(tensors: "Iterable[Tensor]") -> None:
    """Replace tensors by their means over all processes; their shapes are the same in all."""
    if size() == 1:
        return
    import torch
    import torch.distributed as dist

    kinds: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    with torch.no_grad():
        for same in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in same])
            with collective():
                dist.all_reduce(flat)
            flat /= size()
            means = torch.split(flat, [tensor.numel() for tensor in same])
            for tensor, mean in zip(same, means, strict=True):
                tensor.copy_(mean.view_as(tensor))


def wait_for_all() -> None:
    """Wait until all processes are here, however long that takes while they are alive."""
    if size() > 1 and _state.words is not None:
        try:
            everyone_came = _state.words.wait_for_all(timeout())
        except TimeoutError as error:
            raise lost(error) from error
        if not everyone_came:
            raise lost(RuntimeError("another process failed"))


def take_turns(work: Callable[[int], T], tasks: int) -> Iterator[tuple[int, T]]:
    """The number and the result of each task, which one process does alone.

    A process takes the next task when it has finished one. It gets the results of its own tasks at
    once, and those of the others in the end.

    Args:
        work: does the task of a number, from 0 on.
        tasks: the number of tasks.
    """
    if size() == 1:
        yield from ((task, work(task)) for task in range(tasks))
        return
    assert _state.words is not None
    own: dict[int, T] = {}
    queue = _state.words.new_queue()
    while (task := _state.words.next_number(queue)) < tasks:
        with alone():
            own[task] = work(task)
        yield task, own[task]
    wait_for_all()
    for done in exchange(own):
        yield from ((task, result) for task, result in done.items() if task not in own)


def share(rows: Sized, process: int | None = None) -> slice:
    """The rows that belong to a process, this one by default: shares differ by one at most."""
    who, number = rank() if process is None else process, len(rows)
    return slice(who * number // size(), (who + 1) * number // size())


def agree(facts: Mapping[str, object]) -> None:
    """Raise an error unless all processes give the same facts.

    Args:
        facts: what is compared, by its name.
    """
    if size() == 1:
        return
    everyone = exchange({name: str(fact) for name, fact in facts.items()})
    differences = [
        f"{_name(other)} has {name} {theirs[name]}, {_name(0)} has {name} {ours}"
        for name, ours in everyone[0].items()
        for other, theirs in enumerate(everyone)
        if theirs.get(name) != ours
    ]
    if differences:
        raise InputError(
            f"the processes do not agree: {'; '.join(differences[:5])}. All need the same files "
            "and the same installation"
        )


def summary(names: Iterable[object]) -> str:
    """How many names there are, and a hash of them, to be compared by :func:`agree`.

    >>> summary(["a.jpg", "b.jpg"])
    '2 (1f37e9f9)'
    """
    listed = [str(name) for name in names]
    digest = hashlib.blake2b("\x1f".join(listed).encode("utf-8", "surrogateescape"), digest_size=4)
    return f"{len(listed):,} ({digest.hexdigest()})"


@contextmanager
def collective() -> Iterator[None]:
    """Turn the errors of an exchange with other processes into one that says who is missing."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, PartlabelError) or not _is_about_processes(str(error)):
            raise
        raise lost(error) from error


def lost(error: Exception) -> PartlabelError:
    """The error of another process that caused this one, or that another process is missing."""
    words = _state.words
    if words is None:
        return LostProcessError(str(error))
    timed_out = "timed out" in str(error).lower()
    others = words.of_others(timed_out=timed_out)
    if others:
        message = "; ".join(f"{_name(who)}: {text}" for who, (_, text) in others.items())
        kind = InputError if all(code == 2 for code, _ in others.values()) else JobError
        return kind(message)
    silent = [who for who in range(size()) if who != rank()]
    if timed_out:
        silent = words.silent()
    names = ", ".join(_name(who) for who in silent)
    what = f"no answer within {timeout():g} seconds ({TIMEOUT})" if timed_out else "no connection"
    return LostProcessError(
        f"{what} from {names}: it ended, hangs, or its network is cut. Its log may say more; "
        "`torchrun --max-restarts 3` starts all processes again, and they go on where they were"
    )


def _is_about_processes(text: str) -> bool:
    signs = ("gloo", "nccl", "timed out", "connection", "store", "socket", "peer")
    return any(sign in text.lower() for sign in signs)


def _name(process: int) -> str:
    names = _state.words.names if _state.words is not None else []
    host = f" on {names[process]}" if process < len(names) else ""
    return f"process {process}{host}"


# -- how a process ends ----------------------------------------------------------------------------


def tell_others(error: PartlabelError) -> PartlabelError:
    """Tell the other processes why this one ends; returns the error to show.

    In the first process, that is the error of another one if it is the cause.
    """
    words = _state.words
    if words is None:
        return error
    if launched_rank() == 0:
        cause = error
        if error.exit_code > 128:  # torchrun stops all processes once one has failed
            others = words.of_others(timed_out=False, patience=0.5)
            if others:
                text = "; ".join(f"{_name(who)}: {text}" for who, (_, text) in others.items())
                code = max(code for code, _ in others.values())
                cause = InputError(text) if code == 2 else JobError(text)
        return cause
    if not isinstance(error, LostProcessError) and error.exit_code < 128:
        words.say(error.exit_code, str(error))
    return error


def end(code: int) -> None:
    """Let the other processes end with this one; the first shows its error before they do."""
    words = _state.words
    if words is None or not code:
        return
    if launched_rank() == 0:
        words.end()
        return
    _part()
    if code < 128:
        words.wait_for_end()
