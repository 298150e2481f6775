# SPDX-License-Identifier: Apache-2.0
"""Common parts of the dashboards' expressions: label sets, selectors by variable, histograms in either form."""
import job_labels
from grafana_model import query_variable

JOB_LABELS = ', '.join(job_labels.ALL)  # those that a series lacks count as empty
COMM_LABELS = f'{JOB_LABELS}, comm, comm_name'
NODE_LABELS = 'hostname, instance'  # a node is known by both: in a pod the host's name is the pod's, beside a job the target is
RANK_LABELS = f'{COMM_LABELS}, rank, {NODE_LABELS}, gpu, gpu_uuid, pid'
ON_PROCESS = f'on ({JOB_LABELS}, pod, container, instance, pid)'  # the processes of several pods on a node may all be pid 1
ON_RANK = f'on ({JOB_LABELS}, comm, rank, instance)'

JOB = 'cluster=~"$cluster", namespace=~"$namespace", nccl_job=~"$nccl_job", uid=~"$uid"'
COMM = f'{JOB}, comm=~"$comm"'
PROCESS = f'{JOB}, hostname=~"$hostname", gpu_uuid=~"$gpu_uuid", pid=~"$pid"'
RATE = '$__rate_interval'

JOB_VARIABLES = [
    query_variable('cluster', 'Cluster', 'label_values(nccl_rank_info, cluster)'),
    query_variable('namespace', 'Namespace', 'label_values(nccl_rank_info{cluster=~"$cluster"}, namespace)'),
    query_variable('nccl_job', 'Job', 'label_values(nccl_rank_info{cluster=~"$cluster", namespace=~"$namespace"}, nccl_job)'),
    query_variable('uid', 'User', 'label_values(nccl_rank_info{cluster=~"$cluster", namespace=~"$namespace", nccl_job=~"$nccl_job"}, uid)'),
]
JOB_VARIABLE_NAMES = [variable['name'] for variable in JOB_VARIABLES]

FIRING = 'alertstate="firing"'


def alerts(selector, names='NCCL.+'):
    return f'ALERTS{{alertname=~"{names}", {FIRING}, {selector}}}'


def or_zero(expression):
    return f'{expression} or vector(0)'


def rate(name, selector):
    return f'rate({name}{{{selector}}}[{RATE}])'


def quantile_of(quantile, histogram, selector, by=''):
    """Quantile of the native histogram where there is one, else of the classic one."""
    native = f'sum by ({by}) ({rate(histogram, selector)})' if by else f'sum({rate(histogram, selector)})'
    classic = f'sum by ({", ".join(filter(None, [by, "le"]))}) ({rate(histogram + "_bucket", selector)})'
    return f'histogram_quantile({quantile}, {native}) or histogram_quantile({quantile}, {classic})'


def distribution_of(histogram, selector, also=''):
    """For a heat map: the native histogram where there is one, else the buckets of the classic one."""
    native = f'sum({rate(histogram, selector)}{also})'
    classic = f'sum by (le) ({rate(histogram + "_bucket", selector)}{also})'
    return f'{native} or ({classic} unless on () {native})'


def named(expression, info=COMM):
    """With the names that only nccl_rank_info has."""
    return f'({expression}) * {ON_RANK} group_left (hostname, gpu_uuid, pid) comm_rank:nccl_rank:info{{{info}}}'


def of_process(expression):
    """Only the communicators of the process that the variables name."""
    return f'{expression} and {ON_RANK} comm_rank:nccl_rank:info{{{PROCESS}}}'


def age(timestamps):
    """Seconds since the moments that are the values. At the scrape, which may be a minute ago: until then nothing is known of what came after."""
    return f'(timestamp({timestamps}) - {timestamps})'


def age_in_flight(selector):
    return age(f'nccl_operations_oldest_in_flight_start_timestamp_seconds{{{selector}}}')


def age_of_progress(selector):
    return age(f'nccl_operations_last_progress_timestamp_seconds{{{selector}}}')


def silent(selector=''):
    """Targets that do not answer and did within the last hour. Alerts and detail are two scrapes of one target."""
    return f'count(max without (part) (up{selector}) == 0 and on (job, instance) max_over_time(nccl_exporter_build_info[1h]))'


def busy(selector):
    """Share of the time that each rank spends in kernels of each communicator."""
    return f'({rate("nccl_rank_kernel_seconds_total", selector)} > 0)'


def below_median(of_ranks, selector):
    """Share of the time that the median rank of the communicator spends in kernels, less that of each rank: the others lose it by them."""
    return f'comm:nccl_busy_seconds:median_rate{{{selector}}} - on ({JOB_LABELS}, comm) group_right () {of_ranks}'


def wait_deficit(selector):
    return named(below_median(busy(selector), selector), selector)


def waiting(selector):
    """Share of the time that each rank spends in kernels beyond the rank that waits least."""
    return named(f'{busy(selector)} - on ({JOB_LABELS}, comm) group_left () min by ({JOB_LABELS}, comm) {busy(selector)}', selector)


def lost_now(selector):
    """GPUs that jobs lose to waiting."""
    return f'sum(job:nccl_waiting_gpu_seconds:rate{{{selector}}})'


def lost_hours(selector, period):
    """GPU hours that jobs lose to waiting over a period, by job."""
    return f'sum by ({JOB_LABELS}) (sum_over_time(job:nccl_waiting_gpu_seconds:rate{{{selector}}}[{period}:1m])) / 60'


def moving_data(selector):
    """Time in kernels of the rank that waits least, by communicator."""
    return f'min by ({COMM_LABELS}) {busy(selector)}'


def waiting_for_ranks(selector):
    """Share of the time that the median rank spends in kernels beyond the rank that waits least, by communicator."""
    return f'quantile by ({COMM_LABELS}) (0.5, {busy(selector)}) - {moving_data(selector)}'


def network_waits(selector, direction, by='', state=None):
    """Share of the time of timed network operations, by what they wait for; of one state, or of each."""
    own = f'{selector}, direction="{direction}"'
    labels = f'{by}, state' if by else 'state'
    if state:
        of_state = f'{own}, state="{state}"'
        return (f'sum by ({by}) ({rate("nccl_network_wait_seconds_total", of_state)}) '
                f'/ (sum by ({by}) ({rate("nccl_network_wait_seconds_total", own)}) > 0)')
    return (f'sum by ({labels}) ({rate("nccl_network_wait_seconds_total", own)}) '
            f'/ ignoring (state) group_left () (sum by ({by}) ({rate("nccl_network_wait_seconds_total", own)}) > 0)')


def gpu_hours(selector, *by):
    """GPU hours of all jobs, by these of their labels and names."""
    return f'sum by ({", ".join(by)}) (sum_over_time(job:nccl_job:info{{{selector}}}[$__range:1m])) / 60'


def lost_gpu_hours(selector, *by):
    """Those that were lost by waiting and by slow transfers; of their labels `cause` is one."""
    others = ', '.join(label for label in by if label not in [*job_labels.ALL, 'cause'])  # a join copies no label that it matches
    names = f' * on ({JOB_LABELS}) group_left ({others}) (0 * job:nccl_job:info{{{selector}}} + 1)'
    lost = f'job:nccl_lost_gpu_seconds:rate{{{selector}}}'
    return f'sum by ({", ".join(by)}) (sum_over_time(({lost}{names if others else ""})[$__range:1m])) / 60'
