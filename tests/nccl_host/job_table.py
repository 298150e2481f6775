# SPDX-License-Identifier: Apache-2.0
"""The jobs that are played on NCCL's host code, and what each NCCL release is expected to do with them."""
import dataclasses

PROCESSES, THREADS = '-p', ''
FIVE = 'allreduce,allgather,reducescatter,reduce,sendrecv'
ALLGATHERV_OFF = {'NCCL_ALLGATHERV_ENABLE': '0'}
NETWORK = {'NCCL_ALGO': 'Ring', 'NCCL_PROTO': 'Simple', 'NCCL_P2P_LL_THRESHOLD': '0'}  # the only ones that the rig plays
NVLINK = {'NCCL_P2P_DISABLE': '0', 'FAKECUDA_NVLINK': '18'}

# From 2.29 on NCCL gives Broadcasts no kernel events unless NCCL_ALLGATHERV_ENABLE=0. A job that has other ones then hangs when a communicator
# is destroyed (2.30.7), or crashes there (2.31.2).
FIRST_TO_JOIN_BROADCASTS = 22900
# From 2.31 on host and device count messages to oneself, empty parts and replays alike.
FIRST_WITHOUT_HIDDEN_PARTS = 23100


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    options: str
    environment: dict = dataclasses.field(default_factory=dict)
    causes: tuple = ()  # of drift, which the job contains: 'parts', 'roots', 'replays'; see DRIFT
    is_drawn: bool = False  # from a seed: its causes are known by its account only
    is_elastic: bool = False  # communicators come and go while a daemon judges it
    never_timed: bool = False

    def joins_broadcasts(self, version):
        return version >= FIRST_TO_JOIN_BROADCASTS and self.environment.get('NCCL_ALLGATHERV_ENABLE') != '0'

    def may_ask_for_kernel_events(self, version):
        return not self.never_timed and not self.joins_broadcasts(version)

    def drifts(self, version, causes):
        """Whether these causes part NCCL's counters from the device's on this release."""
        hides = version < FIRST_WITHOUT_HIDDEN_PARTS
        return hides and ('parts' in causes or 'replays' in causes) or self.joins_broadcasts(version) and 'roots' in causes


def sizes(operation, causes=()):
    """-b; each operation alone."""
    counts = {4096: 150, 262144: 150, 4194304: 150, 67108864: 60}
    return [Job(f'{operation}-{size}', f'-n 2 -p -i {count} -w 0 -y -o {operation} -b {size}', ALLGATHERV_OFF, causes)
            for size, count in counts.items() if size < 67108864 or not causes]


def hangs(environment, suffix):
    """Causes of drift, and work items without a time stamp on releases that join Broadcasts."""
    table = [
        ('alltoall-broadcast', '-i 40 -o allreduce,broadcast,alltoall', ('parts',)),
        ('mix-60', '-i 60 -o mix', ('parts',)),
        ('mix-140', '-i 140 -o mix', ('parts',)),
        ('roots-5', '-i 5 -o allgatherv,allreduce', ('roots',)),
        ('roots-20', '-i 20 -o allgatherv,allreduce', ('roots',)),
        ('roots-40', '-i 40 -o allgatherv,allreduce', ('roots',)),
        ('roots-60', '-i 60 -o allgatherv,allreduce', ('roots',)),
        ('one-alltoall', '-i 400 -o allreduce,broadcast -O alltoall@0', ('parts',)),
        ('one-alltoall-between', '-i 100 -o broadcast,allgather,reducescatter -O alltoall@1', ('parts',)),
        ('roots-late', '-i 1000 -o allreduce -O allgatherv@990', ('roots',)),
        ('roots-early', '-i 300 -o allreduce,broadcast -O allgatherv@0', ('roots',)),
    ]
    return [Job(f'hang-{name}{suffix}', f'-n 2 -p -w 0 -y {options}', environment, causes) for name, options, causes in table]


def rank_layouts():
    network = {**NETWORK, **ALLGATHERV_OFF}
    nvlink = {**NVLINK, **ALLGATHERV_OFF}
    table = [
        ('p-five', f'-n 2 -p -i 150 -w 0 -y -o {FIVE}', ALLGATHERV_OFF),
        ('p4-five', f'-n 4 -p -i 60 -w 0 -y -o {FIVE}', ALLGATHERV_OFF),
        ('p4-split', '-n 4 -p -s -i 60 -w 0 -y', ALLGATHERV_OFF),
        ('p4-split-five', f'-n 4 -p -s -i 40 -w 0 -y -o {FIVE}', ALLGATHERV_OFF),
        ('t2-allreduce', '-n 2 -i 200 -w 0 -y', ALLGATHERV_OFF),
        ('t2-five', f'-n 2 -i 100 -w 0 -y -o {FIVE}', ALLGATHERV_OFF),
        ('t4-five', f'-n 4 -i 50 -w 0 -y -o {FIVE}', ALLGATHERV_OFF),
        ('t4-split', '-n 4 -s -i 60 -w 0 -y', ALLGATHERV_OFF),
        ('one-thread-2', '-n 2 -m -i 100 -w 0 -y', ALLGATHERV_OFF),
        ('one-thread-3', '-n 3 -m -i 60 -w 0 -y -o allreduce,sendrecv', ALLGATHERV_OFF),
        ('nvlink-five', f'-n 2 -p -i 60 -w 0 -y -o {FIVE}', nvlink),
        ('nvlink-4', '-n 4 -p -i 50 -w 0 -y', nvlink),
        ('nodes-2-five', f'-n 2 -p -N 1 -i 60 -w 0 -y -o {FIVE}', network),
        ('nodes-2-large', '-n 2 -p -N 1 -i 40 -w 0 -y -b 67108864', network),
        ('nodes-2-of-2', '-n 4 -p -N 2 -i 30 -w 0 -y', network),
        ('nodes-2-graph', '-n 2 -p -N 1 -i 40 -w 0 -y -G', network),
    ]
    return [Job(name, options, environment) for name, options, environment in table]


def groups_and_graphs():
    table = [
        ('group-allreduce-4', '-i 150 -y -g 4'),
        ('group-allreduce-4-small', '-i 150 -y -g 4 -b 4096'),
        ('group-allreduce-40', '-i 40 -y -g 40'),
        ('group-agrs-3', '-i 150 -y -g 3 -o allgather,reducescatter'),
        ('group-five-3', f'-i 100 -y -g 3 -o {FIVE}'),
        ('pairs-4', '-i 150 -y -g 4 -o sendrecv'),
        ('pairs-8', '-i 150 -y -g 8 -o sendrecv'),
        ('pairs-odd', '-i 150 -y -o sendrecv -b 1000004'),
        ('graph', '-i 100 -y -G'),
        ('graph-ahead', '-i 200 -G'),
        ('graph-five', f'-i 60 -y -G -o {FIVE}'),
        ('graph-group', '-i 60 -y -G -g 4'),
        ('ahead-allreduce', '-i 1000'),
        ('ahead-five', f'-i 300 -o {FIVE}'),
        ('broadcast-allgather', '-i 120 -y -o broadcast,allgather'),
        ('broadcast-allreduce', '-i 120 -y -o broadcast,allreduce'),
        ('broadcasts-allreduce', '-i 120 -y -o broadcast,broadcast,broadcast,allreduce'),
        ('compute-allreduce-ahead', '-i 300 -c 500'),
        ('compute-five', f'-i 100 -y -c 200 -o {FIVE}'),
        ('compute-five-ahead', f'-i 80 -c 2000 -o {FIVE}'),
        ('compute-pairs-4', '-i 100 -y -c 500 -g 4 -o sendrecv'),
    ]
    return [Job(name, f'-n 2 -p -w 0 {options}', ALLGATHERV_OFF) for name, options in table]


def settings():
    """Settings of the plugin; and jobs on NCCL's own defaults, where later releases join Broadcasts."""
    return [
        Job('timing-off', '-n 2 -p -i 50 -w 0 -y', {'NCCL_EXPORTER_KERNEL_TIMING': 'off', **ALLGATHERV_OFF}, never_timed=True),
        # Proxies alone see these: what waits in their queue takes no time.
        Job('timing-off-nodes', f'-n 2 -p -N 1 -i 60 -w 0 -o {FIVE}', {'NCCL_EXPORTER_KERNEL_TIMING': 'off', **NETWORK, **ALLGATHERV_OFF},
            never_timed=True),
        Job('defaults-broadcast', '-n 2 -p -i 120 -w 0 -y -o broadcast,allreduce'),
        Job('defaults-broadcast-allgather', '-n 2 -p -i 120 -w 0 -y -o broadcast,allgather'),
        Job('defaults-broadcasts', '-n 2 -p -i 120 -w 0 -y -o broadcast,broadcast,broadcast,allreduce'),
        Job('defaults-five', f'-n 2 -p -i 60 -w 0 -y -o {FIVE}'),
    ]


def drawn(seeds):
    """Jobs drawn from seeds: operations, sizes, groups, communicators, graphs; processes, threads with communicators of their own."""
    layouts = ('-n 2 -p', '-n 2 -p -k 2', '-n 2', '-n 3 -p', '-n 2 -p', '-n 2 -k 2', '-n 4 -p')
    # A third on the release's own defaults.
    return [Job(f'drawn-{seed}', f'{layouts[seed % len(layouts)]} -i 60 -R {seed}', {} if seed % 3 == 2 else ALLGATHERV_OFF, is_drawn=True)
            for seed in seeds]


def elastic(seeds):
    """Jobs whose communicators are split, shrunk, grown, suspended, revoked, aborted and made again, drawn from seeds."""
    layouts = ('-n 3 -p', '-n 2 -p', '-n 3', '-n 4 -p', '-n 2')
    # NCCL crashes where communicators share a proxy while kernel events are on. The plugin refuses them if the environment asks for that; it
    # cannot see what a program asks for (docs/kernel-timing.md#shared-resources).
    shared_by_environment = {**ALLGATHERV_OFF, 'NCCL_COMM_SPLIT_SHARE_RESOURCES': '1', 'NCCL_COMM_SHRINK_SHARE_RESOURCES': '1'}
    shared_by_program = {**ALLGATHERV_OFF, 'NCCL_EXPORTER_KERNEL_TIMING': 'off'}
    table = []
    for seed in seeds:
        options = f'{layouts[seed % len(layouts)]} -i 12 -E {seed}'
        if seed % 20 == 9:
            options += ' -A 700'  # so long that what was left would be a hang to a judge that is wrong
        if seed % 6 == 4:
            table.append(Job(f'elastic-{seed}', options + ' -S', shared_by_environment, is_drawn=True, is_elastic=True, never_timed=True))
        elif seed % 6 == 5:
            table.append(Job(f'elastic-{seed}', options + ' -S', shared_by_program, is_drawn=True, is_elastic=True, never_timed=True))
        else:
            # NCCL 2.30 gives the memory of a suspended communicator back only where it has it from cuMem.
            memory = {**NVLINK, 'NCCL_CUMEM_ENABLE': '1'} if seed % 6 == 1 else {}
            table.append(Job(f'elastic-{seed}', options, {**ALLGATHERV_OFF, **memory}, is_drawn=True, is_elastic=True))
    return table


def all_jobs(seeds):
    plain = [job for operation in ('allreduce', 'allgather', 'reducescatter', 'reduce', 'broadcast', 'sendrecv') for job in sizes(operation)]
    return [*hangs({}, ''), *hangs(ALLGATHERV_OFF, '-allgatherv-off'), *settings(), *plain, *sizes('alltoall', ('parts',)),
            *sizes('allgatherv', ('roots',)), *groups_and_graphs(), *rank_layouts(), *drawn(seeds), *elastic(seeds)]
