# SPDX-License-Identifier: Apache-2.0
"""Late ranks among jobs that are played step by step."""
from jobs import NOTHING_EVER, rank_alert, every_evaluation
from step_jobs import pairs, experts, gathered, unequal_nodes


def of_the_victim_in_a_pair_nothing_is_told_where_buckets_are_of_one_size():
    straggler = rank_alert('NCCLStragglerRank', 'dp0', 1, 0, 2)
    return pairs(1, 8), every_evaluation(7, 11, [straggler, rank_alert('NCCLLastArriver', 'dp0', 1, 0, 2)]) | {5: []}


def of_the_victim_in_a_pair_nothing_is_told_across_nodes():
    straggler = rank_alert('NCCLStragglerRank', 'dp0', 1, 0, 2)
    return pairs(4, 4), every_evaluation(7, 11, [straggler, rank_alert('NCCLLastArriver', 'dp0', 1, 0, 2)]) | {5: []}


def a_late_rank_is_named_without_a_break_while_the_load_of_experts_moves_around():
    straggler = rank_alert('NCCLStragglerRank', 'fsdp', 0, 0, 0)
    return experts(15, 0), {5: [], 8: [straggler], 10: [straggler], 11: [straggler], 12: [straggler], 13: [straggler], 14: [straggler]}


def a_late_rank_is_named_where_one_rank_gathers_by_sends_and_receives():
    told = [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2), rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]
    return gathered(11, 0.15, 20), every_evaluation(7, 11, told) | {5: []}


def lateness_of_1_percent_is_not_told_where_one_rank_gathers_by_sends_and_receives():
    return gathered(11, 0.015, 20), {minute: [] for minute in range(5, 12)}


def a_slow_rank_is_named_where_a_quarter_of_the_nodes_is_faster():
    told = [rank_alert('NCCLStragglerRank', 'dp', 3, 1, 1), rank_alert('NCCLLastArriver', 'dp', 3, 1, 1)]
    return unequal_nodes(11, 0.25), every_evaluation(7, 11, told) | {5: []}


def nodes_that_are_faster_are_not_told():
    return unequal_nodes(11, 0), NOTHING_EVER
