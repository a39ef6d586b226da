"""Random documents with values that break importers: valid JSON, or invalid text as profilers write it."""

import json
from collections.abc import Callable, Iterator
from random import Random

Member = tuple[str, str]
"""A member of an object: a key, and the JSON text of its value."""

NUMBERS = (
    "0", "-1", "1", "7", "-0", "1e3", "1E+400", "-1e999", "1e-999", "0.1", "123456.7891234", "NaN", "Infinity",
    "-Infinity", "2147483648", "4294967296", "4294967303", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551615", "9" * 40, "-" + "9" * 400, "1" + "0" * 5000,
)  # fmt: skip
STRINGS = (
    '""', '" "', '"\\u0000"', '"a\\u0000b"', '"\\ud83d"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\\\\\"\\/\\b\\n"',
    '"\\u001f"', '"π · 火"', '"%s %n {} $"', '"<script>"', '"\';DROP TABLE slice;--"', '"NaN"', '"0x1f"', '"12"',
    f'"{"long " * 20_000}"', '"args.correlation"', '"\ufeff\u2028\u202e"',
)  # fmt: skip
OTHERS = ("null", "true", "false", "[]", "{}", "[[[]]]", '{"a":{"a":[1,{"b":null}]}}', "[1,NaN]", '{"":""}')
DEEP = ("[" * 2000 + "]" * 2000, '{"a":' * 300 + "0" + "}" * 300, "[" * 70 + '"\\ud800"' + "]" * 70)
TIMES = ("-5", "-0.001", "0", "0.0005", "1e15", "1e16", "-1e300", "9223372036854775.807", "9223372036854775807")

PHASES = "XXXXiIRBEbneCCstfMSTpFNODv(),Pc"
CATEGORIES = (
    "cpu_op", "kernel", "Kernel", "gpu_memcpy", "cuda_runtime", "python_function", "user_annotation",
    "gpu_user_annotation", "ac2g", "async", "fwdbwd", "", "Trace", "overhead", "cpu_instant_event",
)  # fmt: skip
NAMES = ("aten::add", "ncclKernel", "ProfilerStep#3", "cudaLaunchKernel", "[memory]", "", "s", "stream 7", "a" * 300)
PLACES = ("0", "1", "2", "7", "-1", '"Spans"', '"7"', '""', "4294967295", "2147483647", "9223372036854775807")
METADATA = (
    "process_name",
    "process_labels",
    "process_sort_index",
    "thread_name",
    "thread_sort_index",
    "stackFrames",
    "",
)
IDS = ("1", "2", "2", "3", "-4", '"0x1f"', '"1f"', '"x"', "18446744073709551615", '"1"', "null", "{}", "1.5")
BASES_US = (0, 0, 10**6, 4_458_676_416_431, 1_735_689_600_000_000)


def document(random: Random) -> str:
    """Return a random document of some dozens of events, or sometimes thousands."""
    events = [*_events(random)]
    if random.random() < 0.3:
        random.shuffle(events)
    joint = random.choice((",", ",\n  ", " , "))
    text = f"[{joint.join(events)}]"
    if random.random() < 0.2:
        return text
    before = random.choice(
        ("", '"schemaVersion": 1, ', '"distributedInfo": {"rank": 3, "world_size": 8}, ', '"a": NaN, ')
    )
    after = random.choice(("", ', "baseTimeNanoseconds": 1735689600000000000', ', "traceName": "\\ud800"'))
    return f'{{{before}"traceEvents": {text}{after}}}'


def _events(random: Random) -> Iterator[str]:
    base = random.choice(BASES_US)
    for make in random.sample(_CROWDS, random.randint(1, 3)):
        yield from map(_text, make(random, base))
    damage = random.choice((0.0, 0.05, 0.3))
    for _ in range(random.randint(1, 120)):
        members = _event(random, base)
        for _ in range(random.randint(1, 3) if random.random() < damage else 0):
            members = _damaged(random, members)
        yield _text(members)


def _text(members: list[Member]) -> str:
    return f"{{{', '.join(f'{json.dumps(key)}: {value}' for key, value in members)}}}"


def _event(random: Random, base: int) -> list[Member]:
    """Return an ordinary event of a random phase."""
    phase = random.choice(PHASES)
    ts = random.choice((str(base + random.randrange(60)), f"{base + random.randrange(60)}.{random.randrange(1000):03}"))
    members = [
        ("ph", json.dumps(phase)),
        ("cat", json.dumps(random.choice(CATEGORIES))),
        ("name", json.dumps(random.choice(METADATA if phase == "M" else NAMES))),
        ("pid", random.choice(PLACES)),
        ("tid", random.choice(PLACES)),
        ("ts", ts),
    ]
    if phase == "X":
        members.append(
            ("dur", random.choice((str(random.randrange(40)), f"{random.randrange(9)}.{random.randrange(999):03}")))
        )
    if phase in "bnestfNODPpSTF(":
        members.append(("id", random.choice(IDS)))
    if phase == "f" and random.random() < 0.5:
        members.append(("bp", '"e"'))
    if phase in "iI":
        members.append(("s", random.choice(('"t"', '"p"', '"g"', '"z"', "1"))))
    if phase == "C":
        members.append(("args", _object(random, NUMBERS)))
    elif phase == "M":
        members.append(
            ("args", f"{{{random.choice(('name', 'labels', 'sort_index'))!r}: {_any(random)}}}".replace("'", '"'))
        )
    elif random.random() < 0.7:
        ids = {key: random.randrange(9) for key in ("correlation", "External id", "device", "stream", "bytes")}
        members.append(("args", json.dumps(ids | {"Collective name": "allreduce"})))
    return members


def _object(random: Random, values: tuple[str, ...]) -> str:
    keys = random.choices(("a", "b", "value", "Total Allocated", "", "\0", "a.b", "a[0]"), k=random.randint(0, 4))
    return f"{{{', '.join(f'{json.dumps(key)}: {random.choice(values)}' for key in keys)}}}"


def _any(random: Random) -> str:
    kind = random.random()
    if kind < 0.03:
        return random.choice(DEEP)
    return random.choice(random.choice((NUMBERS, STRINGS, OTHERS)))


def _damaged(random: Random, members: list[Member]) -> list[Member]:
    """Return the members of an event with one error."""
    at = random.randrange(len(members)) if members else 0
    key = (
        members[at][0] if members else random.choice(("args", "dur", "id", "stack", "tts", "sf", "bp", "id2", "scope"))
    )
    match random.randrange(6):
        case 0:  # a member is missing
            return members[:at] + members[at + 1 :]
        case 1:  # a member is duplicated
            return [*members, (key, _any(random))]
        case 2:
            key = random.choice(("args", "dur", "id", "stack", "tts", "sf", "bp", "id2", "scope", "bind_id", "flow_in"))
            return [*members, (key, _any(random))]
        case 3:
            args = _object(random, NUMBERS + STRINGS + OTHERS + DEEP)
            return [*(member for member in members if member[0] != "args"), ("args", args)]
        case 4:
            return [(key, random.choice(TIMES) if key in ("ts", "dur") else value) for key, value in members]
        case _:  # a member has another value
            return [*members[:at], (key, _any(random)), *members[at + 1 :]]


# -- many events of one kind ------------------------------------------------------------------------------------------

Crowd = Callable[[Random, int], Iterator[list[Member]]]


def _slice(ts: int, dur: int, pid: int = 1, tid: int = 1, name: str = "one", **more: object) -> list[Member]:
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur} | more
    return [(key, json.dumps(value)) for key, value in event.items()]


def _overlaps(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices that overlap in all ways."""
    for _ in range(random.choice((20, 200))):
        yield _slice(base + random.randrange(30), random.randrange(20), tid=random.randrange(2))


def _ties(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices that start at the same time."""
    for _ in range(random.choice((5, 3000))):
        yield _slice(base + 5, random.randrange(3), name=str(random.randrange(9)))


def _ladder(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices that each need a separate lane."""
    for step in range(random.choice((3, 300))):
        yield _slice(base + step, 1000)


def _nest(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices that nest as deep as call stacks."""
    for step in range(random.choice((3, 600))):
        yield _slice(base + step, 2000 - 2 * step)


def _pairs(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield begin and end events that do not match."""
    for _ in range(random.choice((6, 300))):
        event = {"ph": random.choice("BE"), "pid": 1, "tid": random.randrange(3), "ts": base + random.randrange(50)}
        yield [(key, json.dumps(value)) for key, value in (event | {"name": random.choice("ab")}).items()]


def _arrows(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield arrows with repeated ids, and with ends before their starts."""
    for _ in range(random.choice((9, 400))):
        ts = base + random.randrange(40)
        yield _slice(ts, random.randrange(3), tid=random.randrange(3))
        event = {
            "ph": random.choice("ssttff"),
            "pid": 1,
            "tid": random.randrange(3),
            "ts": ts,
            "id": random.randrange(5),
        }
        yield [(key, json.dumps(value)) for key, value in (event | {"cat": random.choice(("ac2g", "x"))}).items()]


def _epochs(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices with times of several clocks."""
    for ts in (0, base, base + 7 * 86_400_000_000, base + 70 * 86_400_000_000, 9_223_372_036_854_775):
        for _ in range(random.randrange(4)):
            yield _slice(ts + random.randrange(3), random.choice((1, 10**13, 9_223_372_036_854_775)))


def _processes(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield slices of a host process and of a device with the same number."""
    for _ in range(20):
        yield _slice(base + random.randrange(50), 3, 7, 7, args={"External id": 1})
        ids = {"device": 7, "stream": 7, "correlation": random.randrange(9)}
        yield _slice(base + random.randrange(50), 3, 7, 7, cat="kernel", args=ids)


def _garbage(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield metadata with values of all kinds."""
    for _ in range(50):
        event = [("ph", '"M"'), ("name", json.dumps(random.choice(METADATA))), ("pid", random.choice(PLACES))]
        yield [*event, ("tid", random.choice(PLACES)), ("ts", str(base)), ("args", _object(random, STRINGS + OTHERS))]


def _asynchronous(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield asynchronous spans without ends, and ends without spans."""
    for _ in range(random.choice((9, 200))):
        event = {
            "ph": random.choice("bbne"),
            "cat": random.choice("xy"),
            "name": random.choice("ab"),
            "pid": 1,
            "tid": 1,
        }
        members = [(key, json.dumps(value)) for key, value in (event | {"ts": base + random.randrange(50)}).items()]
        yield members + ([("id", random.choice(IDS))] if random.random() < 0.9 else [])


def _counters(random: Random, base: int) -> Iterator[list[Member]]:
    """Yield counters, some of whose values are not numbers."""
    for _ in range(60):
        event = {
            "ph": "C",
            "name": random.choice(("", "mem", "m\0")),
            "pid": random.randrange(3),
            "ts": base + random.randrange(50),
        }
        values = random.choice((NUMBERS, NUMBERS + STRINGS + OTHERS))
        args = _object(random, values) if random.random() < 0.9 else random.choice(values)
        yield [*((key, json.dumps(value)) for key, value in event.items()), ("args", args)]


_CROWDS: tuple[Crowd, ...] = (
    _overlaps, _ties, _ladder, _nest, _pairs, _arrows, _epochs, _processes, _garbage, _asynchronous, _counters,
)  # fmt: skip
