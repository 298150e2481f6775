# SPDX-License-Identifier: Apache-2.0
"""Cases of the cost of waiting, in GPUs. Each case returns a cluster, a minute, and by query the labels and values that must come out."""
import suspect_jobs
from cluster import Cluster
from jobs import InPods, beside, data_parallel, pipeline, tensor_and_data_parallel
from network_jobs import NetworkJob

JOB = 'job:nccl_waiting_gpu_seconds:rate'
SLOW_TRANSFER = 'job:nccl_slow_transfer_gpu_seconds:rate'
LOST = 'job:nccl_lost_gpu_seconds:rate'
GPUS = 'job:nccl_gpus:count'
INFO = 'job:nccl_job:info'
FIRING = 'ALERTS{{alertname="{}", alertstate="firing"}}'
COMMUNICATORS = 'sum by (comm_name) (comm:nccl_waiting_gpu_seconds:rate)'
WAITED_FOR = 'sum by (global_rank) (comm_rank:nccl_waited_for_gpu_seconds:rate)'
MINUTE = 8
LABELS = {'nccl_job': '42', 'uid': '1000'}


def of_job(gpus):
    return {JOB: [(LABELS, gpus)]}


def by_cause(gpus):
    return {LOST: [(LABELS | {'cause': cause}, lost) for cause, lost in gpus.items()]}


def late(cluster, lateness=0.2, late_rank=6):
    cluster.late = lambda rank, t: lateness if rank == late_rank else 0
    return cluster


def each_other_rank_loses_the_lateness_once_and_the_late_rank_is_waited_for():
    """Three neighbours wait for rank 6 in tp1; the others wait in four communicators, in three of them for a neighbour."""
    names = ('tp1', 'dp0', 'dp1', 'dp2', 'dp3')
    waited_for = {'6': 3 * 0.2 + 3 * 0.2} | dict.fromkeys(('4', '5', '7'), 3 * 0.2)
    return late(tensor_and_data_parallel(MINUTE)), MINUTE, of_job(15 * 0.2) | {
        COMMUNICATORS: [({'comm_name': name}, 3 * 0.2) for name in names],
        WAITED_FOR: [({'global_rank': rank}, gpus) for rank, gpus in waited_for.items()]}


def a_slow_link_costs_the_time_of_transfers_beyond_that_of_the_past():
    """16 ranks move data for 2.5 % of the time, and for 6.25 % on a link that has 0.4 of its speed."""
    cluster = data_parallel(50)
    cluster.communicators[0].speed = lambda t: 0.4 if t > 2160 else 1
    return cluster, 50, {SLOW_TRANSFER: [(LABELS, 16 * (0.0625 - 0.025))], JOB: [(LABELS, 0)]} | by_cause({
        'slow_network': 0, 'slow_transfers': 16 * (0.0625 - 0.025)})


def waits_have_no_cause_before_an_alert_fires():
    return late(tensor_and_data_parallel(2)), 2, by_cause({'uneven_work': 15 * 0.2})


def waits_for_a_rank_have_the_cause_late_rank():
    return late(tensor_and_data_parallel(16)), 16, by_cause({'late_rank': 15 * 0.2})


def waits_for_a_suspected_rank_have_one_cause_of_the_suspects():
    job = suspect_jobs.with_fault('cpu_wait', 'major_faults')
    return job, 16, {f'count({LOST} > 0)': [({}, 1)], f'count({LOST}{{cause=~"cpu_wait|major_faults"}} > 0)': [({}, 1)]}


def waits_in_a_hang_have_its_cause_though_a_rank_was_suspected():
    job = suspect_jobs.with_fault('cpu_wait')
    job.hang(job.communicators[0], 60 * 13, [0, 1, 2, 3, 4, 5, 7])
    return job, 16, of_job(7) | by_cause({'hang': 7}) | {f'count({FIRING.format("NCCLStragglerSuspect")})': [({}, 1)]}


def waits_over_a_slow_link_have_its_cause_though_a_rank_is_late():
    cluster = late(data_parallel(50))
    cluster.communicators[0].speed = lambda t: 0.4 if t > 2160 else 1
    return cluster, 50, {f'count by (cause) ({LOST})': [({'cause': cause}, 1) for cause in ('slow_network', 'slow_transfers')],
                         f'count({FIRING.format("NCCLStragglerRank")})': [({}, 1)]}


def waits_for_a_slow_adapter_have_the_cause_slow_network():
    cluster = NetworkJob(8, 2, 22)
    cluster.wire = lambda rank, t: 4 if rank == 3 and t > 600 else 1
    return cluster, 21, by_cause({'slow_network': 0})


def waits_for_a_late_node_have_the_cause_late_rank():
    cluster = data_parallel(20, 4)
    cluster.late = lambda rank, t: 0.1 if cluster.node(rank) == 2 else 0
    return cluster, 20, by_cause({'late_rank': 12 * 0.1})


def each_job_has_causes_of_its_own():
    cluster = data_parallel(20)
    other = beside(cluster, {'nccl_job': '43'})
    late(cluster)
    other.hang(other.communicators[0], 60 * 10, [0, 1, 2, 3, 4, 5, 7])
    return cluster, 16, {LOST: [(LABELS | {'cause': 'late_rank'}, 7 * 0.2), (LABELS | {'nccl_job': '43', 'cause': 'hang'}, 7)]}


def a_job_keeps_its_names_and_what_it_loses_if_its_rank_0_is_gone():
    cluster = data_parallel(30)
    cluster.scraped = lambda node, t: node != 0 or t < 720
    cluster.hang(cluster.communicators[0], 60 * 10, [0, 1, 2, 3, 4, 5, 7])
    return cluster, 29, {f'count by (nccl_job) ({INFO})': [({'nccl_job': '42'}, 1)], f'count by (cause) ({LOST} > 0)': [({'cause': 'hang'}, 1)]}


def a_late_rank_costs_the_same_by_rules_and_by_the_page():
    """LostGpusTest of exporter/findings has this job and these numbers: 7 ranks wait for rank 6, 4 of them for its neighbours."""
    cluster = Cluster(1, 8, MINUTE)
    for group in range(2):
        cluster.add(f'tp{group}', [4 * group + i for i in range(4)])
    for i in range(4):
        cluster.add(f'dp{i}', [i, i + 4])
    return late(cluster), MINUTE, of_job(7 * 0.2) | {
        'sum by (comm_name, global_rank) (comm_rank:nccl_straggler:deficit)': [({'comm_name': name, 'global_rank': '6'}, 0.2) for name in ('dp2', 'tp1')]}


def a_late_node_costs_what_its_ranks_cost_in_a_step():
    """8 buckets of gradients wait for one lateness of 5 % of the time: kernels count 40 %."""
    cluster = data_parallel(MINUTE, 4, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.05 if cluster.node(rank) == 2 else 0
    return cluster, MINUTE, of_job(12 * 0.05) | {
        'sum by (hostname) (comm_node:nccl_straggler:deficit)': [({'hostname': 'gpu-node-2'}, 0.05)],
        'sum by (hostname) (comm_node:nccl_wait_deficit:late)': [({'hostname': 'gpu-node-2'}, 0.4)]}


def a_wait_in_two_communicators_at_once_is_lost_once():
    return late(tensor_and_data_parallel(MINUTE, beside=True)), MINUTE, of_job(15 * 0.2)


def a_wait_in_many_collectives_of_a_step_is_lost_once():
    return late(data_parallel(MINUTE, 2, overlap=8, rate=8), 0.05), MINUTE, of_job(7 * 0.05)


def a_rank_loses_no_more_than_one_gpu():
    cluster = Cluster(1, 4, MINUTE)
    for name in ('first', 'second'):
        cluster.add(name, list(range(4)), beside=True)
    return late(cluster, 0.7, 3), MINUTE, of_job(3)


def jitter_costs_nothing():
    cluster = tensor_and_data_parallel(MINUTE)
    cluster.late = lambda rank, t: 0.009 * ((rank * 7919 + t * 104729) % 97) / 97
    return cluster, MINUTE, of_job(0)


def a_job_without_gpu_times_has_no_number_rather_than_0():
    cluster = late(data_parallel(MINUTE, 2))
    cluster.source = lambda rank: 'none'
    return cluster, MINUTE, {JOB: []}


def times_by_proxies_are_no_measure_of_waiting():
    cluster = late(data_parallel(MINUTE, 2))
    cluster.source = lambda rank: 'proxy'
    return cluster, MINUTE, {JOB: []}


def gpus_that_wait_in_a_hang_are_known_without_gpu_times():
    cluster = data_parallel(MINUTE + 6)
    cluster.source = lambda rank: 'none'
    cluster.hang(cluster.communicators[0], 60 * MINUTE, [0, 1, 2, 3, 4, 5, 7])
    return cluster, MINUTE + 5, of_job(7)


def stages_of_a_pipeline_do_not_count_as_waiting_for_a_rank():
    cluster = pipeline(MINUTE)
    cluster.late = lambda rank, t: 0.2 if cluster.node(rank) == 3 else 0
    return cluster, MINUTE, of_job(0)


def two_stages_of_a_pipeline_do_not_count_as_waiting_either():
    """Each of them makes as many sends and receives as the other."""
    cluster = pipeline(MINUTE, 2)
    cluster.late = lambda rank, t: 0.2 if cluster.node(rank) == 1 else 0
    return cluster, MINUTE, of_job(0)


def all_that_wait_in_a_hang_are_lost():
    cluster = data_parallel(MINUTE + 6)
    cluster.hang(cluster.communicators[0], 60 * MINUTE, [0, 1, 2, 3, 4, 5, 7])
    return cluster, MINUTE + 5, of_job(7)


def a_job_has_its_names_its_gpus_its_steps_and_its_share_of_time_in_kernels():
    cluster = data_parallel(MINUTE, 2, overlap=8, rate=8)
    names = {'slurm_job_name': 'llm', 'slurm_job_account': 'nlp', 'slurm_job_user': 'alice', 'team': 'speech'}
    cluster.job = cluster.job | names
    return cluster, MINUTE, {INFO: [(LABELS | names, 8)], 'job:nccl_steps:rate': [(LABELS, 1)],
                             'job:nccl_communication:share': [(LABELS, 0.05)]}


def a_job_that_hangs_keeps_its_gpus_and_has_no_steps():
    cluster = data_parallel(MINUTE + 6)
    cluster.hang(cluster.communicators[0], 60 * MINUTE, [0, 1, 2, 3, 4, 5, 7])
    return cluster, MINUTE + 5, of_job(7) | {GPUS: [(LABELS, 8)], INFO: [(LABELS, 8)], 'job:nccl_steps:rate': []}


def gpus_that_hang_are_gpus_of_the_job_beside_others_that_work():
    """Regression: of 12 GPUs in three groups 6 waited, and 4 were counted: a loss of 150 %."""
    cluster = Cluster(3, 4, MINUTE + 6)
    for node in range(3):
        cluster.add(f'tp{node}', [4 * node + i for i in range(4)])
    for node in range(2):
        cluster.hang(cluster.communicators[node], 60 * MINUTE, [4 * node + i for i in range(3)], stops_all=False)
    return cluster, MINUTE + 5, of_job(6) | {INFO: [(LABELS, 12)], GPUS: [(LABELS, 12)]}


def replicas(busy):
    """8 GPUs, each of which serves alone; only `busy` of them have requests."""
    cluster = Cluster(1, 8, MINUTE)
    for rank in cluster.ranks:
        cluster.add(f'replica{rank}', [rank])
    for idle in cluster.communicators[busy:]:
        cluster.hang(idle, -1, [], stops_all=False)
    return cluster, MINUTE, {INFO: [(LABELS, 8)], GPUS: [(LABELS, 8)]}


def gpus_of_idle_replicas_are_gpus_of_the_job():
    return replicas(0)


def gpus_of_idle_replicas_are_gpus_of_the_job_beside_a_busy_one():
    """Regression: one was counted."""
    return replicas(1)


def a_stopped_rank_that_others_wait_for_has_a_gpu_of_the_job():
    cluster = data_parallel(MINUTE + 6)
    cluster.hang(cluster.communicators[0], 60 * MINUTE, [0, 1, 2, 3, 4, 5, 7])
    cluster.halted = lambda rank, t: rank == 6 and t >= 60 * MINUTE
    return cluster, MINUTE + 5, of_job(7) | {INFO: [(LABELS, 8)]}


def ended_processes_have_no_gpus_of_a_job_that_was_started_again():
    """The first 4 processes have ended, and their last state is still served."""
    cluster = Cluster(2, 4, MINUTE)
    for node in range(2):
        cluster.add(f'dp{node}', [4 * node + i for i in range(4)])
    cluster.alive = lambda rank, t: cluster.node(rank) == (t > 360)
    cluster.served = lambda rank, t: cluster.node(rank) <= (t > 360)
    return cluster, MINUTE, {INFO: [(LABELS, 4)]}


def an_ended_job_has_no_gpus():
    cluster = data_parallel(MINUTE)
    cluster.alive = lambda rank, t: t <= 360
    cluster.served = lambda rank, t: True
    return cluster, MINUTE, {INFO: [], GPUS: []}


def gpus_of_a_node_that_is_not_scraped_once_are_counted():
    cluster = data_parallel(MINUTE)
    cluster.scraped = lambda node, t: t != 60 * MINUTE
    return cluster, MINUTE, {INFO: [(LABELS, 8)]}


def gpus_of_pods_count_each_and_all_gpus_of_a_process():
    """Each of 8 GPUs has two communicators."""
    cluster = InPods(2, 4, MINUTE)
    for name in ('dp', 'world'):
        cluster.add(name, list(cluster.ranks))
    return cluster, MINUTE, {INFO: [(LABELS, 8)]}


def living_processes_without_ranks_have_a_gpu_each():
    cluster = data_parallel(MINUTE)
    cluster.communicators[0].alive = lambda t: t < 240
    return cluster, MINUTE, {GPUS: [(LABELS, 8)]}
