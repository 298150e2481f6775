# SPDX-License-Identifier: Apache-2.0
"""A data parallel job whose ranks send to the same GPU of the next node, with what its timed sends and receives wait for."""
import collections

from cluster import STEP, Cluster
from jobs import alert

HEALTHY = 1 / 40e9  # seconds for a byte on the wire
AHEAD = 10  # by which the host is ahead of its GPU, in the time of a byte
TIMED = 5  # operations per second and direction
TIMED_SHARE = 0.1  # of all operations
DETAIL_EVERY = 4  # scrapes, of which one has the detail


class NetworkJob(Cluster):
    def __init__(self, nodes, ranks_per_node, minutes, **of_communicator):
        super().__init__(nodes, ranks_per_node, minutes)
        self.add('dp', list(self.ranks), **of_communicator)
        # By rank and time, all in the time of a byte on a healthy wire.
        self.wire = lambda rank, t: 1  # to the next node of its rail
        self.computing = lambda rank, t: 0  # its GPU, more than the others
        self.credit = lambda rank, t: 0  # its receiver, which posts late
        self.ahead = lambda rank, t: AHEAD
        self.is_timed = lambda rank, t: True
        self.operations = lambda rank: TIMED
        self.runs = lambda communicator, t: True  # whether it has operations
        self.is_in_windows = lambda communicator, t: True  # whether some of them are
        self.timed_share = TIMED_SHARE
        self.crossing = 1  # share of the bus bytes that cross the network
        self.operation_bytes = 4 << 20
        self.api_version = '6'

    def table(self):
        self.sums = {}  # by communicator and rank
        return super().table()

    def sender(self, rank):
        """That sends to this rank."""
        return (rank - self.ranks_per_node) % len(self.ranks)

    def sends(self, rank, t):
        """Time of a byte: own GPU, receiver, network."""
        rail = [other for other in self.ranks if other % self.ranks_per_node == rank % self.ranks_per_node]
        slowest = max(self.wire(other, t) + self.computing(other, t) + self.credit(other, t) for other in rail)
        return slowest - self.wire(rank, t) - self.credit(rank, t) + self.ahead(rank, t), self.credit(rank, t), self.wire(rank, t)

    def samples(self, communicator, rank, t, count):
        yield from super().samples(communicator, rank, t, count)
        labels = self.labels(communicator, rank)
        yield 'nccl_communicator_info', labels | {'api_version': self.api_version}, 1
        if self.node(rank) == self.node(self.sender(rank)):
            return
        total = sum(self.sends(self.sender(rank), t))
        waits = {'send': dict(zip(('gpu', 'peer', 'network'), self.sends(rank, t))),
                 'recv': {'gpu': 0.1 * total, 'network': 0.88 * total, 'flush': 0.02 * total}}
        timed = STEP * self.operations(rank) if t and self.runs(communicator, t) else 0
        sums = self.sums.setdefault((communicator, rank), collections.Counter())
        sums['all'] += timed / self.timed_share
        operations = timed * (self.is_timed(rank, t) and self.is_in_windows(communicator, t))
        sums['operations'] += operations
        for direction, states in waits.items():
            own = labels | {'direction': direction}
            of_node = self.ranks_per_node * self.operation_bytes / self.crossing
            for state, times in states.items():
                sums[direction, state] += operations * self.operation_bytes * times * HEALTHY
            if sums['operations']:  # a direction without timed operations has no series
                yield 'nccl_network_timed_operations_total', own, sums['operations']
                yield 'nccl_network_timed_bytes_total', own, sums['operations'] * self.operation_bytes
                yield 'nccl_node_network_timed_bus_bytes_total', own, sums['operations'] * of_node
                yield 'nccl_node_network_bus_bytes_total', own, sums['all'] * of_node
                for state in states:
                    yield 'nccl_network_wait_seconds_total', own | {'state': state}, sums[direction, state]

    def put(self, table, index, name, labels, value):
        if not name.startswith(('nccl_network_', 'nccl_node_network_', 'nccl_communicator_info')) or index % DETAIL_EVERY == 0:
            super().put(table, index, name, labels, value)


def of_node(*nodes):
    return [alert('NCCLSlowNetworkNode', hostname=f'gpu-node-{node}') for node in nodes]
