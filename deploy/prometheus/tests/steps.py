# SPDX-License-Identifier: Apache-2.0
"""A job played step by step, as GPUs run it: for cases that shares of the time (cluster.py) cannot describe.

Kernels on one stream run one after the other, those on different streams side by side. A kernel of a collective runs from its own start until the last
rank has come, and its transfer. A pair of a send and a receive is the same between two ranks.
"""
import collections
import random

from cluster import Cluster, STEP

SURE = 50e-6  # starts that differ by less are not compared


class Kernel:
    def __init__(self, seconds, key=None):
        self.seconds = seconds
        self.key = key  # communicator, rank, what it is counted as
        self.missing = 0  # predecessors that have not ended
        self.after = []
        self.start = 0.0
        self.peers = [self]


class Gpu:
    """Launches of one rank in a step. A stream is a name; `after` are streams whose work so far must be done."""

    def __init__(self, job, rank, ends):
        self.job = job
        self.rank = rank
        self.random = job.random[rank]
        self.ends = ends  # of streams, in steps before
        self.last = {}
        self.kernels = []

    def launch(self, kernel, stream, after):
        for name in {stream, *after}:
            kernel.start = max(kernel.start, self.ends.get(name, 0.0))
            if name in self.last:
                self.last[name].after.append(kernel)
                kernel.missing += 1
        self.last[stream] = kernel
        self.kernels.append(kernel)

    def compute(self, seconds, stream='main', after=()):
        self.launch(Kernel(seconds), stream, after)

    def join(self, *streams):
        self.launch(Kernel(0), 'main', streams)

    def call(self, communicator, seconds=0.001, stream='main', after=('main',), collective='AllReduce', size=16777216):
        kernel = Kernel(seconds, (communicator, self.rank, (collective, size)))
        calls = self.job.calls[communicator, self.rank]
        self.job.calls[communicator, self.rank] += 1
        self.match((communicator, calls), kernel, stream, after)

    def send(self, communicator, to, seconds=0.001, stream='send', after=('main',)):
        self.transfer('send', communicator, self.rank, to, seconds, stream, after)

    def recv(self, communicator, of, seconds=0.001, stream='recv', after=('main',)):
        self.transfer('recv', communicator, of, self.rank, seconds, stream, after)

    def transfer(self, direction, communicator, source, sink, seconds, stream, after):
        calls = self.job.calls[direction, communicator, source, sink]
        self.job.calls[direction, communicator, source, sink] += 1
        self.match((communicator, source, sink, calls), Kernel(seconds, (communicator, self.rank, direction)), stream, after)

    def match(self, name, kernel, stream, after):
        self.job.matches[name].append(kernel)
        kernel.peers = self.job.matches[name]
        self.launch(kernel, stream, after)


class Job(Cluster):
    """`step(gpu, number)` launches what a rank does in a step; gpu.now is when the step begins."""

    def __init__(self, nodes, ranks_per_node, minutes, **traits):
        super().__init__(nodes, ranks_per_node, minutes, **traits)
        self.random = [random.Random(rank) for rank in self.ranks]
        self.calls = collections.Counter()
        self.matches = collections.defaultdict(list)
        self.bins = collections.defaultdict(lambda: [0, 0.0])  # operations and seconds by scrape
        self.arrivals = collections.defaultdict(lambda: [0, 0, 0.0])  # compared, last, lateness
        self.kinds = collections.defaultdict(dict)  # calls by communicator and rank, in order
        self.steps = 0

    def play(self, step):
        ends = {rank: {} for rank in self.ranks}
        now = 0.0
        while now < self.times[-1]:
            gpus = [Gpu(self, rank, ends[rank]) for rank in self.ranks]
            for gpu in gpus:
                gpu.now = now
                step(gpu, self.steps)
            self.run(gpus)
            for gpu in gpus:
                ends[gpu.rank].update({name: kernel.end for name, kernel in gpu.last.items()})
            now = min(end['main'] for end in ends.values())
            self.steps += 1
        return self

    def run(self, gpus):
        kernels = [kernel for gpu in gpus for kernel in gpu.kernels]
        come = collections.Counter()
        ready = [kernel for kernel in kernels if not kernel.missing]
        done = 0
        while ready:
            kernel = ready.pop()
            come[id(kernel.peers)] += 1
            if come[id(kernel.peers)] < len(kernel.peers):
                continue
            end = max(peer.start for peer in kernel.peers) + kernel.seconds
            for peer in kernel.peers:
                peer.end = end
                done += 1
                for follower in peer.after:
                    follower.start = max(follower.start, end)
                    follower.missing -= 1
                    if not follower.missing:
                        ready.append(follower)
            if kernel.key:
                self.count(kernel.peers)
        assert done == len(kernels), 'the ranks call unlike each other'
        self.matches.clear()

    def count(self, peers):
        scrape = int(peers[0].end // STEP) + 1
        local = collections.defaultdict(list)
        for peer in peers:
            self.kinds[peer.key[:2]].setdefault(peer.key[2])
            bin_ = self.bins[peer.key, scrape]
            bin_[0] += 1
            bin_[1] += peer.end - peer.start
            if not isinstance(peer.key[2], str):
                local[self.node(peer.key[1])].append(peer)
        for members in local.values():
            starts = sorted(peer.start for peer in members)
            if len(starts) < 2 or starts[-1] - starts[0] < SURE:
                continue
            for peer in members:
                arrival = self.arrivals[peer.key[:2], scrape]
                arrival[0] += 1
                arrival[1] += peer.start == starts[-1] and starts[-1] - starts[-2] > SURE
                arrival[2] += peer.start - starts[0]

    def waits(self, t):
        return {}

    def advance(self, communicator, rank, t, waits, count):
        scrape = t // STEP
        totals_of = count.setdefault('kinds', {kind: [0, 0.0] for kind in self.kinds[communicator, rank]})
        for kind, totals in totals_of.items():
            bin_ = self.bins.get(((communicator, rank, kind), scrape), (0, 0.0))
            totals[0] += bin_[0]
            totals[1] += bin_[1]
            if bin_[0]:
                count['progress'] = count['moved'] = t
            count['others' if isinstance(kind, str) else 'operations'] += bin_[0]
        arrival = self.arrivals.get(((communicator, rank), scrape), (0, 0, 0.0))
        for name, value in zip(('compared', 'last', 'lateness'), arrival):
            count[name] += value

    def samples(self, communicator, rank, t, count):
        labels = self.labels(communicator, rank)
        timed = self.source(rank) != 'none'
        for kind, (operations, seconds) in count.get('kinds', {}).items():
            if isinstance(kind, str):
                prefix, own = f'nccl_p2p_{kind}', labels
            else:
                prefix, own = 'nccl_collective', labels | {'collective': kind[0], 'size': str(kind[1])}
            yield f'{prefix}_operations_total', own, operations
            yield f'{prefix}_timed_operations_total', own, operations * timed
            yield f'{prefix}_busy_seconds_total', own, seconds * timed
        if len([other for other in communicator.members if self.node(other) == self.node(rank)]) > 1:
            yield 'nccl_collective_last_arrivals_total', labels, count['last']
            yield 'nccl_collective_compared_operations_total', labels, count['compared']
            yield 'nccl_collective_arrival_lateness_seconds_total', labels, count['lateness']
        yield from self.state(communicator, rank, t, count, labels)
