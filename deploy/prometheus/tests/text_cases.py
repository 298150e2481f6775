# SPDX-License-Identifier: Apache-2.0
"""Texts of alerts, whole. Each case returns a cluster, a minute, and by alert the labels and annotations of the first one."""
import re

from cluster import Cluster
from jobs import data_parallel, waiting_for
from network_jobs import NetworkJob
from suspect_jobs import sockets, with_fault

RANK_6 = {'rank': '6', 'gpu': '2', 'gpu_uuid': 'GPU-6', 'hostname': 'gpu-node-1', 'pid': '1006', 'global_rank': '6', 'job': 'nccl', 'instance': 'node1:9828'}
CULPRIT_6 = {key: value for key, value in RANK_6.items() if key != 'rank'}
WARNING = {'severity': 'warning'}
JOB = {'nccl_job': '42', 'uid': '1000'}
POD = {'cluster': 'c1', 'namespace': 'training', 'pod': 'trainer-0', 'container': 'main', 'nccl_job': 'llama'}


def since(minutes):
    return f'1970-01-01 00:{int(minutes):02}:{round(minutes % 1 * 60):02} UTC'


def culprit_of(cluster, state):
    """The alert of rank 6, for which the others wait since the tenth minute."""
    return cluster, 10.5, {'NCCLHangCulprit': (CULPRIT_6 | JOB, {
        'summary': f'Job 42 hangs since {since(10)}: 7 GPUs wait for global rank 6 (GPU 2 on gpu-node-1), which is {state}',
        'description': 'Ranks wait for global rank 6 (GPU 2 on gpu-node-1) in dp (rank 6), and it waits for no rank. GPU GPU-6, process 1006, target'
                       ' node1:9828.'})}


def a_late_rank():
    cluster = data_parallel(15)
    cluster.late = lambda rank, t: 0.2 if rank == 6 else 0
    comm = cluster.communicators[0].id
    details = 'Rank 6 of the communicator, GPU GPU-6, process 1006, target node1:9828.'
    return cluster, 15, {
        'NCCLStragglerRank': (RANK_6 | JOB | {'comm': comm, 'comm_name': 'dp', 'timing_source': 'kernel'}, {
            'summary': 'Job 42: global rank 6 (GPU 2 on gpu-node-1) makes 7 ranks wait, 20% of the time: waiting costs 1.4 GPUs of 8',
            'description': f'The other ranks of communicator {comm} (dp) have waited for global rank 6 (GPU 2 on gpu-node-1) since {since(5)}.'
                           f' This costs them 20% of the time. {details}'}),
        'NCCLLastArriver': (RANK_6 | JOB | {'comm': comm, 'comm_name': 'dp', 'timing_source': 'kernel'}, {
            'summary': 'Job 42: global rank 6 (GPU 2 on gpu-node-1) arrives last on its node at 100% of the operations of dp',
            'description': f'The other ranks of the node have waited for global rank 6 (GPU 2 on gpu-node-1) since {since(5)}, at 100% of the operations'
                           f' of communicator {comm} (dp). {details}'})}


def a_late_node():
    cluster = data_parallel(15, 4)
    cluster.late = lambda rank, t: 0.1 if cluster.node(rank) == 2 else 0
    comm = cluster.communicators[0].id
    return cluster, 15, {
        'NCCLStragglerNode': (JOB | {'comm': comm, 'timing_source': 'kernel', 'hostname': 'gpu-node-2', 'job': 'nccl', 'instance': 'node2:9828'}, {
            'summary': 'Job 42: node gpu-node-2 makes 12 ranks wait, 10% of the time: waiting costs 1.2 GPUs of 16',
            'description': f'The other ranks of communicator {comm} have waited for node gpu-node-2 (node2:9828) since {since(5)}. This costs them 10% of'
                           ' the time. All ranks of the node are late.'})}


def a_late_node_whose_lateness_many_collectives_of_a_step_count():
    cluster = data_parallel(15, 4, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.05 if cluster.node(rank) == 2 else 0
    comm = cluster.communicators[0].id
    return cluster, 15, {
        'NCCLStragglerNode': (JOB | {'comm': comm, 'timing_source': 'kernel', 'hostname': 'gpu-node-2', 'job': 'nccl', 'instance': 'node2:9828'}, {
            'summary': 'Job 42: node gpu-node-2 makes 12 ranks wait, 5% of the time: waiting costs 0.6 GPUs of 16',
            'description': f'The other ranks of communicator {comm} have waited for node gpu-node-2 (node2:9828) since {since(5)}. This costs them 5% of'
                           ' the time. All ranks of the node are late.'})}


def a_rank_that_never_enters_in_pods():
    cluster = data_parallel(15)
    cluster.job = POD
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 3, 4, 5, 7])
    comm = cluster.communicators[0].id
    job = {'cluster': 'c1', 'namespace': 'training', 'nccl_job': 'llama', 'uid': '1000'}
    return cluster, 15, {
        'NCCLCollectiveHang': (job | WARNING, {
            'summary': f'Job llama (namespace training) on cluster c1 hangs in NCCL since {since(10)}: 7 GPUs wait',
            'description': '7 ranks, counted in each communicator, have waited in an operation for more than 2m without any progress on it. The job may go'
                           ' on by itself: it is critical after 10m. NCCLHangCulprit names the rank that they wait for. NCCLHangMismatchedCall names a rank in'
                           ' another call. NCCLHangNobodyBehind means that all ranks are inside.'}),
        'NCCLHangCulprit': (POD | job | CULPRIT_6 | WARNING, {
            'summary': f'Job llama (namespace training) on cluster c1 hangs since {since(10)}: 7 GPUs wait for global rank 6 (GPU 2 on gpu-node-1), which is alive',
            'description': 'Ranks wait for global rank 6 (GPU 2 on gpu-node-1) in dp (rank 6, 1 operation behind), and it waits for no rank. GPU GPU-6,'
                           ' process 1006, pod trainer-0, container main, target node1:9828.'})}


def a_rank_that_never_enters_for_ten_minutes():
    cluster = data_parallel(25)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 3, 4, 5, 7])
    return cluster, 25, {
        'NCCLCollectiveHang': (JOB, {
            'summary': f'Job 42 hangs in NCCL since {since(10)}: 7 GPUs wait',
            'description': '7 ranks, counted in each communicator, have waited in an operation for more than 2m without any progress on it. The job does not go on'
                           ' by itself, or the hang is longer than 10m. NCCLHangCulprit names the rank that they wait for. NCCLHangMismatchedCall names a rank'
                           ' in another call. NCCLHangNobodyBehind means that all ranks are inside.'})}


def a_rank_without_a_global_rank_in_two_communicators():
    cluster = Cluster(1, 4, 15)
    for name in ('tp', 'dp'):
        cluster.hang(cluster.add(name, list(range(4))), 600, [0, 1, 3])
    cluster.global_rank = lambda rank: ''
    return cluster, 15, {
        'NCCLHangCulprit': (JOB | WARNING | {'gpu': '2', 'gpu_uuid': 'GPU-2', 'hostname': 'gpu-node-0', 'pid': '1002', 'job': 'nccl',
                                                      'instance': 'node0:9828'}, {
            'summary': f'Job 42 hangs since {since(10)}: 3 GPUs wait for process 1002 (GPU 2 on gpu-node-0), which is alive',
            'description': 'Ranks wait for process 1002 (GPU 2 on gpu-node-0) in dp (rank 2, 1 operation behind), tp (rank 2, 1 operation behind), and it waits'
                           ' for no rank. GPU GPU-2, process 1002, target node0:9828.'})}


def a_stopped_rank():
    cluster = waiting_for([])
    cluster.halted = lambda rank, t: rank == 6 and t > 600
    return culprit_of(cluster, 'dead or stopped')


def a_stopped_rank_where_detail_is_scraped():
    cluster = waiting_for([])
    cluster.halted = lambda rank, t: rank == 6 and t > 600
    cluster.scraped_families = re.compile('.*')
    return culprit_of(cluster, 'stopped')


def a_killed_rank_at_once_where_detail_is_scraped():
    cluster = waiting_for([6])
    cluster.scraped_families = re.compile('.*')
    return culprit_of(cluster, 'dead')


def a_killed_rank():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    comm = cluster.communicators[0].id
    labels = RANK_6 | JOB | {'comm': comm, 'comm_name': 'dp', 'timing_source': 'kernel'}
    details = 'Rank 6 of the communicator, GPU GPU-6, process 1006, target node1:9828.'
    return cluster, 20, culprit_of(cluster, 'missing')[2] | {
        'NCCLRanksMissing': (labels, {
            'summary': 'Job 42: global rank 6 (GPU 2 on gpu-node-1) is no longer reported',
            'description': f'Global rank 6 (GPU 2 on gpu-node-1) has not been reported since {since(15.25)}, while others of communicator {comm} (dp) run or wait.'
                           f' Its process, its node or its exporter is gone. {details}'})}


def a_killed_rank_at_once():
    return culprit_of(waiting_for([6]), 'dead or stopped')


def a_rank_in_another_call():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8), {6: 'AllGather'})
    comm = cluster.communicators[0].id
    return cluster, 15, {
        'NCCLHangMismatchedCall': (RANK_6 | JOB | {'comm': comm, 'comm_name': 'dp', 'timing_source': 'kernel', 'function': 'AllGather'}, {
            'summary': f'Job 42 hangs since {since(10)}: global rank 6 (GPU 2 on gpu-node-1) is in another call, and 8 GPUs wait',
            'description': f'Most ranks of communicator {comm} (dp) are in one call. This rank is in AllGather or waits on another communicator. Rank 6 of the'
                           ' communicator, GPU GPU-6, process 1006, target node1:9828.'})}


def all_ranks_inside(functions, description):
    cluster = data_parallel(15)
    cluster.job = {}
    cluster.hang(cluster.communicators[0], 600, range(8), functions)
    comm = cluster.communicators[0].id
    return cluster, 15, {'NCCLHangNobodyBehind': ({'comm': comm, 'uid': '1000'}, {
        'summary': f'The job of user 1000 hangs since {since(10)} with all ranks of dp inside: 8 GPUs wait',
        'description': f'All ranks of communicator {comm} have entered {description}'})}


THE_NETWORK = 'the operation, and 8 of them have waited in it for more than 2m. No rank is missing. Check the network, NVLink, GPU faults and bugs of NCCL.'


def a_transfer_that_never_ends():
    return all_ranks_inside({}, THE_NETWORK)


def sends_and_receives_that_never_end():
    return all_ranks_inside({rank: 'Send' if rank < 4 else 'Recv' for rank in range(8)}, THE_NETWORK)


def two_halves_in_different_calls():
    return all_ranks_inside({rank: 'AllGather' for rank in range(4)},
                            'an operation, and 8 of them have waited for more than 2m. Their calls differ, and no call has most ranks: AllGather, AllReduce.'
                            ' Compare the code of the ranks.')


def stalled_job(since_progress):
    cluster = data_parallel(26, 1)
    cluster.busy = lambda t: t < 480
    return cluster, 25, {'NCCLJobStalledOutsideCollectives': (JOB, {
        'summary': 'Job 42: no rank has called NCCL for 15m',
        'description': f'No rank of the job has started or completed an operation{since_progress}, and none is in flight. The cause is a checkpoint, an'
                       ' evaluation, data loading, or a hang outside NCCL.'})}


def a_job_that_calls_nothing():
    case = stalled_job(f' since {since(7.75)}')
    case[0].scraped_families = re.compile('.*')
    return case


def a_job_that_calls_nothing_where_only_the_alert_series_are_scraped():
    return stalled_job('')


def a_slow_link():
    cluster = data_parallel(50)
    cluster.communicators[0].speed = lambda t: 0.4 if t > 2160 else 1
    comm = cluster.communicators[0].id
    return cluster, 50, {'NCCLBandwidthDegraded': (JOB | {'comm': comm, 'collective': 'AllReduce', 'size': '16777216'}, {
        'summary': 'Job 42: AllReduce of dp reaches 40% of its bus bandwidth',
        'description': f'AllReduce of 16MiB and more on communicator {comm} reaches only 40% of the bus bandwidth that it had in the 1h before. This is so'
                       f' on every rank since {since(38.25)}.'})}


def an_exporter_that_is_down():
    cluster = Cluster(1, 1, 15)
    cluster.scraped = lambda node, t: t < 600
    return cluster, 15, {'NCCLExporterDown': ({'job': 'nccl', 'instance': 'node0:9828'}, {
        'summary': 'The exporter on node0:9828 does not answer',
        'description': f"Ranks on node0:9828 are not monitored since {since(10)}. Jobs are not affected, and the counts are kept in the node's shared memory."})}


def losses():
    cluster = data_parallel(20, 1)
    cluster.losses = {
        'nccl_process_operations_unfollowed_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 2 * t,
        'nccl_process_operations_rejected_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 5 * t,
        'nccl_exporter_series_dropped_total{reason="folded"}': lambda t: 100 * t,
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: 1,
    }
    target = {'job': 'nccl', 'instance': 'node0:9828'}
    return cluster, 20, {
        'NCCLExporterEventsDropped': (JOB | target, {
            'summary': 'Job 42: the plugin cannot follow all operations on node0:9828',
            'description': '2 operations or communicators per second cannot be followed on node0:9828, more than 1 % of all. Counts stay exact; durations and'
                           ' in-flight state are incomplete.'}),
        'NCCLExporterTimestampsRejected': (JOB | target, {
            'summary': 'Job 42: GPU time stamps on node0:9828 are implausible',
            'description': '5 operations per second stay untimed on node0:9828 because their time stamps contradict the clocks, more than 10 % of all.'}),
        'NCCLExporterSeriesDropped': (target | {'reason': 'folded'}, {
            'summary': 'The exporter on node0:9828 has reached its limit of series',
            'description': 'Communicators of node0:9828 are folded into comm="other" or left out (folded). Stragglers and hangs on them are not detected.'}),
        'NCCLExporterSegmentsUnusable': (target | {'uid': '1001', 'reason': 'bad_magic'}, {
            'summary': 'The exporter on node0:9828 cannot use files of user 1001 (bad_magic)',
            'description': 'Processes of user 1001 on node0:9828 may not be monitored, because files or directories of the user cannot be used (bad_magic). The'
                           " daemon's log and segment_troubles of /api/v1/node name the latest file."})}


def a_job_without_gpu_times():
    cluster = data_parallel(10)
    cluster.add('tp', [0, 1])  # a rank counts once, however many communicators it is in
    cluster.source = lambda rank: 'none' if rank else 'proxy'
    of_all = cluster.info_labels
    cluster.info_labels = lambda communicator, rank: of_all(communicator, rank) | {'timing_reason': 'cpus_low' if rank == 3 else 'allgatherv_enabled'}
    return cluster, 10, {'NCCLJobNotJudged': (JOB, {
        'summary': 'Job 42: late ranks cannot be seen, for lack of GPU times (allgatherv_enabled, cpus_low)',
        'description': 'None of the 8 ranks of the job has GPU times (allgatherv_enabled, cpus_low). So its late ranks, its bandwidth and what waiting costs are'
                       ' not known. Hangs are detected. For allgatherv_enabled, set NCCL_ALLGATHERV_ENABLE=0 in the job. The runbook has the other reasons.'})}


def slow_sends(gpus, **adapters):
    """Slow sends of ranks of the second node, with the adapters that they know."""
    cluster = NetworkJob(4, 2, 25)
    slow = [2 + int(name[-1]) for name in adapters]
    cluster.wire = lambda rank, t: 4 if rank in slow else 1
    cluster.pci_bus_id = lambda rank: '0000:4b:00.0' if rank == 3 else ''
    cluster.adapter = lambda rank: adapters.get(f'of_gpu_{rank % 2}', '') if rank in slow else 'mlx5_9'
    comm = cluster.communicators[0].id
    return cluster, 25, {
        'NCCLSlowNetworkNode': (JOB | {'comm': comm, 'hostname': 'gpu-node-1', 'job': 'nccl', 'instance': 'node1:9828'}, {
            'summary': f'Job 42: sends of {gpus} on node gpu-node-1 are 4.0 times as long in the network as those of other nodes',
            'description': f'Sends of {gpus} on node gpu-node-1 (node1:9828) on communicator {comm} (dp) have needed up to 4.0 times as long for a byte in the'
                           f' network as those of the same GPUs on other nodes since {since(2)}. They do not wait longer for their GPU or for their receiver.'})}


def a_slow_adapter():
    """Regression: the alert named the GPU alone, and the operator had to look up which adapter is beside it."""
    return slow_sends('GPU 1 (PCI 0000:4b:00.0) beside adapter mlx5_3', of_gpu_1='mlx5_3')


def slow_adapters_of_which_one_is_not_known():
    return slow_sends('GPU 0, GPU 1 (PCI 0000:4b:00.0) beside adapter mlx5_2,mlx5_3', of_gpu_0='', of_gpu_1='mlx5_2,mlx5_3')


def a_suspect():
    job = with_fault('cpu_wait')
    labels = {key: RANK_6[key] for key in ('gpu', 'gpu_uuid', 'hostname', 'pid', 'global_rank', 'job', 'instance')}
    what = 'it waits for a CPU 31% of the time, the median of its peers 0.4%'
    who = 'global rank 6 (GPU 2 on gpu-node-1)'
    return job, 16, {'NCCLStragglerSuspect': (labels | JOB | {'cause': 'cpu_wait'}, {
        'summary': f'Job 42: {who} is late, and at the same time {what}',
        'description': f'While the other ranks wait for {who}, {what}. This is correlation: it may be the cause, an effect, or neither. GPU GPU-6, process'
                       ' 1006, target node1:9828.'})}


def a_job_over_sockets():
    return sockets(), 10, {'NCCLSocketFallback': (JOB | {'job': 'nccl', 'instance': 'node1:9828'}, {
        'summary': 'Job 42: 4 processes on node1:9828 send to other nodes over sockets, beside an adapter for InfiniBand or RoCE',
        'description': '4 processes of the job on node1:9828 hold no device for verbs open, though the node has one with a link. NCCL has fallen back to sockets,'
                       ' which are 5 to 20 times slower. It reports no error.'})}
