# SPDX-License-Identifier: Apache-2.0
"""The committed dashboards as tests see them: panels, queries, variables, and what Grafana makes of the variables in a text."""
import dataclasses
import json
import re

# Variables of Grafana: the first three are for expressions, the rest for links.
BUILT_IN = {'__rate_interval', '__range', '__interval', '__data', '__url_time_range'}
VARIABLE = re.compile(r'\$(?:\{(\w+)[^}]*\}|([A-Za-z_]\w*))')
LABEL_VALUES = re.compile(r'label_values\((?P<series>.*), (?P<label>\w+)\)')


def read(directory):
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob('*.json'))}


def panels(dashboard):
    return [panel for panel in dashboard['panels'] if panel['type'] != 'row']


def variables(dashboard):
    return dashboard['templating']['list']


def variables_in(text):
    return {match[1] or match[2] for match in VARIABLE.finditer(text)}


def substituted(text, values):
    """As Grafana does: unknown names stay as they are."""
    return VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), text)


@dataclasses.dataclass(frozen=True)
class Query:
    place: str  # dashboard, panel or variable, and which of its queries
    expression: str
    is_instant: bool
    form: str = 'time_series'
    interval_seconds: int = 0  # the least step, if it has one


STOCK_INTERVAL_SECONDS = 15  # of a data source of Prometheus in Grafana


def rate_interval_seconds(query, step_seconds):
    """$__rate_interval where nobody has set the interval of the data source."""
    interval = query.interval_seconds or STOCK_INTERVAL_SECONDS
    return max(max(step_seconds, query.interval_seconds) + interval, 4 * interval)


def seconds(text):
    return int(text[:-1]) * {'s': 1, 'm': 60}[text[-1]] if text else 0


def queries(dashboard):
    """Every expression of a dashboard: of panels, annotations and variables (of these, the series whose labels are asked for)."""
    for panel in panels(dashboard):
        for target in panel['targets']:
            yield Query(f'{dashboard["uid"]} / {panel["title"]} / {target["refId"]}', target['expr'], target['instant'], target['format'],
                        seconds(target.get('interval')))
    for annotation in dashboard['annotations']['list']:
        yield Query(f'{dashboard["uid"]} / annotation {annotation["name"]}', annotation['target']['expr'], False)
    for variable in variables(dashboard):
        if variable['type'] == 'query':
            match = LABEL_VALUES.fullmatch(variable['query']['query'])
            yield Query(f'{dashboard["uid"]} / variable {variable["name"]}', f'group by ({match["label"]}) '
                                                                             f'({with_label(match["series"], match["label"])})', True)


def with_label(series, label):
    """Series that have the label: others have no value to choose."""
    return series.replace('}', f', {label}!=""}}') if '}' in series else f'{series}{{{label}!=""}}'
