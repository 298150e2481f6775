# SPDX-License-Identifier: Apache-2.0
"""A data parallel job with a late rank, and what its daemons, dcgm-exporter and node_exporter say of hosts, GPUs and adapters meanwhile."""
import collections

from cluster import STEP, Cluster
from jobs import alert, rank_alert

LATE, SINCE = 6, 600  # rank 2 of node 1, and from when on
HEALTHY = {'cpu_wait_seconds_total': 0.004, 'major_faults_total': 0.1, 'throttled_seconds_total': 0.002, 'memory_stall_seconds_total': 0.001}
DCGM_GAUGES = {'DCGM_FI_DEV_SM_CLOCK': 1980, 'DCGM_FI_DEV_CLOCKS_EVENT_REASONS': 4, 'DCGM_FI_DEV_XID_ERRORS': 0}
DCGM_COUNTERS = {f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL': 0 for kind in ('CRC_DATA', 'REPLAY', 'RECOVERY')}
NODE_COUNTERS = {f'node_infiniband_{name}_total': 0 for name in ('symbol_error', 'port_errors_received', 'link_error_recovery', 'link_downed')}
NODE_COUNTERS |= {'node_infiniband_port_transmit_wait_total': 20_000}


class SuspectJob(Cluster):
    def __init__(self, minutes=16, nodes=2, is_late=True, exporters=('dcgm', 'node')):
        super().__init__(nodes, 4, minutes)
        self.add('dp', list(self.ranks))
        self.late = lambda rank, t: 0.1 if is_late and rank == LATE and t > SINCE else 0
        self.exporters = exporters
        self.signals = HEALTHY  # of the daemon, that are there
        self.faults = {}  # rates and values by name, in place of the healthy ones, for rank LATE
        self.faulty = lambda rank, t: rank == LATE and t > SINCE
        self.host_label = 'hostname'  # of dcgm-exporter
        self.adapters = lambda rank: f'mlx5_{rank % 4}'
        self.gpu_uuid = lambda rank: f'GPU-{rank}'
        self.verbs = lambda rank, t: None  # devices that its process holds open; None: not known
        self.pci_bus_id = lambda rank: f'0000:{rank % 4 + 1}B:00.0'

    def info_labels(self, communicator, rank):
        return super().info_labels(communicator, rank) | {'adapter': self.adapters(rank), 'gpu_uuid': self.gpu_uuid(rank)}

    def table(self):
        self.sums = collections.Counter()
        return super().table()

    def value(self, name, rank, t, healthy):
        return self.faults[name] if name in self.faults and self.faulty(rank, t) else healthy

    def count(self, name, rank, t, rate):
        self.sums[name, rank] += STEP * self.value(name, rank, t, rate) if t else 0
        return self.sums[name, rank]

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for rank in self.ranks:
            for name, rate in self.signals.items():
                self.put(table, index, f'nccl_process_{name}', self.identity(rank), self.count(name, rank, t, rate))
            if self.verbs(rank, t) is not None:
                self.put(table, index, 'nccl_process_verbs_devices', self.identity(rank), self.verbs(rank, t))
            if 'dcgm' in self.exporters:
                for labels in self.dcgm_labels(rank):
                    for name, healthy in DCGM_GAUGES.items():
                        self.put(table, index, name, labels, self.value(name, rank, t, healthy))
                for name, rate in DCGM_COUNTERS.items():
                    labels = {'gpu_uuid': f'GPU-{rank}', 'nvlink': '3', self.host_label: f'gpu-node-{self.node(rank)}'}
                    self.put(table, index, name, labels, self.count(name, rank, t, rate))
            if 'node' in self.exporters:
                labels = {'job': 'node', 'instance': f'10.0.0.{self.node(rank)}:9100'}
                self.put(table, index, 'node_uname_info', labels | {'nodename': f'gpu-node-{self.node(rank)}', 'release': '6.1'}, 1)
                for name, rate in NODE_COUNTERS.items():
                    device = self.adapters(rank).split(',')[-1]
                    self.put(table, index, name, labels | {'device': device, 'port': '1'}, self.count(name, rank, t, rate))

    def dcgm_labels(self, rank):
        """Labels of each series that a GPU has; with MIG or DRA there are several."""
        yield {'UUID': f'GPU-{rank}', 'gpu': str(rank % 4), 'pci_bus_id': f'00000000:{rank % 4 + 1}B:00.0', self.host_label: f'gpu-node-{self.node(rank)}',
               'job': 'dcgm'}


def straggler():
    return [rank_alert('NCCLStragglerRank', 'dp', LATE, 1, 2), rank_alert('NCCLLastArriver', 'dp', LATE, 1, 2)]


def suspect(cause, rank=LATE):
    return alert('NCCLStragglerSuspect', hostname=f'gpu-node-{rank // 4}', gpu=str(rank % 4), cause=cause)


# By cause: what the late rank has in place of the healthy values.
FAULTS = {
    'cpu_wait': {'cpu_wait_seconds_total': 0.31},
    'cpu_throttled': {'throttled_seconds_total': 0.2},
    'memory_stall': {'memory_stall_seconds_total': 0.15},
    'major_faults': {'major_faults_total': 300},
    'gpu_clock': {'DCGM_FI_DEV_SM_CLOCK': 1200},
    'gpu_throttled': {'DCGM_FI_DEV_CLOCKS_EVENT_REASONS': 68},  # power cap, as all, and heat
    'gpu_xid': {'DCGM_FI_DEV_XID_ERRORS': 48},
    'nvlink_errors': {'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL': 0.5},
    'adapter_errors': {'node_infiniband_symbol_error_total': 0.5},
    'adapter_link_down': {'node_infiniband_link_downed_total': 0.01},
    'adapter_transmit_wait': {'node_infiniband_port_transmit_wait_total': 50_000_000},
}


def with_fault(*causes, **traits):
    job = SuspectJob(**traits)
    for cause in causes:
        job.faults |= FAULTS[cause]
    return job


def sockets(**traits):
    job = SuspectJob(is_late=False, **traits)
    job.verbs = lambda rank, t: 0 if job.node(rank) == 1 else 8
    return job
