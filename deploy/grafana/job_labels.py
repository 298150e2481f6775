# SPDX-License-Identifier: Apache-2.0
"""Labels that distinguish jobs, as in the rules, and the owner. generate-dashboards adds those of the site before it reads a dashboard."""

ALL = ['cluster', 'namespace', 'nccl_job', 'uid']
SITE = []  # those of the site alone
# Labels that joins copy from one rank's series to another's: a join by them as well is none.
OF_RANKS = {'comm_name', 'hostname', 'gpu_uuid', 'pid', 'timing_source', 'timing_reason'}


def add(labels):
    new = [label for label in dict.fromkeys(labels) if label not in ALL]
    SITE.extend(new)
    ALL.extend(new)
