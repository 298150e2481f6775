# SPDX-License-Identifier: Apache-2.0
"""One rank of a PyTorch job that counts its own calls. Prints {"counts": {"AllReduce operations": n, "AllReduce bytes": n, ...}}, by the
definitions of the metrics. GPU_KIT_BACKEND=gloo runs it without a GPU."""
import json
import os

import torch
import torch.distributed as dist

STEPS = 5
HIDDEN = 1024
counts = {}


def count(function, message_bytes, operations=1):
    for what, value in (('operations', operations), ('bytes', message_bytes * operations)):
        counts[f'{function} {what}'] = counts.get(f'{function} {what}', 0) + value


def size(tensor):
    return tensor.numel() * tensor.element_size()


def all_reduce(tensor):
    dist.all_reduce(tensor)
    count('AllReduce', size(tensor))


def plain(device):
    for elements in (2, 1 << 12, 1 << 20, 1 << 22):
        for dtype in (torch.float32, torch.float16):
            all_reduce(torch.ones(elements, dtype=dtype, device=device))


def data_parallel(device, counts_broadcasts):
    """As DistributedDataParallel: parameters come from rank 0, and gradients are summed by hooks of the backward pass."""
    model = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN)).to(device)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
        if counts_broadcasts:
            count('Broadcast', size(parameter))
        parameter.register_hook(lambda gradient: all_reduce(gradient.contiguous()))
    for _ in range(STEPS):
        model(torch.ones(8, HIDDEN, device=device)).sum().backward()


def sharded(device, ranks):
    """As FullyShardedDataParallel: a layer is gathered before it is used, and its gradients are scattered."""
    shard = torch.ones(HIDDEN * HIDDEN // ranks, dtype=torch.float16, device=device)
    whole = torch.empty(shard.numel() * ranks, dtype=torch.float16, device=device)
    for _ in range(STEPS):
        dist.all_gather_into_tensor(whole, shard)
        count('AllGather', size(whole))
        dist.reduce_scatter_tensor(shard, whole)
        count('ReduceScatter', size(whole))


def experts(device, ranks):
    """As a mixture of experts: tokens go to the ranks of their experts, and come back."""
    tokens = torch.ones(ranks * 64, HIDDEN, dtype=torch.float16, device=device)
    for _ in range(2 * STEPS):
        dist.all_to_all_single(torch.empty_like(tokens), tokens)
        for function in ('Send', 'Recv'):
            count(function, size(tokens) // ranks, ranks)


def main():
    backend = os.environ.get('GPU_KIT_BACKEND', 'nccl')
    device = torch.device('cuda', int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()) if backend == 'nccl' else torch.device('cpu')
    if backend == 'nccl':
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    ranks = dist.get_world_size()
    plain(device)
    # NCCL 2.29 and later announce Broadcasts if NCCL_ALLGATHERV_ENABLE=0.
    data_parallel(device, os.environ.get('NCCL_ALLGATHERV_ENABLE') == '0' or torch.cuda.nccl.version() < (2, 29))
    if backend == 'nccl':
        sharded(device, ranks)
    experts(device, ranks)  # last: up to 2.30 it ends kernel timing
    if backend == 'nccl':
        torch.cuda.synchronize()
    dist.destroy_process_group()
    print(json.dumps({'counts': counts}))


if __name__ == '__main__':
    main()
