# SPDX-License-Identifier: Apache-2.0
"""Brings what a plugin has seen into a form in which two runs can be compared.

An event is a text: its start with all fields, and in place of handles the texts of its parents; then its states and stops.
"""
import collections
import re

HANDLE = re.compile(r" #(\d+)")
LINE = re.compile(r"(?P<thread>[UT]) (?P<what>[-+r]\S*) (?P<rest>.*)")


class Event:
    def __init__(self, start):
        self.start = start
        self.later = []

    def text(self):
        return " ".join([self.start, *self.later])


def _without_time(line):
    return re.sub(r" at=\d+", "", line)


def _foreign(text, own_pid):
    """An operation of another process has a context and a parent that mean nothing in this one."""
    pid = re.search(r" pid=(\d+)", text)
    if pid is None:
        return text
    if pid[1] == own_pid:
        return text.replace(pid[0], " pid=own")
    text = re.sub(r" parent=#\d+", " parent=#0", text)
    return re.sub(r" context=\d+", " context=0", text).replace(pid[0], " pid=foreign")


def lines_of(path):
    """Lines of a recording in their order, without what differs between two runs."""
    lines = [_without_time(line) for line in path.read_text().splitlines()]
    own_pid = re.search(r" pid=(\d+)", lines[0])[1]
    foreign = set()
    result = []
    # GPU times begin at the wall clock.
    times = [int(time) for time in re.findall(r" ptimer=(\d+)", "\n".join(lines))]
    first = min((time for time in times if time > 10**18), default=0)
    for line in lines:
        line = re.sub(r" ptimer=(\d{19})", lambda time: f" ptimer=+{int(time[1]) - first}", line)
        text = _foreign(line, own_pid)
        handle = HANDLE.search(text)
        if "pid=foreign" in text:
            foreign.add(handle[1])
        parent = re.search(r" parent=#(\d+)", text)
        if parent and parent[1] in foreign:
            foreign.add(handle[1])
            text = re.sub(r" context=\d+", " context=0", text)
        result.append(text)
    return result


def calls_of(path):
    """Lines of the threads that call NCCL, in their order, without the numbers of handles."""
    return [HANDLE.sub("", re.sub(r" (parent|group)=#\d+", "", line)) for line in lines_of(path) if not line.startswith("T ")]


def events_of(path, without_gpu_times=False, as_version=None):
    """Number of each event of a recording, whatever their order.

    Before the network takes a step, NCCL starts it at every poll, and forgets the former start. While a send has no credit, NCCL reports state 20 at
    every poll. How often differs also between two runs alone.
    """
    events = {}
    rest = []
    lines = lines_of(path)
    for line in _as_seen_by(as_version, lines) if as_version else lines:
        match = LINE.match(line)
        handle = HANDLE.search(line)
        if match is None or handle is None:
            rest.append(line)
        elif match["what"].startswith("+"):
            start = HANDLE.sub("", line[2:], count=1)
            for name, number in re.findall(r" (parent|group)=#(\d+)", start):
                parent = events.get(number)
                named = "0" if number == "0" else parent.start if parent else "unknown"
                start = start.replace(f" {name}=#{number}", f" {name}=({named})")
            event = Event(start)
            events[handle[1] if handle[1] != "0" else object()] = event
        elif handle[1] in events:
            later = events[handle[1]].later
            state = HANDLE.sub("", line[2:])
            if not (later and state == later[-1] and state.startswith("r20 ")):
                later.append(state)
        else:
            rest.append(line)
    is_forgotten = lambda event: event.start.startswith("+ProxyStep") and not event.later
    texts = [event.text() for event in events.values() if not is_forgotten(event)] + rest
    if without_gpu_times:
        texts = [re.sub(r" ptimer=\S+", "", text) for text in texts]
    return collections.Counter(texts)


def _as_seen_by(version, lines):
    """Lines of a recording of a later API, as a plugin of this version sees them: it reads the first fields of a descriptor."""
    if version == 4:
        return _to_v4(lines)
    return [re.sub(r"^init v\d", f"init v{version}", re.sub(r" (variant|tag)=\S+", "", line)) for line in lines]


def _to_v4(lines):
    """Lines of a recording of API v5 or later, as NCCL's shim shows them to a plugin of API v4 (2.30.7 plugin/profiler/profiler_v4.cc)."""
    numbers = {"0": "0"}
    result = []
    for line in lines:
        kind = re.match(r"[UT] \S+?(\w+Api|KernelLaunch)\b", line) or re.match(r"[UT] r\d+ (GroupApi)", line)
        if kind:
            continue
        if line.startswith("init "):
            line = re.sub(r"init v\d", "init v4", line)
        if re.match(r"[UT] \+", line):
            numbers[HANDLE.search(line)[1]] = str(len(numbers))
        group = re.search(r" group=#(\d+)", line)
        if group:
            line = re.sub(r" parent=#\d+", f" parent=#{group[1]}", line.replace(group[0], ""))
            line = re.sub(r" (variant|tag)=\S+", "", line)
        result.append(re.sub(r"#(\d+)", lambda handle: "#" + numbers[handle[1]], line))
    return result
