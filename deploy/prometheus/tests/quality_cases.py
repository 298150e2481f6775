# SPDX-License-Identifier: Apache-2.0
"""Exporters that are down, files that cannot be used, and data that is lost."""
from cluster import Cluster
from jobs import NOTHING_EVER, data_parallel, alert, rank_alert, unusable


def an_exporter_that_is_down_is_told_until_it_is_back_and_its_ranks_are_missing():
    cluster = data_parallel(60)
    cluster.scraped = lambda node, t: node == 0 or not 600 <= t < 3000
    missing = [rank_alert('NCCLRanksMissing', 'dp', rank, 1, rank - 4) for rank in range(4, 8)]
    told = [{'alertname': 'NCCLExporterDown'}] + missing
    return cluster, {10.5: [], 14: told, 40: told, 49: told, 52: []}


def a_target_that_never_was_up_is_told():
    cluster = data_parallel(10)
    cluster.scraped = lambda node, t: node == 0
    return cluster, {10: [{'alertname': 'NCCLExporterDown'}]}


def files_that_cannot_be_used_are_told_by_user_and_reason_until_they_are_gone():
    cluster = Cluster(1, 1, 60)
    reasons = ['too_many_segments', 'directory_unreadable', 'unlink_failed', 'open_failed', 'bad_magic']
    for reason in reasons:
        labels = f'{{uid="1001",reason="{reason}"}}'
        cluster.losses['nccl_exporter_user_segments_unusable' + labels] = lambda t: int(600 <= t < 3000)
        cluster.losses['nccl_exporter_user_segment_errors_total' + labels] = lambda t: int(t >= 600)
    told = [unusable(reason) for reason in reasons]
    return cluster, {14.75: [], 15: told, 45: told, 49: told, 50: []}


def files_that_come_and_go_between_scrapes_are_told():
    cluster = Cluster(1, 1, 60)
    cluster.losses = {
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: 0,
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="bad_magic"}': lambda t: min(max(t - 600, 0), 2400) // 60,
    }
    return cluster, {15: [], 18: [unusable('bad_magic')], 49: [unusable('bad_magic')], 56: []}


def a_rank_that_an_exporter_has_no_room_for_is_not_missing():
    cluster = data_parallel(30)
    cluster.served = lambda rank, t: rank != 6 or t <= 600
    cluster.losses = {'nccl_process_unserved_communicators{pid="1006",nccl_job="42",uid="1000"}': lambda t: int(t > 600)}
    return cluster, NOTHING_EVER


def a_rank_that_is_not_served_is_missing_though_there_is_room():
    cluster = data_parallel(30)
    cluster.served = lambda rank, t: rank != 6 or t <= 600
    cluster.losses = {'nccl_process_unserved_communicators{pid="1006",nccl_job="43",uid="1000"}': lambda t: int(t > 600)}
    return cluster, {29: [rank_alert('NCCLRanksMissing', 'dp', 6, 1, 2)]}


def segments_that_are_followed_with_a_fault_are_not_told():
    cluster = Cluster(1, 1, 30)
    for reason in ['lock_lost', 'foreign_clock']:
        labels = f'{{uid="1001",reason="{reason}"}}'
        cluster.losses['nccl_exporter_user_segments_unusable' + labels] = lambda t: int(t >= 600)
        cluster.losses['nccl_exporter_user_segment_errors_total' + labels] = lambda t: int(t >= 600)
    return cluster, NOTHING_EVER


def untimed(source='none', minutes=60):
    cluster = data_parallel(minutes)
    cluster.source = lambda rank: source
    cluster.reason = 'allgatherv_enabled'
    return cluster


def a_job_without_gpu_times_is_not_judged():
    told = [alert('NCCLJobNotJudged')]
    return untimed(), {1: [], 4: told, 30: told, 60: told}


def a_job_with_times_by_proxies_only_is_not_judged():
    return untimed('proxy', 10), {10: [alert('NCCLJobNotJudged')]}


def a_job_in_which_some_rank_has_gpu_times_is_judged():
    cluster = untimed(minutes=10)
    cluster.source = lambda rank: 'kernel' if rank % 4 else 'none'
    return cluster, NOTHING_EVER


def a_rank_that_is_alone_needs_no_gpu_times():
    cluster = Cluster(1, 1, 10)
    cluster.add('self', [0])
    cluster.source = lambda rank: 'none'
    return cluster, NOTHING_EVER


def times_of_a_rank_that_is_alone_do_not_judge_its_job():
    cluster = untimed(minutes=10)
    cluster.add('self', [0])
    of_all = cluster.info_labels
    cluster.info_labels = lambda communicator, rank: of_all(communicator, rank) | ({'timing_source': 'kernel'} if communicator.name == 'self' else {})
    return cluster, {10: [alert('NCCLJobNotJudged')]}


def losses_are_told_when_they_matter():
    cluster = data_parallel(20, 1)
    cluster.losses = {
        'nccl_process_operations_unfollowed_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 1 * t,
        'nccl_process_operations_rejected_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 5 * t,
        'nccl_exporter_series_dropped_total{reason="folded"}': lambda t: 100 * t,
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: 1,
    }
    return cluster, {20: [alert('NCCLExporterEventsDropped'), alert('NCCLExporterTimestampsRejected'),
                          {'alertname': 'NCCLExporterSeriesDropped', 'reason': 'folded'}, unusable('bad_magic')]}


def a_job_that_is_not_followed_at_all_is_told():
    cluster = Cluster(1, 1, 20)
    cluster.losses = {'nccl_process_operations_unfollowed_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 1 * t}
    return cluster, {20: [alert('NCCLExporterEventsDropped')]}


def few_losses_are_not_told():
    cluster = data_parallel(20, 1)
    cluster.losses = {
        'nccl_process_operations_unfollowed_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 0.3 * t,
        'nccl_process_operations_rejected_total{pid="1000",nccl_job="42",uid="1000"}': lambda t: 3 * t,
        'nccl_exporter_series_dropped_total{reason="folded"}': lambda t: 1000,
        'nccl_exporter_user_segments_unusable{uid="1001",reason="bad_magic"}': lambda t: int(t % 300 < 60),
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="bad_magic"}': lambda t: t // 300,
        'nccl_exporter_user_segment_errors_total{uid="1001",reason="changed_while_read"}': lambda t: t // 15,
    }
    return cluster, NOTHING_EVER
