# SPDX-License-Identifier: Apache-2.0
"""Jobs that are played step by step."""
import random

from steps import Job


def pairs(nodes, ranks_per_node, minutes=11, buckets=6):
    """Tensor parallel pairs; buckets of gradients, all of one size, are reduced beside the backward pass. Rank 2 begins late by 0.1 s."""
    job = Job(nodes, ranks_per_node, minutes)
    tensor = [job.add(f'tp{i}', [2 * i, 2 * i + 1]) for i in range(len(job.ranks) // 2)]
    data = [job.add(f'dp{i}', list(job.ranks)[i::2]) for i in range(2)]

    def step(gpu, number):
        gpu.compute(0.1 if gpu.rank == 2 else 0)
        for part in range(3 * buckets):
            gpu.compute(1 / 3 / buckets * gpu.random.gauss(1, 0.01))
            gpu.call(tensor[gpu.rank // 2], 0.002)
            if part >= 2 * buckets:
                gpu.call(data[gpu.rank % 2], 0.01, stream='dp')
        gpu.join('dp')
    return job.play(step)


def experts(minutes, late):
    """All share their parameters, groups of 8 their experts, whose load moves around. `late` begins late by a quarter of a second."""
    job = Job(4, 4, minutes)
    shards = job.add('fsdp', list(job.ranks))
    groups = [job.add(f'ep{i}', list(range(8 * i, 8 * i + 8)), collective='AlltoAll') for i in range(2)]

    def load(rank, now):
        return random.Random(f'{rank} {now // 45}').random()

    def step(gpu, number):
        gpu.compute(0.25 if gpu.rank == late else 0)
        gpu.call(shards, 0.005, size=0, collective='AllGather')
        for _ in range(6):
            gpu.call(shards, 0.005, stream='fsdp', collective='AllGather')
            gpu.join('fsdp')
            gpu.compute(0.05 * gpu.random.gauss(1, 0.01))
            gpu.call(groups[gpu.rank // 8], 0.003)
            gpu.compute(0.1 + 0.06 * load(gpu.rank, gpu.now))
            gpu.call(groups[gpu.rank // 8], 0.003)
        gpu.call(shards, 0.0005, collective='ReduceScatter')
    return job.play(step)


def gathered(minutes, late, every):
    """Data parallel with a late rank 6; every so many steps rank 0 receives something from each other one."""
    job = Job(4, 4, minutes)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        gpu.compute(late if gpu.rank == 6 else 0)
        for _ in range(6):
            gpu.compute(1 / 6 * gpu.random.gauss(1, 0.01))
            gpu.call(data, 0.01, stream='dp')
        gpu.join('dp')
        gpu.call(data, 0.0002, size=0)
        for other in [] if number % every else job.ranks[1:]:
            if gpu.rank == other:
                gpu.send(data, 0, 0.0001)
            elif gpu.rank == 0:
                gpu.recv(data, other, 0.0001, stream=f'recv{other}')
    return job.play(step)


def unequal_nodes(minutes, slow):
    """The GPUs of the last two of 8 nodes are faster by 15 %; that of rank 3 is slower."""
    job = Job(8, 2, minutes)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        for _ in range(4):
            gpu.compute(0.25 * (1 + (slow if gpu.rank == 3 else 0) - (0.15 if gpu.rank >= 12 else 0)) * gpu.random.gauss(1, 0.01))
            gpu.call(data, 0.01)
    return job.play(step)


def accumulated(minutes, slow):
    """Gradients of 8 microbatches: 8 buckets of one size are reduced beside the last backward pass, and one small operation follows."""
    job = Job(4, 4, minutes)
    data = job.add('dp', list(job.ranks))

    def step(gpu, number):
        factor = 1 + (slow if gpu.rank == 6 else 0)
        for _ in range(7):
            gpu.compute(0.25 * factor * gpu.random.gauss(1, 0.01))
        gpu.compute(0.08 * factor)
        for _ in range(8):
            gpu.compute(0.02 * factor)
            gpu.call(data, 0.004, stream='dp')
        gpu.call(data, 0.001, stream='dp', size=0)
        gpu.join('dp')
    return job.play(step)
