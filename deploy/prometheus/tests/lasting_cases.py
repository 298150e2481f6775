# SPDX-License-Identifier: Apache-2.0
"""Each alert in the same trouble for 100 minutes: it fires after half an hour, after an hour and at the end, and ends with the trouble."""
import math

from cluster import Cluster
from jobs import alert, culprit_alert, data_parallel, rank_alert, unusable
from network_jobs import NetworkJob
from suspect_jobs import FAULTS, SuspectJob, suspect

MINUTE = 60
BEGIN, END = 10, 111  # minutes; the longest memory of the rules is 75
EVALUATIONS = 0.5  # two of them, in minutes
HOLD = 1.5  # of keep_firing_for
LATE_HOLD = 3 * HOLD  # keep_firing_for of late ranks
RATES = 1  # window of rates for stragglers
LONG_RATES = 5  # window of rates for bandwidth and data quality
LAST_MINUTE = END + 10


def in_trouble(t, begin=BEGIN, end=END):
    return begin * MINUTE < t <= end * MINUTE


def until_over(told, ends_after, begin=BEGIN, end=END):
    """`ends_after`: minutes for which the rules cannot know that it is over, or hold the alert."""
    return {begin + 30: told, begin + 60: told, begin + 100: told, end + ends_after + EVALUATIONS: []}


def small(nodes=1, ranks_per_node=4, minutes=LAST_MINUTE, **traits):
    cluster = Cluster(nodes, ranks_per_node, minutes)
    cluster.add('dp', list(cluster.ranks), **traits)
    return cluster


def hanging(inside, until=END * MINUTE, **traits):
    cluster = small()
    cluster.hang(cluster.communicators[0], BEGIN * MINUTE, inside, until=until, **traits)
    return cluster


def a_late_rank():
    cluster = small()
    cluster.late = lambda rank, t: 0.1 if rank == 2 and in_trouble(t) else 0
    told = [rank_alert('NCCLStragglerRank', 'dp', 2, 0, 2), rank_alert('NCCLLastArriver', 'dp', 2, 0, 2)]
    return cluster, until_over(told, 2 * RATES + LATE_HOLD)


def a_late_node():
    cluster = small(4, 2)
    cluster.late = lambda rank, t: 0.1 if cluster.node(rank) == 2 and in_trouble(t) else 0
    return cluster, until_over([alert('NCCLStragglerNode', hostname='gpu-node-2')], RATES + LATE_HOLD)


def the_last_of_two_ranks():
    cluster = small(1, 2)
    cluster.late = lambda rank, t: 0.1 if rank == 1 and in_trouble(t) else 0
    told = [rank_alert('NCCLStragglerRank', 'dp', 1, 0, 1), rank_alert('NCCLLastArriver', 'dp', 1, 0, 1)]
    return cluster, until_over(told, 2 * RATES + LATE_HOLD)


def a_rank_that_never_enters():
    return hanging([0, 1, 2]), until_over([alert('NCCLCollectiveHang'), culprit_alert(0, 3)], HOLD)


def a_rank_in_another_call():
    cluster = hanging(range(4), collectives={3: 'AllGather'})
    return cluster, until_over([alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 3, 0, 3)], HOLD)


def a_transfer_that_never_ends():
    cluster = hanging(range(4))
    return cluster, until_over([alert('NCCLCollectiveHang'), alert('NCCLHangNobodyBehind', comm=cluster.communicators[0].id)], HOLD)


def a_killed_rank_until_the_others_are_killed_too():
    cluster = hanging(range(4), until=math.inf)
    cluster.alive = lambda rank, t: t <= (BEGIN if rank == 3 else END) * MINUTE
    cluster.served = lambda rank, t: t <= ((BEGIN if rank == 3 else END) + 5) * MINUTE  # the retention
    told = [alert('NCCLCollectiveHang')] + [culprit_alert(0, 3), rank_alert('NCCLRanksMissing', 'dp', 3, 0, 3)]
    return cluster, until_over(told, HOLD)


def a_node_that_is_not_reported_until_it_is_back():
    cluster = small(2, 2)
    cluster.scraped = lambda node, t: node == 0 or not in_trouble(t)
    told = [{'alertname': 'NCCLExporterDown'}] + [rank_alert('NCCLRanksMissing', 'dp', rank, 1, rank - 2) for rank in (2, 3)]
    return cluster, until_over(told, HOLD)


def an_exporter_that_never_answered_until_it_does():
    cluster = small(2, 1)
    cluster.scraped = lambda node, t: node == 0 or t > END * MINUTE
    return cluster, until_over([{'alertname': 'NCCLExporterDown'}], 0)


def a_job_that_calls_nothing():
    cluster = small(1, 2)
    cluster.busy = lambda t: not in_trouble(t)
    return cluster, until_over([alert('NCCLJobStalledOutsideCollectives')], 0)


def a_slow_link():
    begin, end = BEGIN + 35, END + 35  # so that there is a past to compare with
    cluster = small(1, 2, minutes=LAST_MINUTE + 35)
    cluster.communicators[0].speed = lambda t: 0.4 if in_trouble(t, begin, end) else 1
    return cluster, until_over([alert('NCCLBandwidthDegraded')], LONG_RATES, begin, end)


def losses():
    cluster = small(1, 2)
    lost = lambda rate: lambda t: rate * (min(max(t, BEGIN * MINUTE), END * MINUTE) - BEGIN * MINUTE)
    cluster.losses = {
        'nccl_process_operations_unfollowed_total{pid="1000",nccl_job="42",uid="1000"}': lost(1),
        'nccl_process_operations_rejected_total{pid="1000",nccl_job="42",uid="1000"}': lost(5),
        'nccl_exporter_series_dropped_total{reason="folded"}': lost(100),
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: int(in_trouble(t)),
    }
    told = [alert('NCCLExporterEventsDropped'), alert('NCCLExporterTimestampsRejected'),
            {'alertname': 'NCCLExporterSeriesDropped', 'reason': 'folded'}, unusable('bad_magic')]
    return cluster, until_over(told, LONG_RATES)


def a_job_without_gpu_times():
    cluster = small(alive=in_trouble)
    cluster.source = lambda rank: 'none'
    return cluster, until_over([alert('NCCLJobNotJudged')], RATES)


def a_slow_adapter():
    cluster = NetworkJob(4, 1, LAST_MINUTE)
    cluster.wire = lambda rank, t: 4 if rank == 1 and in_trouble(t) else 1
    return cluster, until_over([alert('NCCLSlowNetworkNode', hostname='gpu-node-1')], LONG_RATES + 1)


def a_late_rank_that_waits_for_a_cpu():
    job = SuspectJob(LAST_MINUTE, nodes=1)
    job.faults = FAULTS['cpu_wait']
    job.late = lambda rank, t: 0.1 if rank == 2 and in_trouble(t) else 0
    job.faulty = lambda rank, t: rank == 2 and in_trouble(t)
    told = [rank_alert('NCCLStragglerRank', 'dp', 2, 0, 2), rank_alert('NCCLLastArriver', 'dp', 2, 0, 2), suspect('cpu_wait', 2)]
    return job, until_over(told, 2 * RATES + 2 * LATE_HOLD)


def a_job_over_sockets():
    job = SuspectJob(LAST_MINUTE, is_late=False)
    job.verbs = lambda rank, t: 0 if job.node(rank) == 1 and in_trouble(t) else 8
    return job, until_over([alert('NCCLSocketFallback')], HOLD)
