# SPDX-License-Identifier: Apache-2.0
"""A cluster of many nodes of 8 ranks, as the pages of their daemons: jobs of three sizes, late ranks, hangs, a silent node, and jobs that restart."""
import dataclasses
import math

RANKS = 8  # of a node
LEAST_NODES = 24  # so that each late rank and each fault has a job of its own
OPERATIONS = 10  # per second, of each collective and size in use
BUSY = 0.05  # seconds per second in the kernels of a collective, without a late rank
SEND_BUSY = 0.01  # seconds per second in the kernels of sends and receives: too little to make a job a pipeline
BYTES = 16e6  # of an operation
BUS_BYTES = 300e6  # per second
LARGE = '16777216'
# Seconds per second that a rank's timed network operations wait, by direction and cause: windows of a tenth of the time.
NETWORK_WAITS = {'send': {'gpu': 0.04, 'peer': 0.001, 'network': 0.01}, 'recv': {'gpu': 0.01, 'network': 0.04, 'flush': 0.001}}
NETWORK_FAMILIES = {f'nccl_network_{name}_total' for name in ('wait_seconds', 'timed_bytes', 'timed_operations')} | {'nccl_communicator_info'}
NETWORK_OPERATIONS, NETWORK_BYTES = 5, 20e6  # per second, the same
SIZES = ('0', '4096', '65536', '1048576', LARGE, '268435456')
FIRST_ELAPSED = 1000  # seconds that jobs have run when the play begins
# Moments in seconds from the beginning of the play, before they are divided by the time scale. The rules record names of ranks
# every 2 minutes. The node falls silent after that, so that its ranks are known and then missing.
HANG_AT, KILL_AT, SILENCE_AT = 60, 75, 240
RETENTION = 300  # a dead process is served for so long
CHURN_CYCLE = 600  # a tenth of the jobs restarts once in this time
RESTART_PAUSE = 20  # a job that restarts has no series for so long
QUIET = 5  # a communicator without progress for so long has the series of a stalled one
# Wobble of the seconds in kernels: 2 % of the rate in a window of a minute, and never a step back.
WOBBLE_SECONDS, WOBBLE_FREQUENCY = 0.6, 0.7

DROPPED = ('no_free_slot', 'reservation_failed', 'in_flight_full', 'abandoned', 'incomplete_at_finalize', 'communicator_drifting', 'foreign_process')
REJECTED = ('zero_timestamp', 'missing_timestamp', 'stop_before_start', 'channels_missing', 'disjoint_channels', 'overlap', 'ring_overrun',
            'longer_than_cpu_time', 'clock_mismatch', 'drift', 'launch_member_untimed', 'phase_mismatch', 'concurrent_recording')
# Signals of a process whose host shows nothing unusual.
HOST_SIGNALS = ('nccl_process_cpu_wait_seconds_total', 'nccl_process_throttled_seconds_total', 'nccl_process_memory_stall_seconds_total',
                'nccl_process_major_faults_total')
# Series of these families exist only while there is trouble of a kind that is not played.
ONLY_IN_TROUBLE = {'nccl_exporter_user_segments_unusable', 'nccl_exporter_user_segment_errors_total', 'nccl_process_operations_unfollowed_total',
                   'nccl_process_operations_rejected_total', 'nccl_process_unserved_communicators', 'nccl_stalled_process_progress'}

TICKS = 0  # clock of counts: whole operations; clock 1 + local rank is the one of its seconds in kernels


@dataclasses.dataclass(frozen=True)
class Fault:
    """From `at` on the job hangs, because rank `local` of its first node has not called ('stuck') or is dead ('killed'); or its last node is 'silent'."""
    kind: str
    at: float
    local: int = 2


@dataclasses.dataclass
class Job:
    index: int
    nodes: range
    late: dict = dataclasses.field(default_factory=dict)  # (node of the job, local rank) -> share of the time that others wait
    restarts_at: float = None  # in each cycle
    fault: Fault = None
    has_pipeline: bool = False

    @property
    def name(self):
        return str(40000 + self.index)


def jobs_of(nodes, time_scale=1):
    """Half of the nodes in one job, a quarter in up to 8 jobs, the rest in jobs of 2 nodes: for 1,024 nodes one of 4,096 ranks, 8 of 256, 128 of 16."""
    if nodes < LEAST_NODES:
        raise SystemExit(f'at least {LEAST_NODES} nodes are needed')
    large, quarter = nodes // 2, nodes // 4
    middle = min(8, quarter // 2)
    sizes = [large] + [quarter // middle] * middle
    left = nodes - sum(sizes)
    sizes += [2] * (left // 2 - left % 2) + [3] * (left % 2)
    jobs, first = [], 0
    for index, size in enumerate(sizes):
        jobs.append(Job(index, range(first, first + size), has_pipeline=0 < index <= middle and size % 2 == 0))
        first += size
    jobs[0].late[(large // 3, 3)] = 0.1
    jobs[1].late[(0, 5)] = 0.06
    small = jobs[middle + 1:]
    small[-1].late[(1, 1)] = 0.2
    # Each has a job of its own, of the smallest where there are enough; none of them restarts.
    for kind, at, job in zip(('stuck', 'killed', 'silent'), (HANG_AT, KILL_AT, SILENCE_AT), [jobs[middle], *small]):
        job.fault = Fault(kind, at / time_scale)
    churning = [job for job in jobs[1:] if not job.fault and not job.late]
    count = max(1, round(len(jobs) / 10))
    for number, job in enumerate(churning[::len(churning) // count][:count]):
        job.restarts_at = (30 + number * CHURN_CYCLE / count) / time_scale
    return jobs


class Cluster:
    """The pages of `nodes` nodes, of which only `families` are kept; all if None. Times are seconds from `epoch`, when the play begins."""

    def __init__(self, nodes, epoch, time_scale=1, families=None):
        self.jobs = jobs_of(nodes, time_scale)
        self.epoch, self.time_scale, self.families = epoch, time_scale, families
        self.job_of = {node: job for job in self.jobs for node in job.nodes}
        self.lines = {}  # of a node: its state, and the lines in it

    def incarnation(self, job, t):
        """Number of the job's restarts, and time of the last one; None while it is away."""
        if job.restarts_at is None or t < job.restarts_at:
            return 0, -FIRST_ELAPSED
        cycle = CHURN_CYCLE / self.time_scale
        count = int((t - job.restarts_at) / cycle) + 1
        began = job.restarts_at + (count - 1) * cycle + RESTART_PAUSE / self.time_scale
        return (count, began) if t >= began else None

    def phase(self, job, t):
        if job.fault is None or job.fault.kind == 'silent' or t < job.fault.at:
            return 'runs'
        if t < job.fault.at + QUIET / self.time_scale:
            return 'stops'
        return 'forgotten' if job.fault.kind == 'killed' and t >= job.fault.at + RETENTION / self.time_scale else 'hangs'

    def is_silent(self, node, t):
        job = self.job_of[node]
        return job.fault is not None and job.fault.kind == 'silent' and node == job.nodes[-1] and t >= job.fault.at

    def page(self, node, now):
        """Text of the page and its number of samples; None if the node does not answer."""
        t = now - self.epoch
        if self.is_silent(node, t):
            return None
        job = self.job_of[node]
        incarnation = self.incarnation(job, t)
        phase = self.phase(job, t)
        state = (incarnation, phase)
        if self.lines.get(node, (None,))[0] != state:
            self.lines[node] = state, self.lines_of(job, node, state)
        elapsed = (min(t, job.fault.at) if phase != 'runs' else t) - (incarnation[1] if incarnation else 0)
        clocks = [math.floor(elapsed * OPERATIONS) / OPERATIONS] + [elapsed + self.wobble(elapsed, node, local) for local in range(RANKS)]
        lines = self.lines[node][1]
        return ''.join([text if rate is None else f'{text}{base + rate * clocks[clock]:.6f}\n' for text, base, rate, clock in lines]), len(lines)

    def wobble(self, elapsed, node, local):
        return WOBBLE_SECONDS / self.time_scale * math.sin(WOBBLE_FREQUENCY * self.time_scale * elapsed + 1.3 * node + 2.1 * local)

    def lines_of(self, job, node, state):
        incarnation, phase = state
        rows = list(self.of_daemon())
        if incarnation is not None:
            for local in range(RANKS):
                if phase != 'forgotten' or node != job.nodes[0] or local != job.fault.local:
                    rows += Rank(self, job, node - job.nodes[0], local, incarnation, phase).rows()
        lines = []
        for family, labels, base, rate, clock in rows:
            if self.families is None or family in self.families:
                inside = ','.join(f'{name}="{value}"' for name, value in labels.items())
                text = f'{family}{{{inside}}} ' if inside else f'{family} '
                lines.append((text, base, rate, clock) if rate else (f'{text}{base:.6f}\n', None, None, None))
        return lines

    @staticmethod
    def of_daemon():
        yield 'nccl_exporter_build_info', {'version': '0.1.0'}, 1, 0, TICKS
        for reason in ('limit', 'uid_limit'):
            yield 'nccl_exporter_series_dropped_total', {'reason': reason}, 0, 0, TICKS

    def alerts(self):
        """Name and identity of each alert that the rules owe, and the moment at which its trouble begins."""
        for job in self.jobs:
            fault = job.fault
            for node, local in job.late:
                yield from ((name, (job.name, str(node * RANKS + local)), 0) for name in ('NCCLStragglerRank', 'NCCLLastArriver'))
            if fault and fault.kind == 'silent':
                yield 'NCCLExporterDown', (f'node{job.nodes[-1]}:9828',), fault.at
                first = (len(job.nodes) - 1) * RANKS
                yield from (('NCCLRanksMissing', (job.name, str(rank)), fault.at) for rank in range(first, first + RANKS))
            elif fault:
                yield 'NCCLCollectiveHang', (job.name,), fault.at
                yield 'NCCLHangCulprit', (job.name, str(fault.local)), fault.at
                if fault.kind == 'killed':
                    yield 'NCCLRanksMissing', (job.name, str(fault.local)), fault.at + RETENTION / self.time_scale

    def truth(self, t):
        """Alerts whose trouble has begun when the play has lasted for `t`: name -> identities as `identity` has them."""
        truth = {name: set() for name in IDENTITY}
        for name, identity_of_alert, began in self.alerts():
            if began <= t:
                truth[name].add(identity_of_alert)
        return truth

    def due(self, t):
        """Those of them that must fire by now, if the rules are evaluated for `t`, since the play began or later."""
        due = {name: set() for name in IDENTITY}
        for name, identity_of_alert, began in self.alerts():
            of_trouble, of_rules = FIRES_WITHIN[name]
            if max(began + of_trouble / self.time_scale, of_rules / self.time_scale) <= t:
                due[name].add(identity_of_alert)
        return due

    def nodes_of(self, labels):
        """Nodes of an alert: that of its target, or all of its job."""
        if labels.get('instance'):
            return [node_of(labels['instance'])]
        return [node for job in self.jobs if job.name == labels.get('nccl_job') for node in job.nodes]


# Labels by which an alert is compared with the truth.
IDENTITY = {'NCCLStragglerRank': ('nccl_job', 'global_rank'), 'NCCLLastArriver': ('nccl_job', 'global_rank'),
            'NCCLHangCulprit': ('nccl_job', 'global_rank'), 'NCCLCollectiveHang': ('nccl_job',), 'NCCLExporterDown': ('instance',),
            'NCCLRanksMissing': ('nccl_job', 'global_rank')}
# Seconds of the shipped rules after which an alert fires at the latest: after its trouble begins, and after the rules begin. Both must have passed. Late and
# missing ranks need names and series of 5 minutes ago.
FIRES_WITHIN = {'NCCLStragglerRank': (0, 480), 'NCCLLastArriver': (0, 480), 'NCCLHangCulprit': (240, 0), 'NCCLCollectiveHang': (240, 0),
                'NCCLExporterDown': (180, 0), 'NCCLRanksMissing': (240, 660)}


def identity(labels):
    """The labels that identify an alert of the truth; None if the truth does not know alerts of this name."""
    names = IDENTITY.get(labels['alertname'])
    return names and tuple(labels.get(name, '') for name in names)


def node_of(instance):
    return int(instance.removeprefix('node').split(':')[0])


class Rank:
    """A process of one rank, and its part of the page: rows of family, labels, base, growth per second, clock."""

    def __init__(self, cluster, job, node, local, incarnation, phase):
        self.cluster, self.job, self.node, self.local, self.phase = cluster, job, node, local, phase
        self.restarts, began = incarnation
        self.began_at = cluster.epoch + began
        self.seconds = 1 + local
        self.labels = {'uid': str(1000 + job.index % 20), 'nccl_job': job.name}
        self.global_rank = node * RANKS + local
        self.pid = 1000 + local + 10 * self.restarts
        self.is_culprit = phase != 'runs' and node == 0 and local == job.fault.local

    def communicators(self):
        """Kind, number among its kind, rank in it, ranks, whether it spans nodes, collectives."""
        size = len(self.job.nodes)
        yield 'tp', self.node, self.local, RANKS, False, ('AllReduce',)
        yield 'dp', self.local, self.node, size, size > 1, ('ReduceScatter', 'AllGather')
        yield 'world', 0, self.global_rank, size * RANKS, size > 1, ('AllReduce',)
        if self.job.has_pipeline:
            yield 'pp', self.node // 2 * RANKS + self.local, self.node % 2, 2, True, ()

    def busy(self, kind, collective):
        """Seconds per second: a late rank does not wait, its neighbours wait in the node, all others in the data parallel group, where they meet first."""
        share = 0
        for (node, local), late in self.job.late.items():
            if kind == 'tp' and self.node == node and self.local != local or kind == 'dp' and self.node != node and collective == 'ReduceScatter':
                share += late
        return BUSY + share

    def waits_in(self, kind):
        """Whether this rank has operations in flight on communicators of that kind. While the job runs, on those within the node. In a hang, the
        culprit's node waits on these, and all other nodes wait for that node."""
        if self.phase == 'runs':
            return kind == 'tp'
        return not self.is_culprit and kind == ('tp' if self.node == 0 else 'dp')

    def lateness(self):
        return self.job.late.get((self.node, self.local), 0)

    def rows(self):
        yield from self.of_process()
        for communicator in self.communicators():
            yield from self.of_communicator(*communicator)

    def of_process(self):
        process = {'pid': self.pid, 'global_rank': self.global_rank} | self.labels
        is_dead = self.is_culprit and self.job.fault.kind == 'killed'
        yield 'nccl_process_alive', process, int(not is_dead), 0, TICKS
        yield 'nccl_process_stopped', process, 0, 0, TICKS
        yield 'nccl_process_halted', process, int(is_dead), 0, TICKS
        busy = sum(self.busy(kind, c) for kind, *_, collectives in self.communicators() for c in collectives)
        yield 'nccl_process_kernel_seconds_total', process, 0, busy + SEND_BUSY * self.job.has_pipeline, self.seconds
        for family in HOST_SIGNALS:
            yield family, process, 0, 0, TICKS
        yield 'nccl_process_verbs_devices', process, 1, 0, TICKS
        if self.job.has_pipeline:
            yield 'nccl_process_p2p_operations_total', process, 0, OPERATIONS, TICKS
        for family, reasons in (('nccl_process_events_dropped_total', DROPPED), ('nccl_process_timestamps_rejected_total', REJECTED)):
            for reason in reasons:
                yield family, process | {'reason': reason}, 0, 0, TICKS

    def of_communicator(self, kind, number, rank, ranks, spans_nodes, collectives):
        identifier = f'{("tp", "dp", "world", "pp").index(kind):02x}{self.job.index:06x}{self.restarts:02x}{number:06x}'
        own = {'comm': identifier, 'comm_name': kind, 'rank': rank, 'gpu': self.local, 'global_rank': self.global_rank} | self.labels
        node = self.job.nodes[self.node]
        names = {
            'gpu_uuid': f'GPU-{node}-{self.local}', 'pci_bus_id': '0000:3b:00.0', 'local_rank': self.local, 'hostname': f'gpu-node-{node}', 'pid': self.pid,
            'timing_source': 'kernel', 'timing_reason': 'default'}
        yield 'nccl_rank_info', own | names, 1, 0, TICKS
        if self.is_lowest_in(kind):
            yield 'nccl_communicator_ranks', own, ranks, 0, TICKS
        yield 'nccl_operations_last_progress_timestamp_seconds', own, self.began_at, 1, TICKS
        yield from self.of_state(kind, own, collectives)
        yield from self.of_progress(kind, own, own | names, ranks, 2 * OPERATIONS * max(len(collectives), 1))
        yield from self.of_collectives(kind, own, spans_nodes, collectives) if collectives else self.of_sends(own, rank)

    def of_state(self, kind, own, collectives):
        """As detail, and those of a communicator that is quiet."""
        in_flight = self.waits_in(kind)
        operations = OPERATIONS * len(collectives)
        for prefix, sequences in (('nccl_', 'nccl_collective_'), *[('nccl_stalled_',) * 2] * self.is_quiet()):
            yield f'{prefix}operations_in_flight', own, int(in_flight), 0, TICKS
            if in_flight:
                oldest = f'{prefix}operations_oldest_in_flight_start_timestamp_seconds'.replace('stalled_operations', 'stalled')
                yield oldest, own | {'function': collectives[0]}, self.began_at, 1, TICKS
            yield f'{sequences}started_sequence', own, int(in_flight), operations, TICKS
            yield f'{sequences}completed_sequence', own, 0, operations, TICKS

    def is_quiet(self):
        return self.phase in ('hangs', 'forgotten')

    def of_progress(self, kind, own, named, ranks, rate):
        """Progress of the node, on its lowest rank, and of a rank that is quiet. The rank's is as older daemons served it, for their rules."""
        in_flight = int(self.waits_in(kind))
        yield 'nccl_rank_progress', own, in_flight, rate, TICKS
        if self.is_lowest_in(kind):
            local = 1 if kind in ('dp', 'pp') else RANKS
            yield 'nccl_node_progress_total', own, in_flight, local * rate, TICKS
        if self.is_quiet():
            yield 'nccl_stalled_progress', own, in_flight, rate, TICKS
            yield 'nccl_stalled_communicator_ranks', named, ranks, 0, TICKS

    def is_lowest_in(self, kind):
        """Whether no rank of the node before this one is in the communicator. The first one never dies."""
        return kind in ('dp', 'pp') or self.local == 0

    def of_collectives(self, kind, own, spans_nodes, collectives):
        operations = OPERATIONS * len(collectives)
        busy = {collective: self.busy(kind, collective) for collective in collectives}
        yield 'nccl_rank_kernel_seconds_total', own, 0, sum(busy.values()), self.seconds
        yield 'nccl_rank_timed_operations_total', own, 0, operations, TICKS
        if spans_nodes:
            if self.is_lowest_in(kind):
                yield 'nccl_rank_steps_total', own, 0, OPERATIONS, TICKS
            yield from self.of_network(own)
            for collective, seconds in busy.items():
                yield 'nccl_rank_step_wait_seconds_total', own | {'collective': collective, 'size': LARGE}, 0, seconds, self.seconds
        if kind != 'dp':  # there is one rank per node, so nothing to compare
            is_last = self.lateness() and kind == 'tp'
            share = 0 if any(node == self.node for node, _ in self.job.late) and kind == 'tp' else 1 / RANKS
            if self.is_lowest_in(kind):
                yield 'nccl_collective_compared_operations_total', own, 0, operations, TICKS
            yield 'nccl_collective_last_arrivals_total', own, 0, operations * (1 if is_last else share), TICKS
            yield 'nccl_collective_arrival_lateness_seconds_total', own, 0, self.lateness() if is_last else share * 0.001, TICKS
        yield from self.of_large(kind, own, collectives[0], busy[collectives[0]])
        for collective in collectives:
            for size in SIZES:
                series, is_used = own | {'collective': collective, 'size': size}, int(size == LARGE)
                yield 'nccl_collective_operations_total', series, 0, OPERATIONS * is_used, TICKS
                yield 'nccl_collective_timed_operations_total', series, 0, OPERATIONS * is_used, TICKS
                yield 'nccl_collective_bytes_total', series, 0, OPERATIONS * BYTES * is_used, TICKS
                yield 'nccl_collective_bus_bytes_total', series, 0, BUS_BYTES * is_used, TICKS
                yield 'nccl_collective_busy_seconds_total', series, 0, busy[collective] * is_used, self.seconds

    def of_network(self, own):
        yield 'nccl_communicator_info', own | {'nnodes': len(self.job.nodes), 'nccl_version': '2.29.7', 'api_version': 6}, 1, 0, TICKS
        for direction, waits in NETWORK_WAITS.items():
            counted = own | {'direction': direction}
            yield 'nccl_network_timed_operations_total', counted, 0, NETWORK_OPERATIONS, TICKS
            yield 'nccl_network_timed_bytes_total', counted, 0, NETWORK_BYTES, TICKS
            for state, seconds in waits.items():
                yield 'nccl_network_wait_seconds_total', counted | {'state': state}, 0, seconds, TICKS

    def of_large(self, kind, own, collective, busy):
        """Large operations of the node's rank that waits least, with the labels of the lowest one. By rank as well, for rules that read it so."""
        large = own | {'collective': collective, 'size': LARGE}
        has_late_neighbour = kind == 'tp' and any(node == self.node for node, _ in self.job.late)
        for level, seconds in [('rank', busy)] + [('node', BUSY if has_late_neighbour else busy)] * self.is_lowest_in(kind):
            yield f'nccl_{level}_large_bus_bytes_total', large, 0, BUS_BYTES, TICKS
            yield f'nccl_{level}_large_busy_seconds_total', large, 0, seconds, self.seconds
            yield f'nccl_{level}_large_timed_operations_total', large, 0, OPERATIONS, TICKS

    def of_sends(self, own, rank):
        """The first stage sends, the second receives."""
        traffic = ('send', 'recv')[rank]
        yield 'nccl_rank_kernel_seconds_total', own, 0, SEND_BUSY, self.seconds
        yield 'nccl_rank_p2p_kernel_seconds_total', own, 0, SEND_BUSY, self.seconds
        yield 'nccl_rank_p2p_operations_total', own, 0, OPERATIONS, TICKS
        yield f'nccl_p2p_{traffic}_operations_total', own, 0, OPERATIONS, TICKS
        yield f'nccl_p2p_{traffic}_timed_operations_total', own, 0, OPERATIONS, TICKS
        yield f'nccl_p2p_{traffic}_bytes_total', own, 0, OPERATIONS * BYTES, TICKS
        yield f'nccl_p2p_{traffic}_busy_seconds_total', own, 0, SEND_BUSY, self.seconds
