# SPDX-License-Identifier: Apache-2.0
"""Hangs and their culprits, and ranks that are missing."""
import math

from cluster import Cluster
from jobs import NOTHING_EVER, beside, tensor_and_data_parallel, data_parallel, pipeline, alert, culprit_alert, rank_alert, copied_by_another_user, every_evaluation, waiting_for

NOT_JUDGED = alert('NCCLJobNotJudged')  # fires for a job in which no completion is seen


def a_rank_that_never_enters_is_named_after_two_minutes():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def of_the_ranks_behind_only_the_one_that_waits_for_nobody_is_named():
    cluster = tensor_and_data_parallel(15)
    tensor, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(tensor[1], 600, [4, 5, 7])
    for i in range(4):
        cluster.hang(data[i], 600, [4 * node + i for node in (0, 2, 3)])
    return cluster, {15: [alert('NCCLCollectiveHang'), culprit_alert(1, 2)]}


def a_hang_is_told_though_another_user_copies_the_job_and_goes_on():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    copied_by_another_user(cluster)
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def two_jobs_of_one_namespace(minutes):
    cluster = data_parallel(minutes)
    cluster.job = {'namespace': 'team-a', 'nccl_job': 'llama'}
    return cluster, beside(cluster, {'namespace': 'team-a', 'nccl_job': 'mixtral'})


# Regresses: a namespace was one job, and the culprit of one of its jobs ended the alert of the other.
def the_hang_of_a_job_lasts_though_another_of_its_namespace_hangs_by_a_rank():
    llama, mixtral = two_jobs_of_one_namespace(20)
    comm = llama.communicators[0].id
    llama.hang(llama.communicators[0], 600, range(8))
    mixtral.hang(mixtral.communicators[0], 660, [0, 1, 2, 3, 4, 5, 7])
    first = [alert('NCCLCollectiveHang', nccl_job='llama'), alert('NCCLHangNobodyBehind', comm=comm, nccl_job='llama')]
    both = first + [alert('NCCLCollectiveHang', nccl_job='mixtral'), culprit_alert(1, 2, nccl_job='mixtral')]
    return llama, {12.75: first, 14: both, 18: both}


# Regresses: half of the job seemed to be dead, and its killed rank was named two minutes later.
def a_killed_rank_is_named_at_once_though_another_job_of_its_namespace_has_died():
    llama, mixtral = two_jobs_of_one_namespace(12)
    mixtral.alive = lambda rank, t: t <= 590
    mixtral.served = lambda rank, t: True
    llama.hang(llama.communicators[0], 600, llama.ranks)
    llama.alive = lambda rank, t: rank != 6 or t <= 600
    llama.served = lambda rank, t: True
    return llama, {10.5: [culprit_alert(1, 2, nccl_job='llama')]}


def dead_processes_that_another_user_copied_are_not_named_in_the_hang_of_the_job():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    copy = copied_by_another_user(cluster)
    copy.hang(copy.communicators[0], 300, range(8))
    copy.alive = lambda rank, t: t <= 600
    copy.served = lambda rank, t: True
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {12.5: hang, 15: hang}


def the_hang_of_a_copied_job_is_told_by_its_user_and_not_of_the_job():
    cluster = data_parallel(15)
    copy = copied_by_another_user(cluster)
    copy.hang(copy.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang', uid='1001'), culprit_alert(0, 3, uid='1001')]
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


def a_rank_in_another_call_is_named_though_a_completion_of_another_was_not_seen():
    cluster = data_parallel(15)
    cluster.lost = lambda rank: 1 if rank == 2 else 0
    cluster.hang(cluster.communicators[0], 600, range(8), {5: 'AllGather'})
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1)]}


def a_rank_in_another_call_than_a_broadcast_is_named():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8), {rank: 'AllReduce' if rank == 5 else 'Broadcast' for rank in range(8)})
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1)]}


def a_rank_in_another_call_is_named_though_its_node_is_scraped_after_the_others():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 3, 4, 6, 7])
    cluster.hang(cluster.communicators[0], 615, [5], {5: 'AllGather'})
    hang, named = alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1)
    return cluster, {12.25: [], 12.5: [hang, named], 15: [hang, named]}


def a_rank_that_calls_on_another_communicator_first_is_named():
    cluster = Cluster(1, 8, 15)
    first = cluster.add('first', list(range(8)))
    second = cluster.add('second', list(range(8)))
    cluster.hang(first, 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.hang(second, 600, [3])
    return cluster, {15: [alert('NCCLCollectiveHang'), rank_alert('NCCLHangMismatchedCall', 'first', 3, 0, 3)]}


def a_killed_rank_is_named_until_the_job_has_ended():
    cluster = data_parallel(60)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: t <= 600 if rank == 6 else t <= 3000
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    hang = [alert('NCCLCollectiveHang'), culprit_alert(1, 2)]
    told = hang + [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]
    return cluster, {14: hang, 18: told, 40: told, 50: told, 52: []}


def the_ranks_that_die_when_a_hung_job_is_ended_are_not_named():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.alive = lambda rank, t: t <= 900 + 20 * rank
    cluster.served = lambda rank, t: True
    hang = [alert('NCCLCollectiveHang', severity='warning'), culprit_alert(0, 3, severity='warning')]
    return cluster, {14: hang, 15.5: hang, 16.5: hang, 19.5: []}


def the_ranks_that_die_when_a_hung_job_is_ended_are_not_named_where_no_completion_is_seen():
    cluster, expected = the_ranks_that_die_when_a_hung_job_is_ended_are_not_named()
    cluster.source = lambda rank: 'none'
    return cluster, {minute: expected[minute] + [NOT_JUDGED] for minute in (14, 15.5, 16.5)}


def the_ranks_of_a_node_that_is_gone_are_named_until_the_job_has_ended():
    cluster = tensor_and_data_parallel(60)
    cluster.scraped = lambda node, t: node != 2 or t <= 600
    for i in range(4):
        cluster.hang(cluster.communicators[4 + i], 600, [i, 4 + i, 12 + i])
    cluster.alive = lambda rank, t: t <= 3300
    cluster.served = lambda rank, t: True
    gone = [alert('NCCLCollectiveHang'), {'alertname': 'NCCLExporterDown'}]
    gone += [named for i in range(4) for named in (culprit_alert(2, i), rank_alert('NCCLRanksMissing', f'dp{i}', 2, 2, i))]
    return cluster, {14: gone, 45: gone, 57: [{'alertname': 'NCCLExporterDown'}]}


def of_a_node_that_is_gone_the_ranks_are_named():
    cluster = data_parallel(20)
    cluster.scraped = lambda node, t: node != 1 or t <= 600
    cluster.hang(cluster.communicators[0], 600, range(4))
    down = [{'alertname': 'NCCLExporterDown'}]
    missing, culprits = [rank_alert('NCCLRanksMissing', 'dp', rank, 1, rank - 4) for rank in range(4, 8)], [culprit_alert(1, gpu) for gpu in range(4)]
    return cluster, {11: [], 11.75: down + missing, 12.5: down + missing + [alert('NCCLCollectiveHang')] + culprits,
                     18: down + missing + [alert('NCCLCollectiveHang')] + culprits}


def a_hang_is_told_though_a_clock_is_set_back_in_it():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    cluster.clock = lambda node, t: -3600 if node == 1 and t > 780 else 0
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {12.5: hang, 13.5: hang, 15: hang}


def a_hang_is_told_by_what_was_started_where_no_completion_is_seen():
    cluster = data_parallel(15)
    cluster.source = lambda rank: 'none'
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    hang = [NOT_JUDGED, alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [NOT_JUDGED], 12.5: hang, 15: hang}


def a_killed_rank_is_named_where_no_completion_is_seen():
    cluster = data_parallel(25)
    cluster.source = lambda rank: 'none'
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    hang = [NOT_JUDGED, alert('NCCLCollectiveHang'), culprit_alert(1, 2)]
    return cluster, {14: hang, 24: hang + [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]}


def a_pause_where_no_completion_is_seen_is_not_told():
    cluster = tensor_and_data_parallel(22)
    cluster.source = lambda rank: 'none'
    cluster.busy = lambda t: not 480 < t <= 1080
    cluster.scraped = lambda node, t: node != 1 or not 540 <= t <= 570
    return cluster, every_evaluation(5, 22, [NOT_JUDGED])


def one_rank_that_outlives_its_job_is_not_told_where_no_completion_is_seen():
    cluster = data_parallel(20)
    cluster.source = lambda rank: 'none'
    cluster.busy = lambda t: t < 480
    cluster.alive = lambda rank, t: rank == 0 or t < 480 + 4 * rank
    cluster.served = lambda rank, t: rank == 0 or t < 780 + 4 * rank
    return cluster, every_evaluation(5, 20, [NOT_JUDGED])


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
    return cluster, {15: [alert('NCCLCollectiveHang'), culprit_alert(1, 2)]}


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
    return cluster, {15: [alert('NCCLCollectiveHang'), culprit_alert(1, 2)]}


def a_missing_send_names_the_rank_that_is_in_nothing():
    cluster = pipeline(15)
    sends, data = cluster.communicators[:4], cluster.communicators[4:8]
    cluster.hang(sends[1], 600, [1, 5, 13])
    for stage in range(4):
        cluster.hang(data[stage], 600, [4 * stage + i for i in (0, 2, 3)])
    return cluster, {15: [alert('NCCLCollectiveHang'), culprit_alert(2, 1)]}


def a_hang_is_told_where_some_ranks_have_no_plugin_but_not_blamed_on_the_network():
    cluster = Cluster(1, 8, 15)
    dp = cluster.add('dp', list(range(7)), ranks=8)
    cluster.hang(dp, 600, range(7))
    return cluster, {15: [alert('NCCLCollectiveHang')]}


def a_job_that_calls_nothing_for_long_is_told_as_information():
    cluster = data_parallel(26, 1)
    cluster.busy = lambda t: t < 480
    return cluster, {20: [], 25: [alert('NCCLJobStalledOutsideCollectives')]}


def a_copy_hides_no_missing_rank():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    copied_by_another_user(cluster)
    told = [alert('NCCLCollectiveHang'), culprit_alert(1, 2), rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]
    return cluster, {18: told, 20: told}


def hang_of(severity):
    return [alert('NCCLCollectiveHang', severity=severity), culprit_alert(0, 0, severity=severity)]


def a_save_of_five_minutes_of_one_rank_is_a_warning():
    cluster = data_parallel(20)
    cluster.hang(cluster.communicators[0], 600, range(1, 8), until=900)
    return cluster, every_evaluation(12.5, 15, hang_of('warning')) | {17: []}


def a_hang_that_may_end_is_critical_after_ten_minutes_and_once_a_longer_one_was_survived_after_that():
    """Rank 0 saves for 15 minutes, then for 14, and then forever."""
    cluster = data_parallel(65)
    for begin, end in (600, 1500), (1620, 2460), (2580, math.inf):
        cluster.hang(cluster.communicators[0], begin, range(1, 8), until=end)
    told = every_evaluation(12.5, 19.5, hang_of('warning')) | every_evaluation(22, 25, hang_of('critical')) | {27: []}
    told |= every_evaluation(29.5, 41, hang_of('warning')) | {43: []}
    return cluster, told | every_evaluation(45.5, 57.5, hang_of('warning')) | every_evaluation(60.25, 65, hang_of('critical'))


def a_node_that_is_not_scraped_once_makes_no_hang_younger():
    cluster = data_parallel(25)
    cluster.hang(cluster.communicators[0], 600, range(1, 8))
    cluster.scraped = lambda node, t: t != 1080
    return cluster, every_evaluation(13, 17.75, hang_of('warning')) | every_evaluation(22, 25, hang_of('critical'))


def a_hang_of_which_a_rank_is_not_seen_is_a_warning_first():
    cluster = Cluster(1, 8, 25)
    dp = cluster.add('dp', list(range(7)), ranks=8)
    cluster.hang(dp, 600, range(7))
    return cluster, {15: [alert('NCCLCollectiveHang', severity='warning')], 24: [alert('NCCLCollectiveHang', severity='critical')]}


def a_hang_that_cannot_end_by_itself_is_critical_at_once():
    return waiting_for([6], minutes=14), every_evaluation(12.75, 14, [
        alert('NCCLCollectiveHang', severity='critical'), culprit_alert(1, 2, severity='critical')])


def a_hang_with_a_rank_in_another_call_is_critical_at_once():
    cluster = data_parallel(15)
    cluster.hang(cluster.communicators[0], 600, range(8), {5: 'AllGather'})
    return cluster, {14: [alert('NCCLCollectiveHang', severity='critical'), rank_alert('NCCLHangMismatchedCall', 'dp', 5, 1, 1, severity='critical')]}


def a_rank_that_waited_in_a_hang_that_ended_is_named_when_it_is_killed():
    """Rank 0 saves for three minutes; rank 6 is killed two minutes after that."""
    cluster = data_parallel(25)
    cluster.hang(cluster.communicators[0], 600, range(1, 8), until=780)
    cluster.hang(cluster.communicators[0], 900, range(8))
    cluster.alive = lambda rank, t: rank != 6 or t <= 900
    cluster.served = lambda rank, t: rank != 6 or t <= 1200
    hang = [alert('NCCLCollectiveHang')]
    killed = hang + [culprit_alert(1, 2)]
    return cluster, {12.5: hang + [culprit_alert(0, 0)], 15: [], 17.5: killed, 19: killed,
                     24: killed + [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]}


def the_root_of_a_broadcast_that_is_ahead_blames_nobody_else():
    cluster = data_parallel(15)
    dp = cluster.communicators[0]
    cluster.hang(dp, 600, [1, 2, 4, 5, 6, 7], dict.fromkeys(range(8), 'Broadcast'))
    cluster.hang(dp, 600, [0], ahead=1)
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def ranks_that_have_completed_a_reduce_blame_nobody_who_waits_in_it():
    cluster = data_parallel(15)
    dp = cluster.communicators[0]
    cluster.hang(dp, 600, [0, 1, 2, 4], dict.fromkeys(range(8), 'Reduce'))
    cluster.hang(dp, 600, [5, 6, 7], ahead=1)
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}


def ranks_behind_in_a_group_that_waits_for_less_than_the_threshold_are_not_named():
    """Two groups of one job, or of two jobs with equal labels: all ranks of the first are inside, then rank 7 of the second is away."""
    cluster = Cluster(4, 4, 15)
    first = cluster.add('first', list(range(8)))
    second = cluster.add('second', list(range(8, 16)))
    cluster.hang(first, 600, range(8))
    cluster.hang(second, 690, range(8, 15))
    hang, inside = alert('NCCLCollectiveHang'), alert('NCCLHangNobodyBehind', comm=first.id)
    return cluster, every_evaluation(12.5, 13.25, [hang, inside]) | {14: [hang, culprit_alert(3, 3)]}


def a_killed_rank_is_named_after_two_evaluations():
    return waiting_for([6]), {10.25: [], 10.5: [culprit_alert(1, 2)]}


def a_stopped_rank_is_named_after_two_evaluations():
    cluster = waiting_for([])
    cluster.halted = lambda rank, t: rank == 6 and t > 600
    return cluster, {10.25: [], 10.5: [culprit_alert(1, 2)]}


def restarted_in_place(cluster, at):
    """All processes end, and others with the same labels and new communicators take their places."""
    again = data_parallel(cluster.times[-1] // 60)
    again.communicators[0].id = 'a' * 16
    again.alive = lambda rank, t: t > at
    was_alive = cluster.alive
    cluster.alive = lambda rank, t: was_alive(rank, t) and t <= at
    cluster.served = lambda rank, t: True
    cluster.replaced = lambda t: t > at
    cluster.copies.append(again)
    return cluster


def operations_in_flight_when_a_job_restarts_in_place_are_not_told():
    cluster = data_parallel(30)
    cluster.hang(cluster.communicators[0], 600, [0, 1, 2, 4, 5, 6, 7])
    return restarted_in_place(cluster, 630), NOTHING_EVER


def a_killed_rank_is_not_named_any_more_when_its_job_has_restarted_in_place():
    culprit = culprit_alert(1, 2)
    return restarted_in_place(waiting_for([6], minutes=30), 660), {10.25: [], 10.5: [culprit], 11: [culprit]} | every_evaluation(13.25, 30, [])


def waiting_where_so_many_ranks_are_reported(ranks):
    cluster = waiting_for([6])
    for communicator in cluster.communicators:
        communicator.ranks = ranks
    return cluster, {10.5: [], 11.5: [culprit_alert(1, 2)]}


def a_killed_rank_is_named_after_a_minute_where_another_rank_has_no_plugin():
    return waiting_where_so_many_ranks_are_reported(9)


def a_killed_rank_is_named_after_a_minute_where_nccl_does_not_report_the_number_of_ranks():
    return waiting_where_so_many_ranks_are_reported(0)


def a_killed_rank_that_no_other_waits_for_is_not_named():
    cluster = data_parallel(12)
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: True
    return cluster, NOTHING_EVER


def ranks_that_die_one_after_the_other_are_not_named():
    cluster = waiting_for([])
    cluster.alive = lambda rank, t: t <= 600 + 15 * rank
    return cluster, NOTHING_EVER


def half_of_the_ranks_that_die_are_not_named_at_once():
    return waiting_for([4, 5, 6, 7]), {10.5: [], 11.5: []}


def left_at(minutes, inside, at=600):
    """Ranks have an operation in flight in a communicator that their job has left: after half a minute it goes on in another one."""
    cluster = data_parallel(minutes)
    left = cluster.communicators[0]
    cluster.add('dp2', list(cluster.ranks), alive=lambda t: t > at + 30)
    cluster.hang(left, at, inside, stops_all=False)
    return cluster


def a_communicator_that_was_revoked_is_not_told():
    return left_at(40, range(8)), NOTHING_EVER


def a_communicator_that_was_revoked_before_all_ranks_called_is_not_told():
    return left_at(40, [0, 1, 2, 4]), NOTHING_EVER


def a_communicator_that_was_revoked_is_not_told_where_no_completion_is_seen():
    cluster = left_at(40, [0, 1, 2, 4])
    cluster.source = lambda rank: 'none'
    cluster.busy = lambda t: not 1200 < t <= 1500
    return cluster, every_evaluation(5, 40, [NOT_JUDGED])


def a_job_that_has_left_a_communicator_may_pause_for_five_minutes():
    cluster = left_at(40, range(8))
    cluster.busy = lambda t: not 1200 < t <= 1500
    return cluster, NOTHING_EVER


def a_killed_rank_is_not_named_any_more_when_the_others_go_on_without_it():
    """The ranks that are left shrink the communicator a minute after the death."""
    cluster = data_parallel(20)
    cluster.add('shrunk', [rank for rank in range(8) if rank != 6], alive=lambda t: t > 660)
    cluster.hang(cluster.communicators[0], 600, range(8), stops_all=False)
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    return cluster, {10.5: [culprit_alert(1, 2)]} | every_evaluation(14.25, 20, [])


def a_killed_rank_that_the_others_go_on_without_at_once_is_not_named():
    cluster = data_parallel(20)
    cluster.add('shrunk', [rank for rank in range(8) if rank != 6], alive=lambda t: t > 600)
    cluster.hang(cluster.communicators[0], 600, range(8), stops_all=False)
    cluster.alive = lambda rank, t: rank != 6 or t <= 600
    cluster.served = lambda rank, t: rank != 6 or t <= 900
    return cluster, NOTHING_EVER


def a_hang_of_a_job_that_has_left_a_communicator_is_told_of_the_other_one():
    """Also after ten minutes: a pause as long, with no rank that waits, is a hang of the one that it has left."""
    cluster = left_at(45, range(5))
    cluster.hang(cluster.communicators[1], 1200, [0, 1, 2, 4, 5, 6, 7])
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {21.75: [], 22.5: hang, 30: hang} | every_evaluation(33, 45, hang)


def a_hang_of_a_job_that_has_left_a_communicator_is_told_of_the_other_one_where_no_completion_is_seen():
    cluster, expected = a_hang_of_a_job_that_has_left_a_communicator_is_told_of_the_other_one()
    cluster.source = lambda rank: 'none'
    return cluster, {minute: alerts + [NOT_JUDGED] for minute, alerts in expected.items() if minute < 35}


def a_hang_is_told_though_a_rank_goes_on_in_another_communicator():
    """Rank 3 leaves out a call, and goes on in a communicator of its own."""
    cluster = Cluster(2, 4, 15)
    dp = cluster.add('dp', list(range(8)))
    cluster.add('beside', [3])
    cluster.hang(dp, 600, [0, 1, 2, 4, 5, 6, 7], stops_all=False)
    hang = [alert('NCCLCollectiveHang'), culprit_alert(0, 3)]
    return cluster, {11.75: [], 12.5: hang, 15: hang}
