# SPDX-License-Identifier: Apache-2.0
"""Jobs that seem to have a late rank and have none: no rank must be named."""
from cluster import Cluster
from jobs import NOTHING_EVER, tensor_and_data_parallel, data_parallel, pipeline


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
    cluster.late = lambda rank, t: 0.1 if rank % 2 else 0
    return cluster, NOTHING_EVER


def the_ends_of_a_pipeline_that_share_an_embedding_are_not_told():
    cluster = Cluster(4, 1, 14)
    cluster.add('pp', [0, 1, 2, 3], collective=None, rates={0: 5, 3: 5})
    cluster.add('embedding', [0, 3])
    cluster.late = lambda rank, t: 0.5 if rank == 3 else 0
    return cluster, NOTHING_EVER


def two_ranks_that_are_late_by_turns_are_not_told():
    cluster = Cluster(2, 1, 20)
    cluster.add('dp', [0, 1])
    cluster.late = lambda rank, t: 0.1 if t // 60 % 2 == rank else 0
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


def a_restart_with_new_processes_is_not_told():
    cluster = Cluster(4, 4, 30)
    cluster.add('before', list(range(8)), alive=lambda t: t < 900)
    cluster.add('after', list(range(8, 16)), alive=lambda t: t >= 1000)
    cluster.alive = lambda rank, t: t < 900 if rank < 8 else t >= 1000
    cluster.late = lambda rank, t: 0.4 if rank == 8 and 1000 <= t < 1240 else 0
    return cluster, NOTHING_EVER


def an_elastic_resize_is_not_told():
    cluster = Cluster(2, 4, 30)
    cluster.add('all', list(range(8)), alive=lambda t: t < 900)
    cluster.add('fewer', list(range(7)), alive=lambda t: t >= 960)
    cluster.alive = lambda rank, t: rank < 7 or t < 900
    cluster.served = lambda rank, t: rank < 7 or t < 1200
    return cluster, NOTHING_EVER


def unequal_stages_on_old_and_new_daemons_are_not_told():
    cluster = pipeline(15)
    cluster.old_daemons = {1, 3}
    cluster.late = lambda rank, t: 0.2 if cluster.node(rank) == 3 else 0
    return cluster, NOTHING_EVER


def wrong_clocks_and_clocks_that_are_set_are_not_told():
    cluster = tensor_and_data_parallel(15)
    cluster.clock = lambda node, t: {0: 0, 1: -3600, 2: 3600, 3: 7200 if t > 480 else -7200}[node]
    return cluster, NOTHING_EVER
