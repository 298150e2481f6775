# SPDX-License-Identifier: Apache-2.0
"""Late ranks among jobs that are played step by step."""
from jobs import NOTHING_EVER, rank_alert, every_evaluation
from step_jobs import pairs, experts, gathered, unequal_nodes

LATE_OF_PAIRS = [rank_alert('NCCLStragglerRank', 'tp1', 0, 0, 2), rank_alert('NCCLStragglerRank', 'dp0', 1, 0, 2), rank_alert('NCCLLastArriver', 'dp0', 1, 0, 2)]


def the_late_one_of_a_pair_is_named_where_buckets_are_of_one_size():
    return pairs(1, 8), every_evaluation(7, 11, LATE_OF_PAIRS) | {4.75: []}


def the_late_one_of_a_pair_is_named_across_nodes():
    return pairs(4, 4), every_evaluation(7, 11, LATE_OF_PAIRS) | {4.75: []}


def a_late_rank_is_named_without_a_break_while_the_load_of_experts_moves_around():
    told = [rank_alert('NCCLStragglerRank', 'fsdp', 0, 0, 0), rank_alert('NCCLLastArriver', 'fsdp', 0, 0, 0)]
    beside = told + [rank_alert('NCCLStragglerRank', 'ep0', 0, 0, 0)]  # ep0 waits for it, too, now and then
    return experts(15, 0), {4.75: []} | {minute: told for minute in (8, 10)} | {minute: beside for minute in (11, 12, 13, 14)}


def a_late_rank_is_named_where_one_rank_gathers_by_sends_and_receives():
    told = [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2), rank_alert('NCCLLastArriver', 'dp', 6, 1, 2)]
    return gathered(11, 0.15, 20), every_evaluation(7, 11, told) | {4.75: []}


def lateness_of_1_percent_is_not_told_where_one_rank_gathers_by_sends_and_receives():
    return gathered(11, 0.015, 20), {minute: [] for minute in range(5, 12)}


def a_slow_rank_is_named_where_a_quarter_of_the_nodes_is_faster():
    told = [rank_alert('NCCLStragglerRank', 'dp', 3, 1, 1), rank_alert('NCCLLastArriver', 'dp', 3, 1, 1)]
    return unequal_nodes(11, 0.25), every_evaluation(7, 11, told) | {4.75: []}


def nodes_that_are_faster_are_not_told():
    return unequal_nodes(11, 0), NOTHING_EVER
