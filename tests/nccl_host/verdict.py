# SPDX-License-Identifier: Apache-2.0
"""Compares what was recorded of a job with what its ranks called and what its devices did."""
import collections
import dataclasses

KERNEL_CHANNEL_EVENTS = 64  # bit of NCCL's event mask
SIZE_CLASSES = (0, 4096, 65536, 1048576, 16777216, 268435456)
GPU_TICK_NS = 32  # resolution of the device's clock
# The device leaves a kernel so long after its last channel.
EPILOGUE_NS = 500
# Relative error of a duration, as the documents promise.
TOLERANCE = 0.002
FAULTS_SHOWN = 3


@dataclasses.dataclass
class Verdict:
    faults: list = dataclasses.field(default_factory=list)
    operations: int = 0
    timed: int = 0
    compared: int = 0
    missed: int = 0
    wrong: int = 0
    worst: float = 0.0  # relative error of a duration
    losses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    timing: set = dataclasses.field(default_factory=set)
    findings: set = dataclasses.field(default_factory=set)  # kinds

    def add_faults(self, faults):
        self.faults += faults[:FAULTS_SHOWN]
        if len(faults) > FAULTS_SHOWN:
            self.faults.append(f'{len(faults) - FAULTS_SHOWN} more like these')


def judge(played):
    verdict = Verdict()
    if played.is_hung:
        verdict.faults.append('hang')
    elif played.status != 0:
        verdict.faults.append(f'exit {played.status}: {played.output.strip()}')
    if not played.accounts or set(played.accounts) != set(played.processes):
        verdict.faults.append(f'{len(played.accounts)} processes called NCCL, {len(played.processes)} were recorded')
    for pid in sorted(set(played.accounts) & set(played.processes)):
        verdict.add_faults(count_faults(played, played.accounts[pid], played.processes[pid]))
    for process in played.processes.values():
        verdict.losses += process.losses
        for communicator in process.communicators:
            verdict.operations += communicator.operations.total()
            verdict.timed += communicator.timed.total()
            verdict.timing.add((communicator.timing_source, communicator.timing_reason))
    verdict.add_faults(timing_faults(played, verdict))
    judge_times(played, verdict)
    if played.watch:
        verdict.findings = {kind for _, kind, _ in played.watch.findings}
        verdict.add_faults(finding_faults(played.watch))
    return verdict


def finding_faults(watch):
    """A job that goes on has no finding that says that it does not."""
    return [f'the daemon did not answer: {watch.url}'] * (watch.answers == 0) + [
        f'finding {kind} in {count} of {watch.answers} answers: {headline}'
        for (severity, kind, headline), count in sorted(watch.findings.items()) if severity == 'critical']


def size_class(size):
    return max(bound for bound in SIZE_CLASSES if bound <= size)


def announced(played, account):
    """Operations of the account that NCCL announces on this release: (function, message bytes, count)."""
    job, version = played.job, played.rig.version
    counts = collections.Counter()
    for function, size, count in account['operations']:
        counts[function, size] += count
    if not job.may_ask_for_kernel_events(version):
        for function, size, count in account['replayed']:  # inside a node, NCCL announces these by their kernels only
            counts[function, size] -= count
    return [(function, size, count) for (function, size), count in counts.items()
            if not (function == 'Broadcast' and job.joins_broadcasts(version))]


def count_faults(played, account, process):
    """Calls, operations and bytes of one process, exactly."""
    calls, operations, sizes = collections.Counter(), collections.Counter(), collections.Counter()
    for communicator in process.communicators:
        calls += communicator.calls
        operations += communicator.operations
        sizes += communicator.bytes
    expected_operations, expected_sizes = collections.Counter(), collections.Counter()
    for function, size, count in announced(played, account):
        expected_operations[function, size_class(size)] += count
        expected_sizes[function, size_class(size)] += count * size
    expected_calls = collections.Counter(account['calls'])
    ended, timed = operations.total() - account['unfinished'], sum(communicator.timed.total() for communicator in process.communicators)
    return [f'{ended} operations can have ended, {timed} are timed'] * (timed > ended) + [
            f'{name}: {expected.get(key, 0)} {what}, {recorded.get(key, 0)} recorded'
            for what, expected, recorded in (('calls', expected_calls, calls), ('operations', expected_operations, operations),
                                             ('bytes', expected_sizes, sizes))
            for key in sorted(set(expected) | set(recorded), key=str) if expected.get(key, 0) != recorded.get(key, 0)
            for name in [key if isinstance(key, str) else f'{key[0]} from {key[1]} bytes']]


def causes_of(played):
    """Causes of drift that the job made."""
    causes = set()
    if any(of_rank.has_message_with_hidden_parts() for of_rank in played.truth.values()):
        causes.add('parts')
    if any(account['several_roots_in_one_group'] for account in played.accounts.values()):
        causes.add('roots')
    if any(account['replays_after_eager_call'] for account in played.accounts.values()):
        causes.add('replays')
    return causes


def timing_faults(played, verdict):
    job, version = played.job, played.rig.version
    causes = causes_of(played)
    faults = []
    if not job.is_drawn and not played.is_hung and causes != set(job.causes):
        faults.append(f'the job was made with the causes {sorted(job.causes)} of drift, and has {sorted(causes)}')
    if ('none', 'drift') in verdict.timing and not job.drifts(version, causes):
        faults.append('drift without a cause: ' + ', '.join(f'{loss} {count}' for loss, count in sorted(verdict.losses.items())))
    mask = 0
    for communicator in played.poller.communicators.values():
        mask |= communicator.event_mask
    if mask & KERNEL_CHANNEL_EVENTS and not job.may_ask_for_kernel_events(version):
        faults.append(f'kernel events are asked for (mask {mask:#x})')
    if not mask & KERNEL_CHANNEL_EVENTS and job.may_ask_for_kernel_events(version):
        faults.append(f'no kernel events are asked for: {sorted(verdict.timing)}')
    if job.never_timed and verdict.timed:
        faults.append(f'{verdict.timed} operations are timed')
    return faults


def judge_times(played, verdict):
    faults = []
    for key, communicator in played.poller.communicators.items():
        verdict.missed += played.poller.missed(key)
        completions = played.poller.completions.get(key, {}).values()
        faults += sum_faults(played, key, communicator, completions)
        if not communicator.event_mask & KERNEL_CHANNEL_EVENTS:
            continue  # times of the CPU's clock
        truth = played.truth.get((communicator.id, communicator.rank))
        faults += busy_faults(communicator, truth)
        for completion in completions:
            fault, error = time_fault(completion, truth, communicator)
            verdict.compared += 1
            verdict.worst = max(verdict.worst, error)
            if fault:
                verdict.wrong += 1
                faults.append(f'rank {communicator.rank}: {completion.function} {completion.sequence}: {fault}')
    verdict.add_faults(faults)


def sum_faults(played, key, communicator, completions):
    """The sums of a communicator equal its recorded operations, where none was missed."""
    if played.poller.missed(key):
        return []
    recorded = collections.defaultdict(list)
    for completion in completions:
        recorded[completion.function].append(completion)
    faults = []
    for function in sorted(set(recorded) | set(communicator.timed)):
        of_function = recorded[function]
        operations, sizes, busy_ns = communicator.timed.get(function, (0, 0, 0))
        if (operations, sizes) != (len(of_function), sum(completion.bytes for completion in of_function)):
            faults.append(f'{function}: {operations} timed operations of {sizes} bytes, {len(of_function)} in the ring')
        if all(completion.members == 1 for completion in of_function):
            spans_ns = sum(completion.stop_ns - completion.start_ns for completion in of_function)
            if busy_ns != spans_ns:
                faults.append(f'{function}: busy for {busy_ns} ns, operations took {spans_ns} ns')
    return faults


def busy_faults(communicator, truth):
    """Kernels of a communicator run one after the other. A kernel may have collectives, sends and receives, each with its whole time."""
    busy_ns = collections.Counter()
    for function, (_, _, of_function_ns) in communicator.timed.items():
        busy_ns[function if function in ('Send', 'Recv') else 'collectives'] += of_function_ns
    spans = [(kernel.gpu_start_ns, kernel.gpu_stop_ns) for kernel in truth.kernels] if truth else []
    span_ns = max((stop for _, stop in spans), default=0) - min((start for start, _ in spans), default=0)
    return [f'rank {communicator.rank}: {what}: busy for {busy} ns, and the kernels of all are {span_ns} ns from the first to the last'
            for what, busy in busy_ns.items() if busy > span_ns]


def time_fault(completion, truth, communicator):
    """The fault of the recorded times, or None; and the relative error of the duration if the operation was alone in its launch."""
    kernel = truth.kernel_of(completion) if truth else None
    if kernel is None:
        return 'no kernel of the device is this operation', 0.0
    start, stop = completion.start_ns, completion.stop_ns
    if start < kernel.gpu_start_ns - GPU_TICK_NS or stop > kernel.gpu_stop_ns + GPU_TICK_NS or stop < start:
        other = truth.kernel_at(start, stop, GPU_TICK_NS)
        of = f'kernel {other.number}' if other else 'no kernel'
        return f'its kernel is {kernel.number}, its times are those of {of}', 0.0
    if completion.members > max(kernel.members(), 1):
        return f'{completion.members} members in a launch of {kernel.members()}', 0.0
    # Between nodes the device's stop is read when its thread comes to it.
    if kernel.members() != 1 or communicator.nodes > 1:
        return None, 0.0
    expected = kernel.gpu_stop_ns - EPILOGUE_NS - kernel.gpu_start_ns
    error = abs(stop - start - expected)
    if error > 2 * GPU_TICK_NS + expected * TOLERANCE:
        return f'took {stop - start} ns, its kernel {expected} ns', error / expected
    return None, error / expected
