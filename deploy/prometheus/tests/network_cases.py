# SPDX-License-Identifier: Apache-2.0
"""Slow ways between nodes, and what looks like one and is none. The detail is scraped once in a minute."""
from jobs import NOTHING_EVER, alert
from network_jobs import AHEAD, NetworkJob, of_node

SLOW = 3  # rank, whose node is 1


def job(nodes=8, minutes=20):
    return NetworkJob(nodes, 2, minutes)


def an_adapter_that_sends_slowly_is_named_by_its_node():
    cluster = job(minutes=30)
    cluster.wire = lambda rank, t: 4 if rank == SLOW and 600 < t <= 1500 else 1
    return cluster, {10: [], 21: of_node(1), 25: of_node(1), 29.75: []}


def of_an_adapter_that_is_slow_both_ways_its_node_and_the_one_that_sends_to_it_are_named():
    cluster = job(4)
    cluster.wire = lambda rank, t: 4 if rank in (SLOW, cluster.sender(SLOW)) and t > 240 else 1
    return cluster, {4: [], 15: of_node(0, 1), 20: of_node(0, 1)}


def a_slow_link_is_one_alert_of_the_node_that_sends_over_it():
    cluster = job()
    cluster.wire = lambda rank, t: 3 if cluster.node(rank) == 1 and t > 240 else 1
    return cluster, {15: of_node(1), 20: of_node(1)}


def a_slow_link_with_less_bandwidth_is_told_by_both():
    cluster = job(minutes=65)
    cluster.wire = lambda rank, t: 3 if cluster.node(rank) == 1 and t > 2700 else 1
    cluster.communicators[0].speed = lambda t: 0.4 if t > 2700 else 1
    comm = cluster.communicators[0].id
    both = [alert('NCCLSlowNetworkNode', hostname='gpu-node-1', comm=comm), alert('NCCLBandwidthDegraded', comm=comm)]
    return cluster, {45: [], 63: both, 65: both}


def a_slow_adapter_is_named_while_others_compute_longer():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    cluster.computing = lambda rank, t: 6 if rank == 9 else 0
    return cluster, {20: of_node(1)}


def a_slow_adapter_is_named_where_the_host_is_far_ahead():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    cluster.ahead = lambda rank, t: 60
    return cluster, {20: of_node(1)}


def a_slow_adapter_is_named_among_ranks_of_which_one_is_not_timed():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    cluster.is_timed = lambda rank, t: rank != 5
    return cluster, {20: of_node(1)}


def a_slow_adapter_whose_rank_is_not_timed_is_not_told():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    cluster.is_timed = lambda rank, t: rank != SLOW
    return cluster, NOTHING_EVER


def a_receiver_without_credit_is_not_told():
    cluster = job()
    cluster.credit = lambda rank, t: 20 if rank == cluster.sender(SLOW) else 0
    return cluster, NOTHING_EVER


def a_slow_gpu_for_which_receivers_wait_in_the_network_is_not_told():
    cluster = job()
    cluster.computing = lambda rank, t: 20 if rank == SLOW else 0
    return cluster, NOTHING_EVER


def a_rank_that_waits_longer_for_its_gpu_too_is_not_told():
    cluster = job()
    cluster.wire = lambda rank, t: 3 if rank == SLOW else 1
    cluster.ahead = lambda rank, t: 5 * AHEAD if rank == SLOW else AHEAD
    return cluster, NOTHING_EVER


def a_late_host_whose_sends_wait_for_the_network_alone_is_not_told():
    cluster = job()
    cluster.ahead = lambda rank, t: 0 if rank == SLOW else AHEAD
    return cluster, NOTHING_EVER


def a_way_that_is_half_as_long_again_is_not_told():
    cluster = job()
    cluster.wire = lambda rank, t: 1.5 if rank == SLOW else 1
    return cluster, NOTHING_EVER


def short_messages_are_not_told():
    cluster = job()
    cluster.operation_bytes = 64 << 10
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    return cluster, NOTHING_EVER


def few_timed_operations_are_not_told():
    cluster = job()
    cluster.operations = lambda rank: 0.05
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    return cluster, NOTHING_EVER


def three_nodes_are_too_few_to_compare():
    cluster = job(3)
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    return cluster, NOTHING_EVER


def one_node_has_nothing_to_compare():
    return job(1), NOTHING_EVER


def more_than_two_nodes_of_eight_are_unequal_by_design():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if cluster.node(rank) in (1, 4, 6) else 1
    return cluster, NOTHING_EVER


def stages_of_a_pipeline_are_unequal_by_design():
    cluster = NetworkJob(8, 2, 20, collective=None, rates=dict.fromkeys((0, 1, 14, 15), 5))
    cluster.wire = lambda rank, t: 60 if rank < 2 else 1
    return cluster, NOTHING_EVER


def releases_that_do_not_split_off_the_wait_for_the_receiver_name_nobody():
    cluster = job()
    cluster.api_version = '3'
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    return cluster, NOTHING_EVER


def plugins_without_network_timing_name_nobody():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW else 1
    cluster.is_timed = lambda rank, t: False
    return cluster, NOTHING_EVER


def a_minute_of_congestion_is_not_told():
    cluster = job()
    cluster.wire = lambda rank, t: 4 if rank == SLOW and 900 < t <= 960 else 1
    return cluster, NOTHING_EVER


def congestion_that_moves_from_node_to_node_is_not_told():
    cluster = job(minutes=40)
    cluster.wire = lambda rank, t: 4 if cluster.node(rank) == t // 120 % 8 else 1
    return cluster, NOTHING_EVER
