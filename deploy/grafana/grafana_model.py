# SPDX-License-Identifier: Apache-2.0
"""Grafana's dashboard model, as far as these dashboards need it: panels, rows, variables, links, and where they stand."""
import dataclasses
import itertools

SCHEMA_VERSION = 39  # Grafana 10.3, the first that draws native histograms well; later ones read it
GRID_WIDTH = 24
TAG = 'nccl-exporter'
DATASOURCE = {'type': 'prometheus', 'uid': '${datasource}'}
# Time between two scrapes of the detail, as the chart and the examples have it. Grafana makes $__rate_interval four times as long as the larger of this and the
# data source's own interval: a rate needs two samples.
DETAIL_INTERVAL = '1m'
OK, WATCH, BAD = 'green', 'orange', 'red'


def steps(watch=None, bad=None):
    """Thresholds: good below `watch`, bad from `bad` on."""
    known = [{'color': OK, 'value': None}]
    return known + [{'color': color, 'value': value} for color, value in ((WATCH, watch), (BAD, bad)) if value is not None]


def link_to(uid, *labels, fixed=()):
    """The address of a dashboard, with these variables from the row's labels, the `fixed` ones as they are, and the time range."""
    kept = ['${datasource:queryparam}', *(f'${{{name}:queryparam}}' for name in fixed)]
    return f'/d/{uid}?' + '&'.join(kept + [f'var-{label}=${{__data.fields.{label}}}' for label in labels] + ['${__url_time_range}'])


@dataclasses.dataclass
class Panel:
    kind: str
    title: str
    says: str  # the description: content, definition and normal values
    queries: list  # of (expression, legend)
    width: int = 12
    height: int = 8
    form: str = 'time_series'
    is_instant: bool = False
    field: dict = dataclasses.field(default_factory=dict)
    overrides: list = dataclasses.field(default_factory=list)
    options: dict = dataclasses.field(default_factory=dict)
    transformations: list = dataclasses.field(default_factory=list)

    def json(self, number, x, y):
        targets = [{'refId': chr(ord('A') + index), 'datasource': DATASOURCE, 'editorMode': 'code', 'expr': expression,
                    'format': self.form, 'instant': self.is_instant, 'range': not self.is_instant, 'legendFormat': legend}
                   | ({'interval': DETAIL_INTERVAL} if '$__rate_interval' in expression else {})
                   for index, (expression, legend) in enumerate(self.queries)]
        return {'id': number, 'type': self.kind, 'title': self.title, 'description': self.says, 'datasource': DATASOURCE,
                'gridPos': {'x': x, 'y': y, 'w': self.width, 'h': self.height}, 'targets': targets,
                'fieldConfig': {'defaults': self.field, 'overrides': self.overrides}, 'options': self.options,
                'transformations': self.transformations}


def stat(title, says, expression, unit='short', thresholds=None, nothing=None, width=4):
    field = {'unit': unit, 'color': {'mode': 'thresholds'}, 'thresholds': {'mode': 'absolute', 'steps': thresholds or steps()}}
    if unit == 'short':
        field['decimals'] = 0
    if nothing:
        field['noValue'] = nothing
    return Panel('stat', title, says, [(expression, '')], width, 4, is_instant=True, field=field, options={
        'reduceOptions': {'calcs': ['lastNotNull'], 'fields': '', 'values': False}, 'colorMode': 'value', 'graphMode': 'none',
        'justifyMode': 'auto', 'orientation': 'auto', 'textMode': 'value', 'wideLayout': True, 'showPercentChange': False,
        'percentChangeColorMode': 'standard'})


def in_one_line(*stats):
    return [dataclasses.replace(panel, width=GRID_WIDTH // len(stats)) for panel in stats]


def graph(title, says, queries, unit, width=12, height=8, is_stacked=False, most=None, thresholds=None, nothing=None, is_compared=False):
    """Lines over time. `is_compared`: values may be negative, and the zero line is part of the message."""
    custom = {'drawStyle': 'line', 'lineWidth': 1, 'fillOpacity': 30 if is_stacked else 5, 'showPoints': 'never', 'spanNulls': False,
              'stacking': {'mode': 'normal' if is_stacked else 'none', 'group': 'A'}, 'axisSoftMin': 0}
    field = {'unit': unit, 'color': {'mode': 'palette-classic'}, 'custom': custom}
    if not is_compared:
        field['min'] = 0
    if most is not None:
        field['max'] = most
    if nothing:
        field['noValue'] = nothing
    if thresholds:
        field['thresholds'] = {'mode': 'absolute', 'steps': thresholds}
        custom['thresholdsStyle'] = {'mode': 'dashed'}
    return Panel('timeseries', title, says, queries, width, height, field=field, options={
        'legend': {'displayMode': 'table', 'placement': 'bottom', 'showLegend': True, 'calcs': ['lastNotNull', 'max'],
                   'sortBy': 'Last *', 'sortDesc': True},
        'tooltip': {'mode': 'multi', 'sort': 'desc'}})


def timeline(title, says, queries, unit, thresholds, width=24, height=10, nothing=None, words=None):
    """A bar for each series over time, coloured by its thresholds: who, and when."""
    field = {'unit': unit, 'color': {'mode': 'thresholds'}, 'thresholds': {'mode': 'absolute', 'steps': thresholds},
             'custom': {'lineWidth': 0, 'fillOpacity': 80, 'spanNulls': False}}
    if words:
        field['mappings'] = words
    if nothing:
        field['noValue'] = nothing
    return Panel('state-timeline', title, says, queries, width, height, field=field, options={
        'mergeValues': False, 'showValue': 'never', 'alignValue': 'left', 'rowHeight': 0.9,
        'legend': {'displayMode': 'list', 'placement': 'bottom', 'showLegend': True}, 'tooltip': {'mode': 'single', 'sort': 'none'}})


def heat_map(title, says, expression, unit, width=12, height=9):
    """A heat map of a histogram, classic or native: Grafana detects which by the answer."""
    return Panel('heatmap', title, says, [(expression, '{{le}}')], width, height, form='heatmap', field={
        'custom': {'scaleDistribution': {'type': 'linear'}, 'hideFrom': {'legend': False, 'tooltip': False, 'viz': False}}}, options={
        'calculate': False, 'cellGap': 0, 'cellValues': {'unit': 'ops'}, 'filterValues': {'le': 1e-9}, 'legend': {'show': True},
        'color': {'mode': 'scheme', 'scheme': 'Spectral', 'reverse': True, 'scale': 'exponential', 'exponent': 0.5, 'steps': 64,
                  'fill': 'dark-orange'},
        'exemplars': {'color': 'rgba(255,0,255,0.7)'}, 'rowsFrame': {'layout': 'auto'}, 'showValue': 'never', 'tooltip': {'mode': 'single',
            'yHistogram': True},
        'yAxis': {'unit': unit, 'axisPlacement': 'left', 'reverse': False}})


@dataclasses.dataclass
class Column:
    """`field` is a label, or the letter of the query whose value it is."""
    field: str
    title: str
    unit: str = ''
    thresholds: list = None
    link: str = ''
    width: int = 0
    is_hidden: bool = False  # there for links only
    words: list = None  # Grafana's value mappings

    def is_value(self):
        return len(self.field) == 1 and self.field.isupper()

    def override(self):
        properties = [{'id': 'unit', 'value': self.unit}] if self.unit else []
        if self.thresholds:
            properties += [{'id': 'thresholds', 'value': {'mode': 'absolute', 'steps': self.thresholds}},
                           {'id': 'custom.cellOptions', 'value': {'type': 'color-text'}}]
        if self.words:
            properties.append({'id': 'mappings', 'value': self.words})
        if self.link:
            properties.append({'id': 'links', 'value': [{'title': 'Open ' + self.link.partition('?')[0].removeprefix('/d/nccl-'),
                                                         'url': self.link}]})
        if self.is_hidden:
            properties.append({'id': 'custom.hidden', 'value': True})
        if self.width:
            properties.append({'id': 'custom.width', 'value': self.width})
        return {'matcher': {'id': 'byName', 'options': self.title}, 'properties': properties}


def table(title, says, queries, columns, sort=None, is_ascending=False, width=24, height=9, nothing=None):
    """One row for each set of labels that the queries have in common; the state at the end of the time range."""
    def field_name(column):
        return column.field if not column.is_value() else 'Value' if len(queries) == 1 else f'Value #{column.field}'
    field = {'custom': {'align': 'auto', 'cellOptions': {'type': 'auto'}, 'filterable': True, 'inspect': False}, 'color': {'mode': 'thresholds'},
             'thresholds': {'mode': 'absolute', 'steps': steps()}}
    if nothing:
        field['noValue'] = nothing
    hidden = {'Time': True} | ({} if any(column.is_value() for column in columns) else {'Value': True})
    organize = {'excludeByName': hidden, 'indexByName': {field_name(column): place for place, column in enumerate(columns)},
                'renameByName': {field_name(column): column.title for column in columns}}
    merge = [{'id': 'merge', 'options': {}}] if len(queries) > 1 else []
    return Panel('table', title, says, [(query, '') for query in queries], width, height, form='table', is_instant=True, field=field,
                 overrides=[o for o in (column.override() for column in columns) if o['properties']],
                 options={'frameIndex': 0, 'showHeader': True, 'cellHeight': 'sm',
                          'sortBy': [{'displayName': sort, 'desc': not is_ascending}] if sort else []},
                 transformations=merge + [{'id': 'organize', 'options': organize}])


@dataclasses.dataclass
class Row:
    title: str  # the question that its panels answer
    panels: list


def laid_out(rows):
    """Panels from left to right, a new line where the next one finds no room."""
    numbers = itertools.count(1)
    y = 0
    for row in rows:
        yield {'id': next(numbers), 'type': 'row', 'title': row.title, 'collapsed': False, 'panels': [],
               'gridPos': {'x': 0, 'y': y, 'w': GRID_WIDTH, 'h': 1}}
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                x, y, height = 0, y + height, 0
            yield panel.json(next(numbers), x, y)
            x, height = x + panel.width, max(height, panel.height)
        y += height


def datasource_variable():
    return {'type': 'datasource', 'name': 'datasource', 'label': 'Data source', 'query': 'prometheus', 'options': [],
            'refresh': 1, 'regex': '', 'hide': 0, 'includeAll': False, 'multi': False, 'skipUrlSync': False}


def query_variable(name, label, query, is_one=False):
    """Label values of an info metric. All is every value and none, so that clusters without the label are seen."""
    several = {'includeAll': False, 'multi': False} if is_one else {
        'includeAll': True, 'multi': True, 'allValue': '.*', 'current': {'selected': True, 'text': ['All'], 'value': ['$__all']}}
    return {'type': 'query', 'name': name, 'label': label, 'datasource': DATASOURCE, 'definition': query,
            'query': {'qryType': 1, 'query': query, 'refId': f'variable-{name}'}, 'refresh': 2, 'sort': 3, 'regex': '', 'hide': 0,
            'options': [], 'skipUrlSync': False, **several}


def custom_variable(name, label, values):
    options = [{'selected': True, 'text': 'All', 'value': '$__all'}] + [{'selected': False, 'text': value, 'value': value} for value in values]
    return {'type': 'custom', 'name': name, 'label': label, 'query': ','.join(values), 'current': {'selected': True, 'text': ['All'],
        'value': ['$__all']},
            'options': options, 'hide': 0, 'includeAll': True, 'multi': True, 'allValue': '.*', 'skipUrlSync': False}


def alert_annotation(expression):
    return {'name': 'Alerts', 'datasource': DATASOURCE, 'enable': True, 'hide': False, 'iconColor': 'red', 'expr': expression, 'step': '30s',
            'target': {'refId': 'Anno', 'expr': expression, 'interval': '30s', 'range': True, 'instant': False},
            'titleFormat': '{{alertname}}', 'textFormat': '{{severity}}', 'tagKeys': 'nccl_job,namespace,comm_name,rank,hostname,instance',
            'useValueForTime': False}


def menu_links():
    """Links between these dashboards, and to those with the tag dcgm."""
    return [{'type': 'dashboards', 'title': title, 'tags': [tag], 'asDropdown': True, 'includeVars': has_variables, 'keepTime': True,
             'targetBlank': False, 'icon': 'external link', 'tooltip': tooltip, 'url': ''}
            for title, tag, has_variables, tooltip in (('NCCL', TAG, True, 'the other dashboards of nccl-exporter'),
                                                       ('DCGM', 'dcgm', False, 'dashboards with the tag dcgm'))]


def dashboard(uid, title, says, variables, annotation, rows):
    return {'uid': uid, 'title': f'NCCL / {title}', 'description': says, 'tags': [TAG], 'schemaVersion': SCHEMA_VERSION, 'version': 1,
            'editable': True, 'graphTooltip': 1, 'refresh': '30s', 'time': {'from': 'now-1h', 'to': 'now'}, 'timezone': 'browser',
            'templating': {'list': [datasource_variable(), *variables]}, 'annotations': {'list': [alert_annotation(annotation)]},
            'links': menu_links(), 'panels': list(laid_out(rows))}
