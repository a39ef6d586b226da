"""The sandbox of an engine, in which any SQL can only read its libraries and SQL package, compute, and respond.

This module runs in the process that becomes the engine, and uses only the standard library. On Linux, the sandbox
consists of Landlock (landlock(7): files, TCP, signals to other processes), seccomp(2) (sockets, new processes, other
processes, mounts, metadata of files) and no_new_privs. On all platforms, it sets limits with setrlimit(2).
"""

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/urandom", "/etc/localtime")
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"  # from which glibc learns whether the system has large pages
ENVIRONMENT = ("LANG", "LC_ALL", "TZ")
"""The variables of the server's environment that an engine inherits."""

MAX_FILES = 32  # an engine needs three, and one more while its libraries load

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # the same on every machine
_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of rights by ABI; none are added after 5
_TCP_RIGHTS, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column in the table below, and the AUDIT_ARCH
_CLONE, _CLONE3, _KILL, _TGKILL = (56, 220), (435, 435), (62, 129), (234, 131)
_DENIED = """
    socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242,
    sendto 44 206, sendmsg 46 211, sendmmsg 307 269, fork 57 -, vfork 58 -, execveat 322 281, tkill 200 130,
    rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_open 434 434, pidfd_send_signal 424 424,
    pidfd_getfd 438 438, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272,
    process_madvise 440 440, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429,
    fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, setns 308 268,
    unshare 272 97, name_to_handle_at 303 264, open_by_handle_at 304 265, bpf 321 280, perf_event_open 298 241,
    userfaultfd 323 282, memfd_create 319 279, add_key 248 217, request_key 249 218, keyctl 250 219,
    init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
    reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60, settimeofday 164 170,
    clock_settime 227 112, setrlimit 160 164, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452,
    chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -,
    utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
    fremovexattr 199 16, setxattrat 463 463, removexattrat 466 466
"""
"""System calls that fail with EPERM: name, number on x86-64 (asm/unistd_64.h) and on aarch64 (asm-generic/unistd.h)."""

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # in struct seccomp_data
_X32 = 0x40000000  # numbers from here on are the system calls of the x32 ABI
_CLONE_THREAD = 0x10000


def enter(binary: str, read: list[str]) -> dict[str, int]:
    """Drop all rights that an engine does not need, irrevocably.

    Args:
        binary: the only program that can be run from now on, apart from the loader that it names.
        read: files and folders that can be read, besides the program's libraries.

    Returns:
        The protections by name: `landlock` as its ABI, the others as 1; 0 for those that this platform lacks.

    Raises:
        OSError: a protection of this platform could not be turned on.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails instead of ending the engine
    on = {"limits": 1, "no_new_privs": 0, "landlock": 0, "seccomp": 0}
    if sys.platform == "linux":
        _called(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        on |= {"no_new_privs": 1, "landlock": _landlock(binary, read), "seccomp": _seccomp()}
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
    return on


def environment() -> dict[str, str]:
    """Return the engine's environment: only `ENVIRONMENT`, since the server's other variables may hold secrets."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _landlock(binary: str, read: list[str]) -> int:
    """Restrict files, TCP and signals with Landlock; returns its ABI, or 0 if the kernel lacks Landlock."""
    call = _libc().syscall
    try:
        abi = _called(call(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):  # not built in, not enabled, or not permitted
            return 0
        raise
    handled = (1 << _FILE_RIGHTS[min(abi, max(_FILE_RIGHTS))]) - 1
    attributes = struct.pack("QQQ", handled, _TCP_RIGHTS if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    ruleset = _called(call(_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0))
    _allow(ruleset, binary, _EXECUTE | _READ_FILE)
    if loader := _loader(binary):
        _allow(ruleset, loader, _EXECUTE | _READ_FILE)
        read = [*read, os.path.dirname(os.path.realpath(loader))]  # noqa: PTH120 - its folder may also hold the C library
    for path in (*LIBRARIES, *DEVICES, HUGE_PAGES, *read):
        _allow(ruleset, path, _READ_FILE | _READ_DIR)
    _called(call(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow `rights` on a file, or on the contents of a folder; does nothing if the path can't be opened."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib takes longer to import than all else here
        rights &= ~_READ_DIR  # a right that the kernel accepts for folders only
    rule = struct.pack("=Qi", rights, place)
    _called(_libc().syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0))
    os.close(place)


def _loader(binary: str) -> str | None:
    """Return the loader that an ELF file names (PT_INTERP), which the kernel runs in its place; None without one."""
    try:
        with open(binary, "rb") as file:  # noqa: PTH123
            head = file.read(64)
            if not head.startswith(b"\x7fELF\x02"):
                return None
            offset, size, count = *struct.unpack_from("Q", head, 32), *struct.unpack_from("HH", head, 54)
            file.seek(offset)
            for kind, _, start, _, _, length, _, _ in struct.iter_unpack("IIQQQQQQ", file.read(size * count)):
                if kind == 3:
                    file.seek(start)
                    return os.fsdecode(file.read(length).rstrip(b"\0"))
    except (OSError, struct.error):  # then the file can't be run either; the attempt reports the reason
        pass
    return None


def _seccomp() -> int:
    """Forbid system calls that no engine needs; returns 1, or 0 if the kernel or the machine has no seccomp."""
    if platform.machine() not in _MACHINES:
        return 0
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _filter(*_MACHINES[platform.machine()]))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    try:
        _called(_libc().prctl(_PR_SET_SECCOMP, 2, header, 0, 0))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):
            return 0
        raise
    return 1


def _filter(column: int, architecture: int) -> list[tuple[int, int, int, int]]:
    """Return the filter as classic BPF instructions: (code, steps to skip if true, steps to skip if false, operand)."""
    deny, unknown = (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    allow = (_RETURN, 0, 0, _ALLOW)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        deny,
        (_IF_EQUAL, 0, 1, _CLONE3[column]),
        unknown,  # ENOSYS makes the C library call clone, whose flags a filter can check
    ]
    for entry in _DENIED.split(","):
        number = entry.split()[1 + column]
        program += [(_IF_EQUAL, 0, 1, int(number)), deny] if number != "-" else []
    for call, test in (
        (_CLONE[column], (_IF_ANY_BIT, 0, 1, _CLONE_THREAD)),
        (_KILL[column], (_IF_EQUAL, 0, 1, os.getpid())),  # this is also the engine's process id: execve(2) keeps it
        (_TGKILL[column], (_IF_EQUAL, 0, 1, os.getpid())),
    ):
        program += [(_IF_EQUAL, 0, 4, call), (_LOAD, 0, 0, _FIRST_ARGUMENT), test, allow, deny]
    return [*program, allow]


def trial() -> dict[str, int]:
    """Enter the sandbox and try forbidden actions; returns the protections as `enter` does.

    Raises:
        SystemExit: a protection is on, but has no effect.
    """
    on = enter(sys.executable, [])
    attempts: list[tuple[str, Callable[[], int]]] = [
        ("landlock", lambda: os.open("/proc/self/status", os.O_RDONLY)),
        ("seccomp", lambda: _called(_libc().socket(1, 1, 0))),
    ]
    for name, attempt in attempts:
        if on[name]:
            try:
                attempt()
            except PermissionError:
                continue
            sys.exit(f"{name} is on, but has no effect")
    return on


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trial()))
