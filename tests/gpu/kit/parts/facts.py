# SPDX-License-Identifier: Apache-2.0
"""Facts: the machine and its software, and what the plugin decides here, with the reason."""
import os
import platform
import shutil
import subprocess
import sys

NAME = 'facts'
LIMIT_SECONDS = 25
# Others may name hosts, and users by their folders.
VARIABLES = ('CUDA_DEVICE_MAX_CONNECTIONS', 'NCCL_ALGO', 'NCCL_ALLGATHERV_ENABLE', 'NCCL_GRAPH_REGISTER', 'NCCL_LOCAL_REGISTER', 'NCCL_NET',
             'NCCL_NVLS_ENABLE', 'NCCL_P2P_DISABLE', 'NCCL_PROTO', 'NCCL_SHM_DISABLE')
TORCH_SECONDS = 15
TORCH = 'import torch; print(torch.__version__, ".".join(map(str, torch.cuda.nccl.version())))'


def torch_version(machine):
    """Whether there is a torch, and its version with that of its NCCL, or why there is none."""
    try:
        tried = subprocess.run([sys.executable, '-c', TORCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                               env=machine.environment(), timeout=machine.seconds(TORCH_SECONDS))
    except subprocess.TimeoutExpired:
        return False, f'torch was not imported within {machine.seconds(TORCH_SECONDS)} s'
    return tried.returncode == 0, (tried.stdout if tried.returncode == 0 else tried.stderr).strip().splitlines()[-1]


def release(number):
    return f'{number // 10000}.{number // 100 % 100}.{number % 100}'


def decisions(samples):
    """(timing_source, timing_reason) of the ranks."""
    return sorted({(labels['timing_source'], labels['timing_reason']) for name, labels, _ in samples if name == 'nccl_rank_info'})


def measure(machine, data, save):
    data.update({
        'python': platform.python_version(), 'libc': ' '.join(platform.libc_ver()), 'kernel': platform.release(),
        'architecture': platform.machine(), 'cpus': len(os.sched_getaffinity(0)), 'dev_shm_free_mib': shutil.disk_usage('/dev/shm').free >> 20,
        'variables': {name: os.environ[name] for name in VARIABLES if name in os.environ},
    })
    save()
    found = machine.facts()
    data.update({'nccl': release(found['nccl']), 'driver_cuda': f"{found['driver'] // 1000}.{found['driver'] % 1000 // 10}",
                 'runtime_cuda': f"{found['runtime'] // 1000}.{found['runtime'] % 1000 // 10}",
                 'gpus': found['gpus'], 'libraries': found['libraries']})
    save()
    with machine.folder() as folder, machine.daemon(folder) as daemon:
        options = dict(machine.shape(), faulty_rank=-1, is_killed=False, bytes=1 << 20, operations=20, pause_us=0, directory=folder,
                       limit_seconds=machine.seconds(20))
        machine.run('loop', options, **machine.with_plugin(folder))
        data['decisions'] = decisions(daemon.samples())
    save()
    data['torch'] = torch_version(machine)[1]


def judge(data):
    return []
