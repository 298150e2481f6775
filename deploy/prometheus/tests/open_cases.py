# SPDX-License-Identifier: Apache-2.0
"""Cases that the rules fail yet. They are played only when they are named."""
from jobs import rank_alert, every_evaluation
from step_jobs import accumulated
from steps import Job


def a_slow_rank_is_named_where_gradients_are_accumulated():
    """By 12 %: the first bucket waits 0.24 s, the next ones 20 ms, and their mean is an eighth of what the step loses."""
    return accumulated(11, 0.12), every_evaluation(7, 11, [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)])


def a_late_rank_is_named_where_a_metric_is_gathered_every_10_steps():
    """By 13 % of the step: the rarest operation of the communicator is not one of every step."""
    job = Job(4, 4, 11)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        gpu.compute(0.15 if gpu.rank == 6 else 0)
        for _ in range(6):
            gpu.compute(1 / 6 * gpu.random.gauss(1, 0.01))
            gpu.call(data, 0.01, stream='dp')
        gpu.join('dp')
        gpu.call(data, 0.0002, size=0)
        if number % 10 == 0:
            gpu.call(data, 0.0002, size=0, collective='AllGather')
    return job.play(step), every_evaluation(7, 11, [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)])


def a_slow_rank_is_named_without_a_break_where_a_step_takes_140_seconds():
    """By 9 % of the step. All operations fall into one window of a minute: fewer than 6 of 13 evaluations see them."""
    job = Job(4, 4, 30)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        gpu.compute(140 * (1 + (0.1 if gpu.rank == 6 else 0)) * gpu.random.gauss(1, 0.002))
        for _ in range(4):
            gpu.call(data, 0.3)
    return job.play(step), {minute: [rank_alert('NCCLStragglerRank', 'dp', 6, 1, 2)] for minute in range(20, 31)}


def two_slow_ranks_of_eight_are_named():
    """By 20 %, each in one socket of the node."""
    job = Job(1, 8, 11)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        for _ in range(4):
            gpu.compute(0.25 * (1.2 if gpu.rank in (2, 6) else 1) * gpu.random.gauss(1, 0.01))
            gpu.call(data, 0.01)
    return job.play(step), every_evaluation(7, 11, [rank_alert('NCCLStragglerRank', 'dp', rank, 0, rank) for rank in (2, 6)])
