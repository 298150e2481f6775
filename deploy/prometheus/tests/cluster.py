# SPDX-License-Identifier: Apache-2.0
"""A cluster as Prometheus sees it: what the exporter would serve at each scrape, for promtool's tests.

In every scrape interval all ranks go through the communicators in the order of their definition. A rank comes late by a share of the time; at a
communicator everybody waits for the last one, and from there on all its members are equally late.
"""
import collections
import dataclasses
import math
import re

from ledger import NodeLedger, RankLedger

STEP = 15  # seconds between scrapes
TRANSFER = 0.05  # seconds per second that a communicator moves data
# Series of a daemon that the rules read; the rest is detail, which may be scraped less often.
ALERT_SET = re.compile(
    'up|nccl_exporter_.*|nccl_rank_.*|nccl_communicator_ranks'
    '|nccl_process_(halted|p2p_operations_total|unserved_communicators|operations_unfollowed_total|operations_rejected_total'
    '|cpu_wait_seconds_total|throttled_seconds_total|memory_stall_seconds_total|major_faults_total|verbs_devices)'
    '|nccl_collective_(last_arrivals_total|compared_operations_total|arrival_lateness_seconds_total)|nccl_node_(progress_total|large_.*)|nccl_stalled_.*')
# Detail that the rules of the group nccl_network read. It may be scraped less often, or not at all.
DETAIL_OF_RULES = re.compile('nccl_network_(wait_seconds|timed_bytes|timed_operations)_total|nccl_communicator_info')
# Series of dcgm-exporter and node_exporter that the rules of the group nccl_suspects read where they are there.
OF_OTHERS = re.compile('DCGM_.*|node_.*')
READ_BY_RULES = re.compile(f'{ALERT_SET.pattern}|{DETAIL_OF_RULES.pattern}|{OF_OTHERS.pattern}')
# Series that daemons before these families do not serve.
NOT_OF_OLD_DAEMONS = re.compile(
    'nccl_rank_p2p_.*|nccl_stalled_.*|nccl_node_(progress_total|large_.*)|nccl_process_(halted|operations_unfollowed_total|operations_rejected_total)')
QUIET = 5  # seconds without progress after which a communicator has the series of a stalled one
ONCE_PER_NODE = ('nccl_communicator_ranks', 'nccl_collective_compared_operations_total', 'nccl_rank_steps_total',
                 'nccl_node_network_bus_bytes_total', 'nccl_node_network_timed_bus_bytes_total')
STALLED = {
    'nccl_collective_started_sequence': 'nccl_stalled_started_sequence',
    'nccl_collective_completed_sequence': 'nccl_stalled_completed_sequence',
    'nccl_operations_in_flight': 'nccl_stalled_operations_in_flight',
    'nccl_operations_oldest_in_flight_start_timestamp_seconds': 'nccl_stalled_oldest_in_flight_start_timestamp_seconds',
}


class Communicator:
    def __init__(self, name, members, **traits):
        self.name = name
        self.id = f'{sum(ord(c) * 31 ** i for i, c in enumerate(name)):016x}'
        self.members = members
        self.collective = traits.get('collective', 'AllReduce')  # None: sends and receives
        self.size = traits.get('size', 16777216)
        self.rate = traits.get('rate', 10)  # operations per second and rank
        self.rates = traits.get('rates', {})  # where ranks differ
        self.duty = traits.get('duty', 1)  # share of the operations that is timed
        self.overlap = traits.get('overlap', 1)  # collectives of a step that wait for the same lateness, one more does not
        self.beside = traits.get('beside', False)  # runs beside what comes next, which waits for the same lateness
        self.speed = traits.get('speed', lambda t: 1)  # of the transfer
        self.alive = traits.get('alive', lambda t: True)
        self.ranks = traits.get('ranks', len(members))  # more than members where some have no plugin


@dataclasses.dataclass
class Hang:
    communicator: Communicator
    at: int
    inside: set
    collectives: dict  # by rank, where it is not that of the communicator
    until: float
    ahead: int  # operations that the ranks have completed since the others' last
    stops_all: bool  # else the job goes on in its other communicators


class Cluster:
    def __init__(self, nodes, ranks_per_node, minutes, **traits):
        self.ranks = range(nodes * ranks_per_node)
        self.ranks_per_node = ranks_per_node
        self.times = range(0, minutes * 60 + STEP, STEP)
        self.communicators = []
        self.late = lambda rank, t: 0.0  # share of the time
        self.busy = lambda t: True  # whether the job makes steps
        self.alive = lambda rank, t: True  # whether the process lives
        self.halted = lambda rank, t: False  # whether the process is stopped
        self.served = lambda rank, t: self.alive(rank, t)  # whether its series are still served
        self.replaced = lambda t: False  # whether a process with the same labels lives instead of each: the counters alone are served
        self.scraped = lambda node, t: True
        self.source = lambda rank: 'kernel'
        self.reason = 'default'  # of the source
        self.lost = lambda rank: 0  # completions that were not seen
        self.measured = lambda rank: 1  # factor by which the source of durations is wrong
        self.copies = []  # clusters of other users with the same nodes and times, who copy names and processes
        self.global_rank = str  # of a rank; empty: not known
        self.pci_bus_id = lambda rank: ''
        self.adapter = lambda rank: ''
        self.uid = '1000'  # of the segments' owner
        self.forgets = lambda node, t: False  # whether the node's daemon starts, without the counts that it kept
        self.counts_steps = lambda t: True  # a daemon does not in the first minute after its start
        self.losses = {}  # further series of a target: name with labels, to the value at a time
        self.clock = lambda node, t: 0  # seconds by which the node's clock is wrong
        self.stuck = []  # Hang
        self.old_daemons = set()  # nodes
        self.seen_late = set()  # nodes that are scraped an interval later than the others
        self.job = traits.get('job', {'nccl_job': '42'})
        self.scraped_families = READ_BY_RULES  # for texts, which may read more

    def add(self, *args, **traits):
        self.communicators.append(Communicator(*args, **traits))
        return self.communicators[-1]

    def hang(self, communicator, at, inside, collectives=None, until=math.inf, ahead=0, stops_all=True):
        self.stuck.append(Hang(communicator, at, set(inside), collectives or {}, until, ahead, stops_all))

    def hangs(self, t):
        return [hang for hang in self.stuck if hang.at < t <= hang.until]

    def node(self, rank):
        return rank // self.ranks_per_node

    def target(self, rank):
        return {'job': 'nccl', 'instance': f'node{self.node(rank)}:9828'}

    def labels(self, communicator, rank):
        return {'comm': communicator.id, 'comm_name': communicator.name, 'rank': str(communicator.members.index(rank)),
                'gpu': str(rank % self.ranks_per_node), 'global_rank': self.global_rank(rank), 'uid': self.uid} | self.job | self.target(rank)

    def identity(self, rank):
        return {'pid': str(1000 + rank), 'global_rank': self.global_rank(rank), 'uid': self.uid} | self.job | self.target(rank)

    def waits(self, t):
        """Seconds per second in each communicator, by rank."""
        lateness = {rank: self.late(rank, t) for rank in self.ranks}
        waits = {}
        for communicator in self.communicators:
            if not communicator.alive(t):
                continue
            last = max(lateness[rank] for rank in communicator.members)
            for rank in communicator.members:
                waits[communicator, rank] = TRANSFER / communicator.speed(t) + last - lateness[rank]
                if not communicator.beside:
                    lateness[rank] = last
        return waits

    def series(self, names=re.compile('.*')):
        """For promtool, of the families that `names` matches."""
        table = self.table()
        for copy in self.copies:
            for key, values in copy.table().items():
                if not re.match('(up|nccl_exporter_|process_)', key):
                    table.setdefault(key, {}).update(values)
        return [{'series': key, 'values': ' '.join(f'{values[i]:.9g}' if i in values else
                                                   ('stale' if i - 1 in values else '_') for i in range(len(self.times)))}
                for key, values in table.items() if names.fullmatch(key.split('{')[0]) and not self.is_too_new(key)]

    def is_too_new(self, key):
        """Whether the series is one that the daemon of its node does not know."""
        return NOT_OF_OLD_DAEMONS.match(key) and self.is_on(key, self.old_daemons)

    def table(self):
        """Values of each series by the number of the scrape."""
        self.counters = {}  # of the ledger, by communicator and rank
        self.progress_of = {}  # starts and completions at the last scrape, by communicator and rank
        self.progress_before = {}  # starts and completions at the scrape before, as far as they are counted for a node
        self.node_counters = {}  # those of a node, by communicator and the lowest rank of the node at that time
        table = {}
        counters = {}
        for index, t in enumerate(self.times):
            waits = self.waits(t)
            stopped = any(hang.stops_all for hang in self.hangs(t))
            stuck = [hang.communicator for hang in self.hangs(t)]
            self.p2p_operations = collections.Counter()  # by rank
            for communicator in self.communicators:
                for rank in communicator.members:
                    count = counters.setdefault((communicator, rank), dict.fromkeys(
                        ('operations', 'timed', 'busy', 'bus', 'last', 'lateness', 'compared', 'others', 'progress', 'moved'), 0))
                    if t and communicator.alive(t) and self.busy(t) and not stopped and communicator not in stuck and self.alive(rank, t):
                        self.advance(communicator, rank, t, waits, count)
                    if communicator.alive(t):
                        self.serve(communicator, rank, index, t, count, table)
                    self.p2p_operations[rank] += self.counters[communicator, rank].p2p if (communicator, rank) in self.counters else 0
                if communicator.alive(t):
                    self.serve_nodes(communicator, index, t, table)
            self.add_targets(table, index, t)
        return {key: {index + 1: value for index, value in values.items()} if self.is_on(key, self.seen_late) else values for key, values in table.items()}

    @staticmethod
    def is_on(key, nodes):
        """Whether the series is of one of these nodes."""
        return any(f'instance="node{node}:' in key for node in nodes)

    def put(self, table, index, name, labels, value):
        table.setdefault(name + '{' + ','.join(f'{k}="{v}"' for k, v in labels.items()) + '}', {})[index] = value

    def is_seen(self, rank, t):
        return self.served(rank, t) and self.scraped(self.node(rank), t)

    def serve(self, communicator, rank, index, t, count, table):
        samples = [*self.samples(communicator, rank, t, count)]
        samples += [sample for sample in self.kept(communicator, rank, samples)
                    if self.counts_steps(t) or not sample[0].startswith('nccl_rank_step')]
        if not self.is_seen(rank, t):
            return
        is_lowest = rank == min(self.served_neighbours(communicator, rank, t))
        for name, labels, value in samples:
            if name not in ONCE_PER_NODE or is_lowest:
                self.put(table, index, name, labels, value)

    def served_neighbours(self, communicator, rank, t):
        """Members on the node of this rank."""
        return [other for other in communicator.members if self.node(other) == self.node(rank) and self.served(other, t)]

    def serve_nodes(self, communicator, index, t, table):
        """Counters of a node: those of the lowest rank advance, and go on from 0 with the next one."""
        for rank in communicator.members:
            progress = {(communicator, other): self.progress_of[communicator, other] for other in self.served_neighbours(communicator, rank, t)}
            if self.forgets(self.node(rank), t):
                self.node_counters.pop((communicator, rank), None)
                self.progress_before |= progress
            if progress and rank == min(other for _, other in progress):
                growth = sum(abs(value - self.progress_before.get(key, 0)) for key, value in progress.items())
                self.progress_before |= progress
                self.node_counters.setdefault((communicator, rank), NodeLedger()).advance([self.counters[key] for key in progress], growth)
            if (communicator, rank) in self.node_counters and self.is_seen(rank, t):
                for name, labels, value in self.node_counters[communicator, rank].samples(self.labels(communicator, rank)):
                    self.put(table, index, name, labels, value)

    def kept(self, communicator, rank, samples):
        is_across_nodes = len({self.node(member) for member in communicator.members}) > 1
        counters = self.counters.setdefault((communicator, rank), RankLedger(is_across_nodes, STEP))
        counters.advance(samples)
        return counters.samples(self.labels(communicator, rank))

    def advance(self, communicator, rank, t, waits, count):
        operations = communicator.rates.get(rank, communicator.rate) * STEP
        wait = waits[communicator, rank]
        local = [other for other in communicator.members if self.node(other) == self.node(rank)]
        arrivals = {other: -waits[communicator, other] for other in local}
        count['operations'] += operations
        count['timed'] += operations * communicator.duty
        count['busy'] += (wait + (communicator.overlap - 1) * (wait - TRANSFER / communicator.speed(t))) * STEP * communicator.duty * self.measured(rank)
        count['bus'] += operations * communicator.duty * communicator.size
        count['progress'], count['moved'] = t + self.clock(self.node(rank), t), t
        if communicator.collective and len(local) > 1:
            count['compared'] += operations
            late = sorted(arrivals.values())
            if arrivals[rank] == late[-1] and late[-2] < late[-1]:
                count['last'] += operations
            count['lateness'] += (arrivals[rank] - late[0]) * STEP * communicator.overlap

    def samples(self, communicator, rank, t, count):
        labels = self.labels(communicator, rank)
        timed = count['timed'] if self.source(rank) != 'none' else 0
        if communicator.collective:
            own = labels | {'collective': communicator.collective, 'size': str(communicator.size)}
            yield 'nccl_collective_operations_total', own, count['operations']
            yield 'nccl_collective_bytes_total', own, count['operations'] * communicator.size
            yield 'nccl_collective_timed_operations_total', own, timed
            yield 'nccl_collective_busy_seconds_total', own, count['busy'] if timed else 0
            yield 'nccl_collective_bus_bytes_total', own, count['bus'] if timed else 0
            if communicator.overlap > 1:
                short = labels | {'collective': communicator.collective, 'size': '0'}
                yield 'nccl_collective_operations_total', short, count['operations'] / communicator.overlap
                yield 'nccl_collective_timed_operations_total', short, timed / communicator.overlap
                yield 'nccl_collective_busy_seconds_total', short, 1e-5 * timed / communicator.overlap
            yield 'nccl_collective_last_arrivals_total', labels, count['last']
            yield 'nccl_collective_compared_operations_total', labels, count['compared']
            yield 'nccl_collective_arrival_lateness_seconds_total', labels, count['lateness']
        else:
            for direction in ('send', 'recv'):
                yield f'nccl_p2p_{direction}_operations_total', labels, count['operations'] / 2
                yield f'nccl_p2p_{direction}_timed_operations_total', labels, timed / 2
                yield f'nccl_p2p_{direction}_busy_seconds_total', labels, count['busy'] / 2
        yield from self.state(communicator, rank, t, count, labels)

    def state(self, communicator, rank, t, count, labels):
        if self.replaced(t):
            return
        yield from self.progress(communicator, rank, t, count, labels)
        yield 'nccl_communicator_ranks', labels, communicator.ranks
        yield 'nccl_rank_info', self.info_labels(communicator, rank), 1

    def info_labels(self, communicator, rank):
        return self.labels(communicator, rank) | {
            'hostname': f'gpu-node-{self.node(rank)}', 'gpu_uuid': f'GPU-{rank}', 'pci_bus_id': self.pci_bus_id(rank), 'adapter': self.adapter(rank),
            'pid': str(1000 + rank), 'local_rank': str(rank % self.ranks_per_node), 'timing_source': self.source(rank),
            'timing_reason': self.reason}

    def progress(self, communicator, rank, t, count, labels):
        started = round(count['operations']) if communicator.collective else 0
        others = count['others'] if communicator.collective else round(count['operations'])
        completed = max(started - self.lost(rank), 0)
        in_flight = 0
        progress, moved = count['progress'], count['moved']
        clock = self.clock(self.node(rank), t)
        is_timed = self.source(rank) != 'none'
        state = []
        for hang in self.hangs(t):
            if hang.communicator is communicator and rank in hang.inside and self.served(rank, hang.at):
                started += 1 + hang.ahead if communicator.collective else 0
                others += not communicator.collective
                completed += hang.ahead
                in_flight = 1
                progress, moved = hang.at + clock, hang.at
                own = labels | {'function': hang.collectives.get(rank, communicator.collective or 'Recv')}
                if is_timed:
                    state.append(('nccl_operations_oldest_in_flight_start_timestamp_seconds', own, hang.at + clock))
        state.append(('nccl_collective_started_sequence', labels, started))
        if is_timed:
            state.append(('nccl_collective_completed_sequence', labels, completed))
            state.append(('nccl_operations_in_flight', labels, in_flight))
        yield from state
        own_progress = 2 * (started + others) - in_flight * is_timed
        self.progress_of[communicator, rank] = own_progress
        if t - moved >= QUIET or not self.alive(rank, t) or self.halted(rank, t):
            yield from ((STALLED[name], own, value) for name, own, value in state)
            yield 'nccl_stalled_communicator_ranks', self.info_labels(communicator, rank), communicator.ranks
            yield 'nccl_stalled_progress', labels, own_progress
            if in_flight or not is_timed:
                yield 'nccl_stalled_process_progress', labels, sum(1 + value for (_, other), value in self.progress_of.items() if other == rank)
        if progress:
            yield 'nccl_operations_last_progress_timestamp_seconds', labels, progress

    def add_targets(self, table, index, t):
        for rank in self.ranks:
            if self.is_seen(rank, t):
                labels = self.identity(rank)
                is_alive, is_stopped = self.alive(rank, t), self.halted(rank, t)
                self.put(table, index, 'nccl_process_alive', labels, int(is_alive))
                self.put(table, index, 'nccl_process_stopped', labels, int(is_stopped))
                self.put(table, index, 'nccl_process_halted', labels, int(not is_alive or is_stopped))
                if self.p2p_operations[rank]:
                    self.put(table, index, 'nccl_process_p2p_operations_total', labels, self.p2p_operations[rank])
        for node in {self.node(rank) for rank in self.ranks}:
            labels = f'job="nccl",instance="node{node}:9828"'
            up = self.scraped(node, t)
            table.setdefault(f'up{{{labels}}}', {})[index] = int(up)
            if up:
                for series, value in self.losses.items():
                    name, own = series.rstrip('}').split('{')
                    table.setdefault(f'{name}{{{own},{labels}}}', {})[index] = value(t)
                table.setdefault(f'nccl_exporter_build_info{{{labels},version="1"}}', {})[index] = 1
