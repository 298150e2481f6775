# SPDX-License-Identifier: Apache-2.0
"""Late ranks, nodes and links that must be named."""
from cluster import Cluster
from jobs import NOTHING_EVER, tensor_and_data_parallel, data_parallel, pipeline, alert, rank_alert, copied_by_another_user, every_evaluation


def a_rank_that_is_late_by_5_percent_is_named_within_three_minutes():
    cluster = data_parallel(20, 1)
    cluster.late = lambda rank, t: 0.05 if rank == 2 and t > 600 else 0
    straggler = rank_alert('NCCLStragglerRank', 'dp', 2, 0, 2)
    return cluster, {10: [], 12.5: [straggler], 20: [straggler, rank_alert('NCCLLastArriver', 'dp', 2, 0, 2)]}


def of_a_late_rank_s_victims_in_other_communicators_none_is_named():
    cluster = tensor_and_data_parallel(20)
    cluster.late = lambda rank, t: 0.2 if rank == 6 and t > 600 else 0
    return cluster, {10: [], 12.5: [rank_alert('NCCLStragglerRank', 'tp1', 2, 1, 2), rank_alert('NCCLStragglerRank', 'dp2', 1, 1, 2)],
                     20: [rank_alert('NCCLStragglerRank', 'tp1', 2, 1, 2), rank_alert('NCCLStragglerRank', 'dp2', 1, 1, 2),
                          rank_alert('NCCLLastArriver', 'tp1', 2, 1, 2)]}


def of_its_victims_none_is_named_where_others_wait_for_them_in_two_communicators_at_once():
    cluster = tensor_and_data_parallel(20, beside=True)
    cluster.late = lambda rank, t: 0.2 if rank == 6 and t > 600 else 0
    stragglers = [rank_alert('NCCLStragglerRank', name, rank, 1, 2) for name, rank in (('tp1', 2), ('dp2', 1), ('world', 6))]
    return cluster, {10: [], 12.5: stragglers, 20: stragglers + [rank_alert('NCCLLastArriver', 'tp1', 2, 1, 2)]}


def a_late_rank_of_a_pipeline_is_named_among_the_ranks_of_its_stage():
    cluster = pipeline(20)
    cluster.late = lambda rank, t: 0.1 if rank == 5 and t > 600 else 0
    told = [rank_alert('NCCLStragglerRank', 'dp1', 1, 1, 1), rank_alert('NCCLStragglerRank', 'pp1', 1, 1, 1), rank_alert('NCCLLastArriver', 'dp1', 1, 1, 1)]
    return cluster, {20: told}


def a_late_rank_is_named_where_experts_exchange_by_sends_and_receives():
    cluster = Cluster(2, 8, 20)
    for node in range(2):
        cluster.add(f'ep{node}', [8 * node + i for i in range(8)], collective=None)
    cluster.add('world', list(range(16)))
    cluster.late = lambda rank, t: 0.1 if rank == 11 else 0
    return cluster, {20: [rank_alert('NCCLStragglerRank', 'ep1', 3, 1, 3)]}


def a_rank_that_is_late_half_of_the_time_is_named():
    cluster = data_parallel(30)
    cluster.late = lambda rank, t: 0.3 if rank == 1 and t % 120 < 60 else 0
    return cluster, {24: [rank_alert('NCCLStragglerRank', 'dp', 1, 0, 1)]}


def a_late_rank_is_named_by_arrivals_where_nothing_is_timed():
    cluster = data_parallel(20, duty=0)
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
    return cluster, {10: [], 12.5: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)],
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
    return cluster, {10: [], 12.5: [straggler], 20: [straggler, rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]}


def a_late_rank_is_named_while_an_old_daemon_serves_it():
    cluster = data_parallel(14)
    cluster.old_daemons = {1}
    cluster.late = lambda rank, t: 0.1 if rank == 6 and t > 600 else 0
    return cluster, {10: [], 12.5: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)]}


def a_rank_that_is_late_by_11_percent_is_named_in_105_seconds():
    cluster = data_parallel(12)
    cluster.late = lambda rank, t: 0.11 if rank == 6 and t > 600 else 0
    return cluster, {11.25: [], 11.75: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)]}


def late_by_two_fifths(seen_late):
    """Rates show the other ranks of a node that is scraped later as late, too."""
    cluster = data_parallel(13, 4)
    cluster.seen_late = {seen_late}
    cluster.late = lambda rank, t: 0.4 if rank == 6 and t > 600 else 0
    return cluster, {11.25: []} | every_evaluation(12.25, 12.5, [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)])


def a_late_rank_is_named_in_135_seconds_though_another_node_is_scraped_later():
    return late_by_two_fifths(seen_late=3)


def a_late_rank_is_named_in_135_seconds_and_not_its_node_though_it_is_scraped_later():
    return late_by_two_fifths(seen_late=1)


def a_rank_that_makes_steps_longer_by_a_tenth_is_named_in_105_seconds():
    cluster = data_parallel(12)
    cluster.late = lambda rank, t: 0.1 / 1.1 if rank == 6 and t > 600 else 0
    return cluster, {11.25: [], 11.75: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)]}


def a_rank_that_is_late_by_4_percent_needs_more_evaluations():
    cluster = data_parallel(13)
    cluster.late = lambda rank, t: 0.04 if rank == 6 and t > 600 else 0
    return cluster, {11.25: [], 12: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)]}


def a_node_that_is_late_by_a_fifth_is_named_in_105_seconds():
    cluster = data_parallel(12, 4)
    cluster.late = lambda rank, t: 0.2 if cluster.node(rank) == 2 and t > 600 else 0
    return cluster, {11.25: [], 11.75: [alert('NCCLStragglerNode', hostname='gpu-node-2')]}


def a_node_that_is_late_by_11_percent_is_named_in_105_seconds():
    cluster = data_parallel(12, 4)
    cluster.late = lambda rank, t: 0.11 if cluster.node(rank) == 2 and t > 600 else 0
    return cluster, {11.25: [], 11.75: [alert('NCCLStragglerNode', hostname='gpu-node-2')]}


def two_late_ranks_are_named_in_105_seconds():
    cluster = data_parallel(13, 4)
    cluster.late = lambda rank, t: 0.2 if rank in (2, 6) and t > 600 else 0
    return cluster, {11.25: [], 11.75: [rank_alert('NCCLStragglerRank', 'dp', rank, rank // 4, 2) for rank in (2, 6)]}


def a_rank_with_a_long_wait_every_four_minutes_is_not_named():
    cluster = data_parallel(20)
    cluster.late = lambda rank, t: 2 if rank == 1 and t % 240 == 15 else 0
    return cluster, NOTHING_EVER


def lateness_of_2_percent_is_not_told_while_daemons_that_have_just_started_count_no_steps():
    """By the time in kernels alone, 2 % in 8 collectives look like 16 %."""
    cluster = data_parallel(13, 2, overlap=8, rate=8)
    cluster.late = lambda rank, t: 0.02 if rank == 6 else 0
    cluster.counts_steps = lambda t: not 600 <= t < 690
    return cluster, NOTHING_EVER


def the_late_one_of_two_ranks_is_named():
    cluster = Cluster(2, 1, 14)
    cluster.add('dp', [0, 1])
    cluster.late = lambda rank, t: 0.1 if rank == 1 and t > 600 else 0
    return cluster, {10.5: [], 12: [rank_alert('NCCLStragglerRank', 'dp', 1, 1, 0)]}


def the_late_one_of_three_ranks_is_named():
    cluster = Cluster(3, 1, 14)
    cluster.add('dp', [0, 1, 2])
    cluster.late = lambda rank, t: 0.05 if rank == 1 and t > 600 else 0
    return cluster, {10.5: [], 12: [rank_alert('NCCLStragglerRank', 'dp', 1, 1, 0)]}


def the_late_one_of_two_nodes_is_named():
    cluster = data_parallel(14)
    cluster.late = lambda rank, t: 0.1 if rank < 4 and t > 600 else 0
    return cluster, {10.5: [], 12: [alert('NCCLStragglerNode', hostname='gpu-node-0')]}


def a_late_rank_is_named_where_communicators_are_made_anew_every_three_minutes():
    cluster = Cluster(2, 4, 26)
    for turn in range(9):
        cluster.add(f'dp{turn}', list(range(8)), alive=lambda t, turn=turn: turn * 180 <= t < (turn + 1) * 180 - 15)
    cluster.late = lambda rank, t: 0.1 if rank == 6 and t > 600 else 0
    told = {minute: [rank_alert('NCCLStragglerRank', f'dp{turn}', 6, 1, 2) for turn in turns]
            for minute, turns in {13.5: [4], 15: [4], 20.5: [5, 6], 26: [7, 8]}.items()}
    return cluster, {10.5: []} | told
