# SPDX-License-Identifier: Apache-2.0
"""Hangs while daemons are not scraped, start, or are older than the rules."""
from cluster import Cluster
from jobs import tensor_and_data_parallel, data_parallel, pipeline, alert, culprit_alert, rank_alert, every_evaluation


def a_hang_goes_on_while_daemons_start_without_their_state():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.forgets = lambda node, t: t == 900 + 45 * node
    return cluster, every_evaluation(14, 19, [alert('NCCLCollectiveHang'), culprit_alert(0, 3)])


def a_culprit_is_named_while_the_exporter_of_another_node_is_away():
    cluster = data_parallel(40)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.scraped = lambda node, t: node == 0 or not 1500 <= t < 1560
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {15: hang, 25.5: hang, 26: hang, 40: hang}


def ranks_of_one_node_that_are_seen_later_are_not_taken_for_idle():
    cluster = pipeline(15, 2)
    sends = cluster.communicators[:4]
    for i in range(4):
        cluster.hang(sends[i], 600, [i])
        cluster.hang(sends[i], 630, [4 + i])
    both = [alert('NCCLCollectiveHang')] + [alert('NCCLHangNobodyBehind', comm=sends[i].id) for i in range(4)]
    return cluster, {12.25: [], 12.5: both, 15: both}


def a_hang_of_ranks_on_old_and_new_daemons_is_told_and_names_nobody():
    cluster = data_parallel(15)
    cluster.old_daemons = {1}
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 3, 4, 5, 7])
    cluster.halted = lambda rank, t: rank == 6 and t > 700
    return cluster, {15: [alert('NCCLCollectiveHang')]}


def an_idle_rank_is_named_while_the_culprit_is_on_an_old_daemon():
    """Rank 0 sends to rank 1, which is stopped, and rank 2 has completed its part. docs/upgrade.md warns of it."""
    cluster = Cluster(3, 1, 15)
    cluster.old_daemons = {1}
    cluster.hang(cluster.add('pp', list(cluster.ranks), collective=None), 600, [0])
    cluster.halted = lambda rank, t: rank == 1 and t > 600
    return cluster, {15: [alert('NCCLCollectiveHang'), culprit_alert(2, 0)]}


def ranks_that_are_gone_are_named_though_the_node_that_waits_is_not_scraped_once():
    cluster = data_parallel(32)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank < 4 or t <= 600
    cluster.served = lambda rank, t: rank < 4 or t <= 900
    cluster.scraped = lambda node, t: node != 0 or t != 1500
    told = [alert('NCCLCollectiveHang')] + [
        named for rank in range(4, 8) for named in (culprit_alert(1, rank - 4), rank_alert('NCCLRanksMissing', 'dp', rank, 1, rank - 4))]
    return cluster, every_evaluation(24.5, 28, told) | {31: told}


def ranks_that_die_at_the_end_of_a_hung_job_are_not_named_though_a_node_is_not_scraped_once():
    cluster = data_parallel(30)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.alive = lambda rank, t: rank < 4 or t <= 900
    cluster.served = lambda rank, t: True
    cluster.scraped = lambda node, t: node != 0 or t != 1080
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, every_evaluation(17, 20, hang) | {28: hang}


def a_hang_and_its_culprit_are_told_while_no_rank_is_scraped_twice():
    cluster = data_parallel(25, 1)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2])
    cluster.scraped = lambda node, t: not 900 <= t < 930
    cluster.alive = lambda rank, t: t <= 1260
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, every_evaluation(12.5, 20, hang) | {23: []}


def a_hang_with_all_ranks_inside_is_told_while_a_node_is_not_scraped_twice():
    cluster = data_parallel(25)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.scraped = lambda node, t: node == 0 or not 900 <= t < 930
    cluster.alive = lambda rank, t: t <= 1260
    hang = [alert('NCCLCollectiveHang'), alert('NCCLHangNobodyBehind', comm=cluster.communicators[0].id)]
    return cluster, every_evaluation(12.5, 20, hang) | {23: []}


def a_node_that_is_not_scraped_when_the_hang_is_told_is_not_named():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.scraped = lambda node, t: node == 0 or t != 735
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, every_evaluation(12.5, 15, hang)


def ranks_that_follow_a_hang_are_not_named_while_a_node_is_not_scraped():
    cluster = tensor_and_data_parallel(18)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(data[0], 600, [0, 4, 8, 12])
    for node in range(4):
        cluster.hang(tensor[node], 600, [4 * node + i for i in (1, 2, 3)])
    cluster.scraped = lambda node, t: node != 3 or t != 795
    return cluster, every_evaluation(12.75, 18, [alert('NCCLCollectiveHang'), alert('NCCLHangNobodyBehind', comm=data[0].id)])


def ranks_of_a_node_that_wait_within_it_are_not_named_while_it_is_not_scraped():
    cluster = tensor_and_data_parallel(16)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(tensor[1], 600, [4, 5, 7])
    for i in range(4):
        cluster.hang(data[i], 600, [4 * node + i for node in (0, 2, 3)])
    cluster.scraped = lambda node, t: node != 1 or t != 735
    return cluster, every_evaluation(12.75, 16, [alert('NCCLCollectiveHang'), culprit_alert(1, 2)])
