# SPDX-License-Identifier: Apache-2.0
"""Columns that several tables have, with the way from each name to its dashboard."""
import job_labels
from grafana_model import Column, link_to
from promql import JOB_VARIABLE_NAMES

TO_JOB = link_to('nccl-job', *JOB_VARIABLE_NAMES)
TO_COMMUNICATOR = link_to('nccl-communicator', *JOB_VARIABLE_NAMES, 'comm')
TO_RANK = link_to('nccl-rank', *JOB_VARIABLE_NAMES, 'hostname', 'gpu_uuid', 'pid')

SITE_COLUMNS = [Column(label, label) for label in job_labels.SITE]
JOB_COLUMNS = [Column('cluster', 'Cluster', link=TO_JOB), Column('namespace', 'Namespace', link=TO_JOB),
               Column('nccl_job', 'Job', link=TO_JOB), Column('uid', 'User', width=80), *SITE_COLUMNS]
HIDDEN_JOB_COLUMNS = [Column(column.field, column.title, is_hidden=True) for column in JOB_COLUMNS]
COMM_COLUMNS = [Column('comm_name', 'Name'), Column('comm', 'Communicator', link=TO_COMMUNICATOR)]
HIDDEN_COMM_COLUMNS = [Column(column.field, column.title, is_hidden=True) for column in COMM_COLUMNS]
NODE_COLUMNS = [Column('hostname', 'Host'), Column('instance', 'Target')]
RANK_COLUMNS = [Column('rank', 'Rank', link=TO_RANK, width=70), *NODE_COLUMNS, Column('gpu', 'GPU', width=60),
                Column('gpu_uuid', 'GPU UUID', link=TO_RANK), Column('pid', 'PID', width=90)]
