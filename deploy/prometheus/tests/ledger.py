# SPDX-License-Identifier: Apache-2.0
"""The daemon's counters of one rank of a communicator, made from its detail as the daemon makes them. docs/metrics.md defines them."""
import collections
import math

LONGEST_STEP = 30  # seconds; rarer collectives are not of every step
LARGE = 16777216  # bytes; sizes of which the bandwidth is compared
MEMORY = 5  # readings that rates look back on: a minute
MEAN = 10  # seconds in which the weight of an operation in its mean falls to 37 %
MOST_WAITS = 4  # collectives and sizes whose waits are served
TRAFFIC = {'nccl_p2p_send': 'send', 'nccl_p2p_recv': 'recv'}


class RankLedger:
    def __init__(self, is_across_nodes, interval):
        self.is_across_nodes = is_across_nodes
        self.interval = interval
        self.readings = collections.deque([{}], maxlen=MEMORY)
        self.decay = math.exp(-interval / MEAN)
        self.recent = collections.defaultdict(lambda: [0, 0.0])  # weights and seconds of timed operations by kind
        self.means = {}  # seconds of an operation by kind
        self.kernel = {}  # seconds by traffic
        self.steps = self.timed = self.p2p = 0
        self.step_waits = {}  # by kind
        self.largest = None  # collective and size that has moved the most bytes
        self.large = collections.defaultdict(lambda: [0, 0, 0])  # growth of bus bytes, seconds and operations by collective and size

    def advance(self, samples):
        now = kinds_of(samples)
        before = self.readings[-1]
        for kind, counts in now.items():
            self.count(kind, {name: value - before.get(kind, {}).get(name, 0) for name, value in counts.items()})
        self.readings.append(now)
        self.count_steps(now, before)
        self.find_largest(now)

    def count(self, kind, growth):
        timed, operations = growth['timed_operations'], growth['operations']
        recent = self.recent[kind]
        recent[:] = recent[0] * self.decay + timed, recent[1] * self.decay + growth['busy_seconds']
        if timed:
            self.means[kind] = recent[1] / recent[0]
            self.kernel[kind[0]] = self.kernel.get(kind[0], 0) + growth['busy_seconds']
        if kind[0] == 'collective':
            self.timed += timed
        else:
            self.p2p += operations
        if kind[0] == 'collective' and kind[2] >= LARGE:
            self.large[kind] = [growth.get(name, 0) for name in ('bus_bytes', 'busy_seconds', 'timed_operations')]

    def count_steps(self, now, before):
        first = self.readings[0]
        seconds = self.interval * (len(self.readings) - 1)
        lately = {kind: counts['operations'] - first.get(kind, {}).get('operations', 0) for kind, counts in now.items() if kind[0] == 'collective'}
        regular = {kind: operations for kind, operations in lately.items() if operations / seconds > 1 / LONGEST_STEP}
        if not self.is_across_nodes or not regular:
            return
        rarest = min(regular, key=regular.get)
        steps = now[rarest]['operations'] - before.get(rarest, {}).get('operations', 0)
        self.steps += steps
        longest = sorted((kind for kind in regular if kind in self.means), key=self.means.get)[-MOST_WAITS:]
        for kind in longest:
            self.step_waits[kind] = self.step_waits.get(kind, 0) + steps * self.means[kind]

    def find_largest(self, now):
        moved = {kind: counts['bytes'] for kind, counts in now.items() if kind[0] == 'collective' and kind[2] >= LARGE and counts.get('bytes')}
        if moved and (self.largest is None or max(moved.values()) >= 2 * moved[self.largest]):
            self.largest = max(moved, key=moved.get)

    def samples(self, labels):
        """Samples of the rank. NodeLedger and the lowest rank serve those that a node has once."""
        if self.kernel:
            yield 'nccl_rank_kernel_seconds_total', labels, sum(self.kernel.values())
        if self.p2p:
            yield 'nccl_rank_p2p_operations_total', labels, self.p2p
            yield 'nccl_rank_p2p_kernel_seconds_total', labels, sum(seconds for traffic, seconds in self.kernel.items() if traffic != 'collective')
        if self.timed:
            yield 'nccl_rank_timed_operations_total', labels, self.timed
        if self.steps:
            yield 'nccl_rank_steps_total', labels, self.steps
        for (_, collective, size), seconds in self.step_waits.items():
            yield 'nccl_rank_step_wait_seconds_total', labels | {'collective': collective, 'size': str(size)}, seconds


class NodeLedger:
    """Counters of a communicator on a node: in each interval those of the rank that waits least, of the collective and size that has moved the most bytes."""

    def __init__(self):
        self.totals = collections.defaultdict(lambda: [0, 0, 0])
        self.progress = 0

    def advance(self, ranks, progress):
        self.progress += progress
        for kind in {rank.largest for rank in ranks if rank.largest}:
            growths = [rank.large[kind] for rank in ranks if rank.large[kind][0]]
            if growths:
                least = min(growths, key=lambda growth: growth[1] / growth[0])
                self.totals[kind] = [total + more for total, more in zip(self.totals[kind], least)]

    def samples(self, labels):
        yield 'nccl_node_progress_total', labels, self.progress
        for (_, collective, size), totals in self.totals.items():
            for name, value in zip(('bus_bytes', 'busy_seconds', 'timed_operations'), totals):
                yield f'nccl_node_large_{name}_total', labels | {'collective': collective, 'size': str(size)}, value


def kinds_of(samples):
    """Counters by kind of operation: traffic, and of a collective its name and size."""
    kinds = collections.defaultdict(dict)
    for name, labels, value in samples:
        prefix, _, counter = name.removesuffix('_total').partition('_collective_')
        if counter and 'size' in labels:
            kinds['collective', labels['collective'], int(labels['size'])][counter] = value
        for prefix, traffic in TRAFFIC.items():
            if name.startswith(prefix):
                kinds[traffic,][name.removeprefix(prefix + '_').removesuffix('_total')] = value
    return {kind: counts for kind, counts in kinds.items() if 'timed_operations' in counts}
