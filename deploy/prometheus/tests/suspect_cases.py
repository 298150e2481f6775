# SPDX-License-Identifier: Apache-2.0
"""Suspects of a late rank: each cause with its signal, without it, and where nobody is late; and jobs that have fallen back to sockets."""
from jobs import NOTHING_EVER, alert
from suspect_jobs import FAULTS, LATE, SINCE, SuspectJob, sockets, straggler, suspect, with_fault


def fires_with(cause):
    def case():
        return with_fault(cause), {10: [], 16: straggler() + [suspect(cause)]}
    return named(case, f'a_late_rank_is_suspected_of_{cause}')


def named(case, name):
    case.__name__, case.__module__ = name, __name__
    return case


for made in map(fires_with, FAULTS):
    globals()[made.__name__] = made


def no_fault_is_told_where_nobody_is_late():
    return with_fault(*FAULTS, is_late=False), NOTHING_EVER


def no_fault_is_told_that_all_ranks_have():
    job = with_fault(*FAULTS)
    job.faulty = lambda rank, t: t > SINCE
    return job, {16: straggler()}


def a_late_rank_that_looks_like_all_others_is_not_suspected():
    return SuspectJob(), {10: [], 16: straggler()}


def two_causes_are_two_alerts():
    return with_fault('cpu_wait', 'adapter_errors'), {16: straggler() + [suspect('cpu_wait'), suspect('adapter_errors')]}


def another_rank_than_the_late_one_is_not_suspected():
    job = with_fault('cpu_wait', 'gpu_clock')
    job.faulty = lambda rank, t: rank == LATE - 1 and t > SINCE
    return job, {16: straggler()}


def ranks_that_have_ended_are_no_peers():
    """As after a restart of a job with a retention of hours: all that live are throttled alike."""
    job = with_fault('cpu_throttled')
    job.faulty = lambda rank, t: t > SINCE
    add_living = job.add_targets

    def add_targets(table, index, t):
        add_living(table, index, t)
        for rank in job.ranks:
            labels = job.identity(rank) | {'pid': str(2000 + rank)}
            for name, value in (('throttled_seconds_total', 7), ('halted', 1), ('alive', 0)):
                job.put(table, index, f'nccl_process_{name}', labels, value)
    job.add_targets = add_targets
    return job, {16: straggler()}


def exporters_that_are_absent_say_nothing():
    job = with_fault('cpu_wait', 'gpu_clock', 'adapter_errors', exporters=())
    return job, {16: straggler() + [suspect('cpu_wait')]}


def daemons_that_see_no_process_say_nothing():
    job = with_fault('cpu_wait', 'gpu_clock')
    job.signals = {}
    return job, {16: straggler() + [suspect('gpu_clock')]}


def a_clock_is_found_where_dcgm_writes_the_older_label_of_the_host():
    job = with_fault('gpu_clock')
    job.host_label = 'Hostname'
    return job, {16: straggler() + [suspect('gpu_clock')]}


def instances(job, host_label):
    """MIG: NCCL has the UUID of the instance, DCGM that of its GPU, several times."""
    job.host_label = host_label
    job.gpu_uuid = lambda rank: f'MIG-{rank}'
    one = job.dcgm_labels
    job.dcgm_labels = lambda rank: [labels | {'GPU_I_ID': number} for labels in one(rank) for number in ('1', '2')]
    return job, {16: straggler() + [suspect('gpu_clock')]}


def a_clock_is_found_for_an_instance_of_a_gpu():
    return instances(with_fault('gpu_clock'), 'hostname')


def a_clock_is_found_for_an_instance_of_a_gpu_by_the_older_label_of_the_host():
    return instances(with_fault('gpu_clock'), 'Hostname')


def a_clock_is_found_where_claims_share_a_gpu():
    job = with_fault('gpu_clock')
    one = job.dcgm_labels
    job.dcgm_labels = lambda rank: [labels | {'dra_claim_name': name} for labels in one(rank) for name in ('a', 'b')]
    return job, {16: straggler() + [suspect('gpu_clock')]}


def the_second_of_two_adapters_is_found():
    job = with_fault('adapter_link_down')
    job.adapters = lambda rank: f'mlx5_{rank % 4 * 2},mlx5_{rank % 4 * 2 + 1}'
    return job, {16: straggler() + [suspect('adapter_link_down')]}


def an_old_xid_is_not_told():
    job = with_fault('gpu_xid')
    job.faulty = lambda rank, t: rank == LATE
    return job, {16: straggler()}


def all_ranks_of_a_late_node_are_suspected():
    job = with_fault('cpu_throttled', nodes=4)
    job.late = lambda rank, t: 0.1 if job.node(rank) == 1 and t > SINCE else 0
    job.faulty = lambda rank, t: job.node(rank) == 1 and t > SINCE
    return job, {16: [alert('NCCLStragglerNode', hostname='gpu-node-1')] + [suspect('cpu_throttled', rank) for rank in range(4, 8)]}


def a_node_whose_processes_hold_no_adapter_open_is_told():
    return sockets(), {1: [], 10: [alert('NCCLSocketFallback')], 16: [alert('NCCLSocketFallback')]}


def a_job_on_one_node_needs_no_adapter():
    job = SuspectJob(nodes=1, is_late=False)
    job.late = lambda rank, t: 0
    job.verbs = lambda rank, t: 0
    return job, NOTHING_EVER


def a_node_without_adapters_for_verbs_is_not_told():
    return SuspectJob(is_late=False), NOTHING_EVER
