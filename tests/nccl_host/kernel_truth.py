# SPDX-License-Identifier: Apache-2.0
"""Kernels of the rig's devices, one per line of the truth files, and the kernel of a recorded operation."""
import bisect
import collections
import dataclasses
import glob
import json


@dataclasses.dataclass
class Kernel:
    number: int  # in the order of the device
    submit_ns: int  # CLOCK_MONOTONIC of the launch
    start_ns: int  # CLOCK_MONOTONIC
    gpu_start_ns: int
    gpu_stop_ns: int
    is_replay: bool
    collectives: list  # function names
    messages: list  # (function, peer, bytes, channels)

    def members(self):
        return len(self.collectives) + len(self.messages)


class RankTruth:
    """Kernels of one rank of one communicator, in the order in which they ran."""

    def __init__(self, rank):
        self.rank = rank
        self.kernels = []
        self.by_sequence = collections.defaultdict(list)  # function -> kernels, one per operation
        self.starts = None

    def add(self, kernel):
        self.kernels.append(kernel)
        for function in kernel.collectives:
            self.by_sequence[function].append(kernel)

    def kernel_of(self, completion):
        """The operation's own kernel: collectives by NCCL's sequence number, sends and receives by the time of their call."""
        if completion.function not in ('Send', 'Recv'):
            of_function = self.by_sequence[completion.function]
            return of_function[completion.sequence] if completion.sequence < len(of_function) else None
        for kernel in self.kernels[self.first_after(completion.call_ns):]:
            if any(function == completion.function and size == completion.bytes for function, _, size, _ in kernel.messages):
                return kernel
        return None

    def first_after(self, call_ns):
        # A replay is announced when the device has come to it; a kernel of a call is launched after the call.
        if self.starts is None:
            self.starts = []
            for kernel in self.kernels:
                at = kernel.start_ns if kernel.is_replay else kernel.submit_ns
                self.starts.append(max(at, self.starts[-1] if self.starts else 0))
        return bisect.bisect_left(self.starts, call_ns)

    def kernel_at(self, start_ns, stop_ns, tolerance_ns):
        """The kernel during which these times of the GPU's clock were, or None."""
        return next((kernel for kernel in self.kernels
                     if kernel.gpu_start_ns - tolerance_ns <= start_ns and stop_ns <= kernel.gpu_stop_ns + tolerance_ns), None)

    def has_message_with_hidden_parts(self):
        """A message to oneself, or one that is cut into more parts than have data (rule 9 of proto/README.md)."""
        return any(peer == self.rank or parts_with_data(size, channels) < channels
                   for kernel in self.kernels for _, peer, size, channels in kernel.messages)


def parts_with_data(size, channels):
    granularity = 4096
    share = -(-size // max(channels, 1))
    part = max(-(-share // granularity), 1) * granularity
    return max(-(-size // part), 1)


def load_truth(prefix):
    """(communicator, rank) -> RankTruth."""
    lines = []
    for path in sorted(glob.glob(f'{prefix}.*.jsonl')):
        with open(path, encoding='utf-8') as file:
            lines += [json.loads(line) for line in file if line.endswith('\n')]  # a killed process leaves half a line
    truth = {}
    for line in sorted(lines, key=lambda line: (line['dev'], line['start'])):
        key = int(line['comm'], 16), line['rank']
        of_rank = truth.setdefault(key, RankTruth(line['rank']))
        of_rank.add(Kernel(line['k'], line['submit'], line['start'], line['gt_start'], line['gt_end'], line['replay'],
                           [operation['func'] for operation in line['ops']], [tuple(message) for message in line['p2p_ops']]))
    return truth
