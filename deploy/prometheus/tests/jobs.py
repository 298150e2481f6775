# SPDX-License-Identifier: Apache-2.0
"""Jobs that the cases play, and alerts as they expect them."""
from cluster import Cluster

NOTHING_EVER = object()


class InPods(Cluster):
    """Each process is pid 1 of its own pod, and no global rank is known. Those of the first node are one process with all of its GPUs."""

    def __init__(self, nodes, ranks_per_node, minutes):
        super().__init__(nodes, ranks_per_node, minutes)
        self.global_rank = lambda rank: ''

    def pod(self, rank):
        return {'pod': f'pod-{rank if self.node(rank) else 0}', 'container': 'main'}

    def labels(self, communicator, rank):
        return super().labels(communicator, rank) | self.pod(rank)

    def info_labels(self, communicator, rank):
        return super().info_labels(communicator, rank) | {'pid': '1'}

    def identity(self, rank):
        return super().identity(rank) | self.pod(rank) | {'pid': '1'}


def tensor_and_data_parallel(minutes, beside=False, **traits):
    """4 nodes of 4 ranks: tensor parallel within a node, data parallel across nodes (beside the barrier if asked for), and a barrier of all."""
    cluster = Cluster(4, 4, minutes, **traits)
    for node in range(4):
        cluster.add(f'tp{node}', [4 * node + i for i in range(4)])
    for i in range(4):
        cluster.add(f'dp{i}', [4 * node + i for node in range(4)], beside=beside)
    cluster.add('world', list(range(16)), rate=1)
    return cluster


def data_parallel(minutes, nodes=2, **traits):
    cluster = Cluster(nodes, 4, minutes)
    cluster.add('dp', list(cluster.ranks), **traits)
    return cluster


def pipeline(minutes, stages=4):
    """Each node is a stage of 4 pipelines: ends send and receive half as often as the middle, and no stage is as heavy as the last."""
    cluster = Cluster(stages, 4, minutes)
    for i in range(4):
        members = [4 * stage + i for stage in range(stages)]
        cluster.add(f'pp{i}', members, collective=None, rates={members[0]: 5, members[-1]: 5})
    for stage in range(stages):
        cluster.add(f'dp{stage}', [4 * stage + i for i in range(4)])
    cluster.add('world', list(cluster.ranks), rate=1)
    return cluster


def waiting_for(ranks, at=600, minutes=12):
    """All others wait for these ranks, which are dead from then on."""
    cluster = data_parallel(minutes)
    cluster.hang(cluster.communicators[0], at, cluster.ranks)
    cluster.alive = lambda rank, t: rank not in ranks or t <= at
    cluster.served = lambda rank, t: True
    return cluster


def alert(name, **labels):
    return {'alertname': name, 'nccl_job': '42', 'uid': '1000'} | labels


def rank_alert(name, communicator, rank, node, gpu, **labels):
    return alert(name, comm_name=communicator, rank=str(rank), hostname=f'gpu-node-{node}', gpu=str(gpu), **labels)


def culprit_alert(node, gpu, **labels):
    """One per process and GPU, for all of its communicators."""
    return alert('NCCLHangCulprit', hostname=f'gpu-node-{node}', gpu=str(gpu), **labels)


def every_evaluation(first, last, alerts):
    """`alerts` at each evaluation from minute `first` to minute `last`."""
    return {quarter / 4: alerts for quarter in range(round(first * 4), round(last * 4) + 1)}


def unusable(reason):
    return {'alertname': 'NCCLExporterSegmentsUnusable', 'uid': '1001', 'reason': reason}


def copied_by_another_user(cluster):
    """A copy of the job, its communicators and processes, as another user claims them."""
    copy = same_as(cluster)
    copy.uid = '1001'
    return copy


def beside(cluster, job):
    """Another job of the same user on the same nodes; `job` are its labels."""
    other = same_as(cluster)
    other.job = job
    return other


def same_as(cluster):
    copy = Cluster(len(cluster.ranks) // cluster.ranks_per_node, cluster.ranks_per_node, cluster.times[-1] // 60)
    for communicator in cluster.communicators:
        copy.add(communicator.name, communicator.members)
    cluster.copies.append(copy)
    return copy
