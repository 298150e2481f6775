# SPDX-License-Identifier: Apache-2.0
"""Late ranks among jobs that are played step by step."""
from jobs import NOTHING_EVER
from step_jobs import gathered, unequal_nodes


def lateness_of_1_percent_is_not_told_where_one_rank_gathers_by_sends_and_receives():
    return gathered(11, 0.015, 20), {minute: [] for minute in range(5, 12)}


def nodes_that_are_faster_are_not_told():
    return unequal_nodes(11, 0), NOTHING_EVER
