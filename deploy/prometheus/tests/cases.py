# SPDX-License-Identifier: Apache-2.0
"""What the alerts must say, and when they must say nothing. Each case makes a cluster and tells what fires at which minute."""
import hang_cases
import open_cases
import quality_cases
import silent_cases
import step_cases
import straggler_cases
from jobs import NOTHING_EVER, data_parallel


def of(*modules):
    return [case for module in modules for case in vars(module).values() if getattr(case, '__module__', '') == module.__name__ and callable(case)]


CASES = of(straggler_cases, silent_cases, step_cases, hang_cases, quality_cases)
OPEN = of(open_cases)


def a_described_alert():
    """A straggler with its labels and annotations."""
    cluster = data_parallel(15)
    cluster.late = lambda rank, t: 0.25 if rank == 6 else 0
    comm = cluster.communicators[0].id
    return cluster, {
        'alertname': 'NCCLStragglerRank', 'comm': comm, 'comm_name': 'dp', 'rank': '6', 'gpu': '2', 'gpu_uuid': 'GPU-6', 'hostname': 'gpu-node-1',
        'pid': '1006', 'global_rank': '6', 'timing_source': 'kernel', 'slurm_job_id': '42', 'uid': '1000', 'job': 'nccl', 'instance': 'node1:9828',
    }, {
        'summary': f'Rank 6 of communicator {comm} makes the others wait',
        'description': f'The ranks of communicator {comm} dp spend 25% of the time waiting for rank 6. GPU 2 GPU-6, node gpu-node-1 (node1:9828), process 1006,'
                       ' global rank 6.',
        'runbook_url': 'https://github.com/nccl-exporter/nccl-exporter/blob/main/docs/runbooks/NCCLStragglerRank.md',
    }
