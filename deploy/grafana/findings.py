# SPDX-License-Identifier: Apache-2.0
"""Findings of the daemons on their nodes, in the words of their pages."""
from grafana_model import BAD, WATCH

# The page's word first: an operator who goes from the panel to the page finds it there.
KINDS = {
    'hang_culprit': 'hang: a rank of this node is behind',
    'hang_other_call': 'hang: a rank is in another call',
    'hang_nobody_behind': 'hang: no rank is behind',
    'hang_elsewhere': 'hang: waits for another node',
    'late_rank': 'late',
    'process_killed': 'killed',
    'segments_unusable': 'unusable files',
    'operations_not_followed': 'not followed',
    'not_judged': 'not judged: late ranks cannot be seen',
    'ranks_unmeasured': 'not measured: ranks of the node are not seen',
    'abandoned': 'abandoned',
    'socket_fallback': 'sockets: no adapter for verbs is used',
}
SEVERITIES = ['info', 'warning', 'critical']  # the worst last; the number of one is its place from 1 on

# The colors of the page.
COLORS = [{'color': 'blue', 'value': None}, {'color': WATCH, 'value': 2}, {'color': BAD, 'value': 3}]


def _in_words(words):
    return [{'type': 'value', 'options': {value: {'text': text, 'index': index} for index, (value, text) in enumerate(words.items())}}]


KINDS_IN_WORDS = _in_words(KINDS)
SEVERITIES_IN_WORDS = _in_words({str(number): name for number, name in enumerate(SEVERITIES, 1)})


def worst(selector):
    """The number of the worst severity, by node and kind; nothing where nothing is found."""
    each = ' or '.join(f'0 * (nccl_exporter_findings{{severity="{name}", {selector}}} > 0) + {number}'
                       for number, name in reversed(list(enumerate(SEVERITIES, 1))))
    return f'max by (cluster, instance, kind) ({each})'
