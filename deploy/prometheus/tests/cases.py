# SPDX-License-Identifier: Apache-2.0
"""What the alerts must say, and when they must say nothing. Each case makes a cluster and tells what fires at which minute."""
from cluster import Cluster

NOTHING_EVER = object()


def tensor_and_data_parallel(minutes, **traits):
    """4 nodes of 4 ranks: tensor parallel within a node, data parallel across nodes, and a barrier of all."""
    cluster = Cluster(4, 4, minutes, **traits)
    for node in range(4):
        cluster.add(f'tp{node}', [4 * node + i for i in range(4)])
    for i in range(4):
        cluster.add(f'dp{i}', [4 * node + i for node in range(4)])
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


def alert(name, **labels):
    return {'alertname': name, 'slurm_job_id': '42'} | labels


def rank_alert(name, communicator, rank, node, gpu, **labels):
    return alert(name, comm_name=communicator, rank=str(rank), hostname=f'gpu-node-{node}', gpu=str(gpu), **labels)


def unusable(reason):
    return {'alertname': 'NCCLExporterSegmentsUnusable', 'uid': '1001', 'reason': reason}


def copied_by_another_user(cluster):
    """The same job, communicators and processes, as another user claims them: the exporter gives his series the label uid."""
    copy = Cluster(len(cluster.ranks) // cluster.ranks_per_node, cluster.ranks_per_node, cluster.times[-1] // 60)
    copy.uid = lambda rank, t: '1001'
    for communicator in cluster.communicators:
        copy.add(communicator.name, communicator.members)
    cluster.copies.append(copy)
    return copy


# --- Stragglers

def a_rank_that_is_late_by_5_percent_is_named_within_three_minutes():
    cluster = data_parallel(20, 1)
    cluster.late = lambda rank, t: 0.05 if rank == 2 and t > 600 else 0
    straggler = rank_alert('NCCLStragglerRank', 'dp', 2, 0, 2)
    return cluster, {10: [], 13: [straggler], 20: [straggler, rank_alert('NCCLLastArriver', 'dp', 2, 0, 2)]}


def of_a_late_rank_s_victims_in_other_communicators_none_is_named():
    cluster = tensor_and_data_parallel(20)
    cluster.late = lambda rank, t: 0.2 if rank == 6 and t > 600 else 0
    return cluster, {10: [], 13: [rank_alert('NCCLStragglerRank', 'tp1', 2, 1, 2), rank_alert('NCCLStragglerRank', 'dp2', 1, 1, 2)],
                     20: [rank_alert('NCCLStragglerRank', 'tp1', 2, 1, 2), rank_alert('NCCLStragglerRank', 'dp2', 1, 1, 2),
                          rank_alert('NCCLLastArriver', 'tp1', 2, 1, 2)]}


def a_late_rank_of_a_pipeline_is_named_among_the_ranks_of_its_stage():
    cluster = pipeline(20)
    cluster.late = lambda rank, t: 0.1 if rank == 5 and t > 600 else 0
    return cluster, {20: [rank_alert('NCCLStragglerRank', 'dp1', 1, 1, 1), rank_alert('NCCLLastArriver', 'dp1', 1, 1, 1)]}


def a_late_rank_is_named_where_experts_exchange_by_sends_and_receives():
    cluster = Cluster(2, 8, 20)
    for node in range(2):
        cluster.add(f'ep{node}', [8 * node + i for i in range(8)], collective=None)
    cluster.add('world', list(range(16)))
    cluster.late = lambda rank, t: 0.1 if rank == 11 else 0
    return cluster, {20: [rank_alert('NCCLStragglerRank', 'ep1', 3, 1, 3)]}


def a_late_rank_is_named_when_a_tenth_of_the_operations_is_timed():
    cluster = data_parallel(20, 2, duty=0.1)
    cluster.late = lambda rank, t: 0.05 if rank == 6 else 0
    return cluster, {20: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2), rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]}


def a_rank_that_is_late_half_of_the_time_is_named():
    cluster = data_parallel(30)
    cluster.late = lambda rank, t: 0.3 if rank == 1 and t % 120 < 60 else 0
    return cluster, {24: [rank_alert('NCCLStragglerRank', 'dp', 1, 0, 1)]}


def a_late_rank_is_named_by_arrivals_where_nothing_is_timed():
    cluster = data_parallel(20)
    cluster.source = lambda rank: 'none'
    cluster.late = lambda rank, t: 0.1 if rank == 1 else 0
    return cluster, {20: [rank_alert('NCCLLastArriver', 'dp', 1, 0, 1)]}


def a_late_node_is_named_where_its_ranks_share_a_communicator():
    cluster = data_parallel(20, 4)
    cluster.late = lambda rank, t: 0.1 if cluster.node(rank) == 2 else 0
    return cluster, {20: [alert('NCCLStragglerNode', hostname='gpu-node-2')]}


def a_late_rank_is_named_through_a_restart_of_its_collector():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 0.1 if rank == 6 and t > 600 else 0
    cluster.scraped = lambda node, t: node != 1 or not 780 <= t <= 795
    return cluster, {17: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2), rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]}


def a_late_rank_is_named_where_many_collectives_of_a_step_wait_for_it():
    cluster = data_parallel(20, 2, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.05 if rank == 6 and t > 600 else 0
    return cluster, {10: [], 13: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)],
                     20: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2), rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]}


def a_slow_link_is_told_by_bandwidth_alone():
    cluster = data_parallel(50)
    cluster.communicators[0].speed = lambda t: 0.4 if t > 2160 else 1
    return cluster, {36: [], 50: [alert('NCCLBandwidthDegraded')]}


def a_late_rank_is_named_though_another_user_copies_its_job():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 0.1 if rank == 6 and t > 600 else 0
    copy = copied_by_another_user(cluster)
    copy.late = lambda rank, t: 0.1 if rank != 6 else 0
    straggler = rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)
    return cluster, {10: [], 13: [straggler], 20: [straggler, rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]}


# --- Nobody to name

def lateness_of_2_percent_is_not_told():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 0.02 if rank == 1 else 0
    return cluster, NOTHING_EVER


def lateness_of_2_percent_that_many_collectives_of_a_step_wait_for_is_not_told():
    cluster = data_parallel(20, 2, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.02 if rank == 1 else 0
    return cluster, NOTHING_EVER


def a_node_that_is_late_by_2_percent_in_many_collectives_of_a_step_is_not_told():
    cluster = data_parallel(20, 4, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.02 if cluster.node(rank) == 2 else 0
    return cluster, NOTHING_EVER


def warm_up_is_not_told():
    cluster = tensor_and_data_parallel(20)
    cluster.late = lambda rank, t: 0.5 if rank == 0 and t < 270 else 0
    return cluster, NOTHING_EVER


def imbalance_of_experts_that_moves_around_is_not_told():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 0.3 if rank == (t // 60 * 5) % 8 else 0
    return cluster, NOTHING_EVER


def sequences_of_changing_length_are_not_told():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 0.2 * ((rank * 7919 + t * 104729) % 97) / 97
    return cluster, NOTHING_EVER


def a_heavier_last_stage_is_not_told():
    cluster = pipeline(15)
    cluster.late = lambda rank, t: 0.2 if cluster.node(rank) == 3 else 0
    return cluster, NOTHING_EVER


def a_heavier_stage_of_one_rank_is_not_told():
    cluster = Cluster(1, 8, 15)
    cluster.add('pp', list(range(8)), collective=None, rates={0: 5, 7: 5})
    cluster.add('world', list(range(8)))
    cluster.late = lambda rank, t: 0.2 if rank == 7 else 0
    return cluster, NOTHING_EVER


def half_of_the_ranks_with_less_to_do_are_not_told():
    cluster = data_parallel(15)
    cluster.late = lambda rank, t: 0.1 if rank < 4 else 0
    return cluster, NOTHING_EVER


def communicators_of_two_ranks_are_not_told():
    cluster = Cluster(2, 1, 14)
    cluster.add('embedding', [0, 1])
    cluster.late = lambda rank, t: 0.5 if rank == 1 else 0
    return cluster, NOTHING_EVER


def a_long_save_of_one_rank_is_not_told():
    cluster = data_parallel(22)
    cluster.late = lambda rank, t: 6 if rank == 0 and t % 600 == 0 else 0
    return cluster, NOTHING_EVER


def ranks_with_different_sources_of_durations_are_not_compared():
    cluster = data_parallel(20)
    cluster.source = lambda rank: 'proxy' if rank == 3 else 'kernel'
    cluster.measured = lambda rank: 1 if rank == 3 else 4
    return cluster, NOTHING_EVER


def a_rank_without_durations_is_not_told():
    cluster = data_parallel(20)
    cluster.source = lambda rank: 'none' if rank == 3 else 'kernel'
    return cluster, NOTHING_EVER


def a_plugin_on_some_ranks_only_is_not_told():
    cluster = Cluster(2, 4, 14)
    cluster.add('dp', [0, 1, 2, 3, 5, 6], ranks=8)
    return cluster, NOTHING_EVER


def missed_scrapes_are_not_told():
    cluster = tensor_and_data_parallel(15)
    cluster.scraped = lambda node, t: (t // 15 + node) % 5 != 0
    return cluster, NOTHING_EVER


def a_pause_for_a_checkpoint_is_not_told():
    cluster = tensor_and_data_parallel(22)
    cluster.busy = lambda t: not 480 < t <= 1080
    return cluster, NOTHING_EVER


def a_barrier_that_waits_for_a_save_of_90_seconds_is_not_told():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, range(1, 8))
    cluster.times = [t for t in cluster.times if t <= 690]
    return cluster, NOTHING_EVER


def the_end_of_a_job_is_not_told():
    cluster = tensor_and_data_parallel(18)
    cluster.alive = lambda rank, t: t < 480 + 4 * rank
    cluster.served = lambda rank, t: t < 780 + 4 * rank
    cluster.busy = lambda t: t < 480
    return cluster, NOTHING_EVER


def a_job_that_is_cancelled_in_the_middle_of_an_operation_is_not_told():
    cluster = tensor_and_data_parallel(16)
    cluster.hang(cluster.communicators[-1], 480, range(16))
    cluster.alive = lambda rank, t: t <= 480 + 2 * rank
    cluster.served = lambda rank, t: t <= 780 + 2 * rank
    return cluster, NOTHING_EVER


def a_restart_with_new_communicators_is_not_told():
    cluster = Cluster(2, 4, 30)
    cluster.add('before', list(range(8)), alive=lambda t: t < 900)
    cluster.add('after', list(range(8)), alive=lambda t: t >= 1000)
    cluster.late = lambda rank, t: 0.4 if rank == 0 and 1000 <= t < 1240 else 0
    return cluster, NOTHING_EVER


def an_elastic_resize_is_not_told():
    cluster = Cluster(2, 4, 30)
    cluster.add('all', list(range(8)), alive=lambda t: t < 900)
    cluster.add('fewer', list(range(7)), alive=lambda t: t >= 960)
    cluster.alive = lambda rank, t: rank < 7 or t < 900
    cluster.served = lambda rank, t: rank < 7 or t < 1200
    return cluster, NOTHING_EVER


def wrong_clocks_and_clocks_that_are_set_are_not_told():
    cluster = tensor_and_data_parallel(15)
    cluster.clock = lambda node, t: {0: 0, 1: -3600, 2: 3600, 3: 7200 if t > 480 else -7200}[node]
    return cluster, NOTHING_EVER


# --- Hangs

def a_rank_that_never_enters_is_named_after_two_minutes():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def of_the_ranks_behind_only_the_one_that_waits_for_nobody_is_named():
    cluster = tensor_and_data_parallel(15)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(tensor[1], 600, [4, 5, 7])
    for i in range(4):
        cluster.hang(data[i], 600, [4 * node + i for node in (0, 2, 3)])
    return cluster, {15: [alert('NCCLCollectiveHang')] + [rank_alert('NCCLHangCulprit', 'tp1', 2, 1, 2),
                                                          rank_alert('NCCLHangCulprit', 'dp2', 1, 1, 2)]}


def a_hang_is_told_though_another_user_copies_the_job_and_goes_on():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    copied_by_another_user(cluster)
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def dead_processes_that_another_user_copied_are_not_named_in_the_hang_of_the_job():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    copy = copied_by_another_user(cluster)
    copy.hang(copy.communicators[0], 300, range(8))
    copy.alive = lambda rank, t: t <= 600
    copy.served = lambda rank, t: True
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {12.5: hang, 15: hang}


def the_hang_of_a_copied_job_is_told_by_its_user_and_not_of_the_job():
    cluster = data_parallel(15)
    copy = copied_by_another_user(cluster)
    copy.hang(copy.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang', uid='1001'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3, uid='1001')]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def a_hang_with_all_ranks_inside_names_its_communicator():
    cluster = tensor_and_data_parallel(15)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(data[0], 600, [0, 4, 8, 12])
    for node in range(4):
        cluster.hang(tensor[node], 600, [4 * node + i for i in (1, 2, 3)])
    return cluster, {15: [alert('NCCLCollectiveHang'), alert('NCCLHangNobodyBehind', comm=data[0].id)]}


def a_rank_in_another_call_is_named():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8), {5: 'AllGather'})
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1)]}


def a_rank_in_another_call_is_named_though_its_node_is_scraped_after_the_others():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 3, 4, 6, 7])
    cluster.hang(cluster.communicators[0], 615, [5], {5: 'AllGather'})
    hang, named = alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1)
    return cluster, {12: [], 12.25: [hang, named], 15: [hang, named]}


def a_rank_that_calls_on_another_communicator_first_is_named():
    cluster = Cluster(1, 8, 15)
    first = cluster.add('first', list(range(8)))
    second = cluster.add('second', list(range(8)))
    cluster.hang(first, 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.hang(second, 600, [3])
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'first', 3, 0, 3)]}


def a_killed_rank_is_named_until_the_job_has_ended():
    cluster = data_parallel(380)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: t <= 600 if rank == 6 else t <= 22200
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 6, 1, 2)]
    told = hang + [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]
    return cluster, {14: hang, 18: told, 40: told, 370: told, 370.5: []}


def the_ranks_that_die_when_a_hung_job_is_ended_are_not_named():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.alive = lambda rank, t: t <= 900 + 20 * rank
    cluster.served = lambda rank, t: True
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {14: hang, 15.5: hang, 16.5: hang, 18: []}


def the_ranks_of_a_node_that_is_gone_are_named_until_the_job_has_ended():
    cluster = tensor_and_data_parallel(60)
    cluster.scraped = lambda node, t: node != 2 or t <= 600
    for i in range(4):
        cluster.hang(cluster.communicators[4 + i], 600, [i, 4 + i, 12 + i])
    cluster.alive = lambda rank, t: t <= 3300
    cluster.served = lambda rank, t: True
    gone = [alert('NCCLCollectiveHang'), {'alertname': 'NCCLExporterDown'}]
    gone += [rank_alert(name, communicator, rank, 2, i) for name in ('NCCLHangCulprit', 'NCCLRanksMissing') for i in range(4)
             for communicator, rank in ((f'dp{i}', 2),)]
    return cluster, {14: gone, 45: gone, 55.5: [{'alertname': 'NCCLExporterDown'}]}


def a_culprit_is_named_while_the_exporter_of_another_node_is_away():
    cluster = data_parallel(40)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.scraped = lambda node, t: node == 0 or not 1200 <= t < 1260
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {15: hang, 20.5: hang, 21: hang, 40: hang}


def a_hang_is_told_though_a_clock_is_set_back_in_it():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.clock = lambda node, t: -3600 if node == 1 and t > 780 else 0
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {12.5: hang, 13.5: hang, 15: hang}


def ranks_of_one_node_that_are_seen_later_are_not_taken_for_idle():
    cluster = pipeline(15, 2)
    sends = cluster.communicators[:4]
    for i in range(4):
        cluster.hang(sends[i], 600, [i])
        cluster.hang(sends[i], 630, [4 + i])
    both = [alert('NCCLCollectiveHang')] + [alert('NCCLHangNobodyBehind', comm=sends[i].id) for i in range(4)]
    return cluster, {12.25: [alert('NCCLCollectiveHang')], 12.5: both, 15: both}


def a_hang_is_told_by_what_was_started_where_no_completion_is_seen():
    cluster = data_parallel(15)
    cluster.source = lambda rank: 'none'
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 3, 0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def a_killed_rank_is_named_where_no_completion_is_seen():
    cluster = data_parallel(25)
    cluster.source = lambda rank: 'none'
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    hang = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 6, 1, 2)]
    return cluster, {14: hang, 24: hang + [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]}


def a_pause_where_no_completion_is_seen_is_not_told():
    cluster = tensor_and_data_parallel(22)
    cluster.source = lambda rank: 'none'
    cluster.busy = lambda t: not 480 < t <= 1080
    cluster.scraped = lambda node, t: node != 1 or not 540 <= t <= 570
    return cluster, NOTHING_EVER


def one_rank_that_outlives_its_job_is_not_told_where_no_completion_is_seen():
    cluster = data_parallel(20)
    cluster.source = lambda rank: 'none'
    cluster.busy = lambda t: t < 480
    cluster.alive = lambda rank, t: rank == 0 or t < 480 + 4 * rank
    cluster.served = lambda rank, t: rank == 0 or t < 780 + 4 * rank
    return cluster, NOTHING_EVER


def of_a_hang_between_stages_only_the_communicators_in_which_it_began_are_told():
    """Rank 0's send to rank 4 never ends; what the ranks have launched behind it is in flight as well."""
    cluster = pipeline(15, 2)
    sends, data = cluster.communicators[:4], cluster.communicators[4:6]
    for i in range(4):
        cluster.hang(sends[i], 585, [i, 4 + i])
    for stage in range(2):
        cluster.hang(data[stage], 600, [4 * stage + i for i in range(4)])
    return cluster, {15: [alert('NCCLCollectiveHang')] + [alert('NCCLHangNobodyBehind', comm=sends[i].id) for i in range(4)]}


def a_stopped_rank_is_named_though_it_has_called_like_the_others():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.halted = lambda rank, t: rank == 6 and t > 600
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 6, 1, 2)]}


def a_job_that_is_suspended_is_not_told():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.halted = lambda rank, t: t > 600
    return cluster, NOTHING_EVER


def communicators_that_only_follow_from_a_missing_call_are_not_told():
    cluster = tensor_and_data_parallel(15)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(tensor[1], 600, [4, 5, 7])
    for i in range(4):
        cluster.hang(data[i], 600, [4 * node + i for node in range(4) if (node, i) != (1, 2)])
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'tp1', 2, 1, 2),
                          rank_alert('NCCLHangCulprit', 'dp2', 1, 1, 2)]}


def a_missing_send_names_the_rank_that_is_in_nothing():
    cluster = pipeline(15)
    sends, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(sends[1], 600, [1, 5, 13])
    for stage in range(4):
        cluster.hang(data[stage], 600, [4 * stage + i for i in (0, 2, 3)])
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'pp1', 2, 2, 1),
                          rank_alert('NCCLHangCulprit', 'dp2', 1, 2, 1)]}


def a_hang_is_told_where_some_ranks_have_no_plugin_but_not_blamed_on_the_network():
    cluster = Cluster(1, 8, 15)
    dp = cluster.add('dp', list(range(7)), ranks=8)
    cluster.hang(dp, 600, range(7))
    return cluster, {15: [alert('NCCLCollectiveHang')]}


def a_job_that_calls_nothing_for_long_is_told_as_information():
    cluster = data_parallel(26, 1)
    cluster.busy = lambda t: t < 480
    return cluster, {20: [], 25: [alert('NCCLJobStalledOutsideCollectives')]}


def a_daemon_that_takes_the_copy_for_the_first_after_a_restart_misses_no_rank():
    """Another user has copied two of the four ranks of node 1, and goes on."""
    cluster = data_parallel(40)
    cluster.scraped = lambda node, t: node == 0 or not 900 <= t <= 930
    cluster.started = lambda node, t: 900 if node == 1 and t > 900 else 1
    cluster.uid = lambda rank, t: '1000' if rank >= 4 and t > 900 else None
    copy = copied_by_another_user(cluster)
    copy.served = lambda rank, t: rank in (4, 5) and cluster.scraped(1, t)
    copy.uid = lambda rank, t: '1001' if t <= 900 else None
    return cluster, NOTHING_EVER


def a_copy_hides_no_missing_rank():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    copied_by_another_user(cluster)
    told = [alert('NCCLCollectiveHang'), rank_alert('NCCLHangCulprit', 'dp', 6, 1, 2), rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]
    return cluster, {18: told, 20: told}


# --- Data quality

def an_exporter_that_is_down_is_told_until_it_is_back_and_its_ranks_are_missing():
    cluster = data_parallel(380)
    cluster.scraped = lambda node, t: node == 0 or not 600 <= t < 22200
    missing = [rank_alert('NCCLRanksMissing', 'dp', rank, 1, rank - 4) for rank in range(4, 8)]
    told = [{'alertname': 'NCCLExporterDown'}] + missing
    return cluster, {10.5: [], 14: told, 40: told, 369: told, 370.5: []}


def a_target_that_never_was_up_is_told():
    cluster = data_parallel(10)
    cluster.scraped = lambda node, t: node == 0
    return cluster, {10: [{'alertname': 'NCCLExporterDown'}]}


def files_that_cannot_be_used_are_told_by_user_and_reason_until_they_are_gone():
    cluster = Cluster(1, 1, 380)
    reasons = ['too_many_segments', 'directory_unreadable', 'unlink_failed', 'open_failed', 'bad_magic']
    for reason in reasons:
        labels = f'{{uid="1001",reason="{reason}"}}'
        cluster.losses['nccl_exporter_user_segments_unusable' + labels] = lambda t: int(600 <= t < 22200)
        cluster.losses['nccl_exporter_user_segment_errors_total' + labels] = lambda t: int(t >= 600)
    told = [unusable(reason) for reason in reasons]
    return cluster, {14.75: [], 15: told, 45: told, 369: told, 370: []}


def files_that_come_and_go_between_scrapes_are_told():
    cluster = Cluster(1, 1, 60)
    cluster.losses = {
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: 0,
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="bad_magic"}': lambda t: min(max(t - 600, 0), 2400) // 60,
    }
    return cluster, {15: [], 18: [unusable('bad_magic')], 49: [unusable('bad_magic')], 56: []}


def losses_are_told_when_they_matter():
    cluster = data_parallel(20, 1)
    cluster.losses = {
        'nccl_rank_events_dropped_total{reason="abandoned",pid="1000",slurm_job_id="42"}': lambda t: 1 * t,
        'nccl_rank_timestamps_rejected_total{reason="zero",pid="1000",slurm_job_id="42"}': lambda t: 5 * t,
        'nccl_exporter_series_dropped_total{reason="folded"}': lambda t: 100 * t,
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: 1,
    }
    return cluster, {20: [alert('NCCLExporterEventsDropped'), alert('NCCLExporterTimestampsRejected'),
                          {'alertname': 'NCCLExporterSeriesDropped', 'reason': 'folded'}, unusable('bad_magic')]}


def few_losses_are_not_told():
    cluster = data_parallel(20, 1)
    cluster.losses = {
        'nccl_rank_events_dropped_total{reason="abandoned",pid="1000",slurm_job_id="42"}': lambda t: 0.3 * t,
        'nccl_rank_events_dropped_total{reason="incomplete_at_finalize",pid="1000",slurm_job_id="42"}': lambda t: 10 * t,
        'nccl_rank_timestamps_rejected_total{reason="zero",pid="1000",slurm_job_id="42"}': lambda t: 3 * t,
        'nccl_exporter_series_dropped_total{reason="folded"}': lambda t: 1000,
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: int(t % 300 < 60),
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="bad_magic"}': lambda t: t // 300,
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="changed_while_read"}': lambda t: t // 15,
    }
    return cluster, NOTHING_EVER


def a_described_alert():
    """A straggler with its labels and annotations."""
    cluster = data_parallel(15)
    cluster.late = lambda rank, t: 0.25 if rank == 6 else 0
    comm = cluster.communicators[0].id
    return cluster, {
        'alertname': 'NCCLStragglerRank', 'comm': comm, 'comm_name': 'dp', 'rank': '6', 'gpu': '2', 'gpu_uuid': 'GPU-6', 'hostname': 'gpu-node-1',
        'pid': '1006', 'global_rank': '6', 'timing_source': 'kernel', 'slurm_job_id': '42', 'job': 'nccl', 'instance': 'node1:9828',
    }, {
        'summary': f'Rank 6 of communicator {comm} makes the others wait',
        'description': f'The ranks of communicator {comm} dp spend 25% of the time waiting for rank 6: GPU 2 GPU-6, node gpu-node-1 (node1:9828), process 1006,'
                       ' global rank 6.',
        'runbook_url': 'https://github.com/nccl-exporter/nccl-exporter/blob/main/docs/runbooks/NCCLStragglerRank.md',
    }


CASES = [case for name, case in list(globals().items()) if getattr(case, '__module__', '') == __name__ and callable(case)
         and name not in ('tensor_and_data_parallel', 'data_parallel', 'pipeline', 'alert', 'rank_alert', 'unusable',
                      'copied_by_another_user', 'a_described_alert')]
