// SPDX-License-Identifier: Apache-2.0
// Asks for the node every two seconds and shows it. Everything that comes from elsewhere is set as text, never as markup.
import { bytes, count, heatMap, lineChart, percent, seconds, unknown } from './charts.js';

const pollMilliseconds = 2000, timeoutMilliseconds = 5000;
const hangSeconds = 30;  // an operation that takes longer stands out

const byId = (id) => document.getElementById(id);
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const make = (tag, className = '', text = '') => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
};

// Makes the children of `parent` those of `items`, in order, and keeps those that are there: focus, scroll and selection stay.
const sync = (parent, items, key, create, update) => {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    old.delete(name);
    const next = previous ? previous.nextSibling : parent.firstChild;
    if (next !== child) parent.insertBefore(child, next);
    update(child, item);
    previous = child;
  }
  for (const child of old.values()) child.remove();
};

const row = (columns) => () => {
  const element = make('tr');
  for (const className of columns) element.append(make('td', className));
  return element;
};
const fillRow = (element, texts, className = '') => {
  texts.forEach((text, i) => setText(element.children[i], String(text)));
  element.className = className;
};

const nameOf = (comm) => comm.comm_name || comm.comm.slice(0, 8);
const rankName = (comm, rank) => `rank ${rank.rank}${rank.gpu === null ? '' : ` (GPU ${rank.gpu})`} of ${nameOf(comm)}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const operationName = (operation) => operation.collective +
  (operation.sequence === null ? operation.peer === null ? '' : ` with rank ${operation.peer}` : ` #${operation.sequence}`);
const ageOf = (rank, node) => rank.in_flight.length ? Math.max(node.taken - rank.in_flight[0].start, 0) : null;
const isLate = (rank) => rank.arrivals !== null && rank.arrivals.late;

const findingsOf = (node) => {
  const found = [];
  const add = (kind, key, text) => found.push({ kind, key, text });
  for (const comm of node.communicators) {
    const id = comm.comm + comm.slurm_job_id + comm.namespace + comm.uid;
    const stuck = comm.local_ranks.filter((rank) => ageOf(rank, node) > hangSeconds);
    if (stuck.length) {
      const oldest = stuck.reduce((a, b) => ageOf(a, node) >= ageOf(b, node) ? a : b);
      add('bad', id + 'stuck', `${capital(rankName(comm, oldest))} has been in ${operationName(oldest.in_flight[0])} for ${seconds(ageOf(oldest, node))}` +
        (stuck.length > 1 ? `, and ${stuck.length - 1} other ranks here likewise.` : '.'));
      const behind = comm.local_ranks.filter((rank) => rank.behind > 0);
      if (behind.length) add('bad', id + 'behind', `Behind in ${nameOf(comm)}: ${behind.slice(0, 8).map((rank) => `rank ${rank.rank} by ${rank.behind}`).join(', ')}${behind.length > 8 ? ' and more' : ''}.`);
    }
    for (const rank of comm.local_ranks) {
      if (isLate(rank)) {
        add('bad', `${id}late${rank.rank}`, `${capital(rankName(comm, rank))} is late: the last to enter ${percent(rank.arrivals.last / rank.arrivals.compared)} of operations, ` +
          `by ${seconds(rank.arrivals.mean_lateness_seconds)} on average. Its pid is ${rank.pid} on ${rank.host || 'this node'}.`);
      }
      if (!rank.alive) add('warn', `${id}gone${rank.rank}`, `The process of ${rankName(comm, rank)} has gone without finalizing.`);
    }
    if (comm.missing_ranks && comm.missing_ranks.length) {
      add('warn', id + 'missing', `Missing on this node, which has all ranks of ${nameOf(comm)}: rank ${comm.missing_ranks.slice(0, 8).join(', ')}${comm.missing_ranks.length > 8 ? ' and more' : ''}.`);
    }
  }
  if (node.segments.unusable) add('warn', 'unusable', `${node.segments.unusable} files in the segment directories cannot be read.`);
  if (!found.length) add('good', 'nothing', node.communicators.length ? 'Nothing.' : 'No process has made a communicator yet.');
  return found;
};

const collectiveCard = (node) => () => {
  const { steps, first_bin_seconds, bins_per_octave } = node.history;
  const element = make('div', 'collective');
  const facts = make('div');
  const numbers = make('dl');
  for (const name of ['operations', 'message bytes', 'mean time', 'bus bandwidth']) numbers.append(make('dt', '', name), make('dd', '', unknown));
  facts.append(make('h4'), numbers);
  const duration = lineChart('Mean time', steps, seconds);
  const bandwidth = lineChart('Bus bandwidth', steps, (value) => bytes(value) + '/s');
  const heat = heatMap('Times', steps, (bin) => first_bin_seconds * 2 ** (bin / bins_per_octave));
  element.append(facts, duration.element, bandwidth.element, heat.element);
  element.show = (collective, history) => {
    setText(facts.firstChild, collective.collective);
    const { recent } = collective;
    const texts = [count(recent.operations_per_second) + '/s', bytes(recent.bytes_per_second) + '/s', seconds(recent.duration_seconds), bytes(recent.bus_bytes_per_second) + '/s'];
    texts.forEach((text, i) => setText(numbers.children[2 * i + 1], text.startsWith(unknown) ? unknown : text));
    duration.update(collective.history.duration_seconds);
    bandwidth.update(collective.history.bus_bytes_per_second);
    heat.update(collective.history.heat, history.times.length);
  };
  return element;
};

const rankColumns = [['rank', 'number'], ['GPU', 'number'], ['pid', 'number'], ['started', 'number'], ['behind', 'number'], ['in flight', 'number'],
  ['oldest', ''], ['for', 'number'], ['last to enter', 'number'], ['late by', 'number'], ['timing', '']];

const communicatorCard = (comm) => {
  const element = make('article', 'communicator');
  const header = make('header');
  header.append(make('h3'), make('code'), make('small'));
  const collectives = make('div');
  const ranks = make('div', 'wide');
  ranks.tabIndex = 0;
  ranks.setAttribute('role', 'region');
  ranks.setAttribute('aria-label', 'Ranks of ' + nameOf(comm));
  const table = make('table'), head = make('thead'), titles = make('tr'), body = make('tbody');
  for (const [title, className] of rankColumns) {
    const cell = make('th', className, title);
    cell.scope = 'col';
    titles.append(cell);
  }
  head.append(titles);
  table.append(head, body);
  ranks.append(table);
  element.append(header, collectives, ranks);
  return element;
};

const showCommunicator = (node) => (element, comm) => {
  const [header, collectives, ranks] = element.children;
  setText(header.children[0], nameOf(comm));
  setText(header.children[1], comm.comm);
  const parts = [`${comm.local_ranks.length} of ${comm.ranks ?? 'an unknown number of'} ranks here`];
  if (comm.nodes) parts.push(comm.nodes === 1 ? 'one node' : comm.nodes + ' nodes');
  if (comm.slurm_job_id) parts.push('Slurm job ' + comm.slurm_job_id);
  if (comm.namespace) parts.push('namespace ' + comm.namespace);
  setText(header.children[2], parts.join(' · '));
  sync(collectives, comm.collectives, (item) => item.collective, collectiveCard(node), (card, item) => card.show(item, node.history));
  sync(ranks.querySelector('tbody'), comm.local_ranks, (rank) => `${rank.rank} ${rank.pid}`, row(rankColumns.map((column) => column[1])), (line, rank) => {
    const { arrivals } = rank;
    const age = ageOf(rank, node);
    const compared = arrivals && arrivals.compared > 0;
    fillRow(line, [rank.rank, rank.gpu ?? unknown, rank.alive ? rank.pid : `${rank.pid} gone`, rank.started_sequence, rank.behind || unknown,
      rank.in_flight_count ?? '?', rank.in_flight.length ? operationName(rank.in_flight[0]) : rank.in_flight_count === null ? 'not seen' : 'idle',
      age === null ? unknown : seconds(age), compared ? percent(arrivals.last / arrivals.compared) : unknown,
      compared ? seconds(arrivals.mean_lateness_seconds) : unknown, rank.timing_source],
    isLate(rank) || age > hangSeconds ? 'bad' : rank.alive ? '' : 'warn');
  });
};

const lossCount = (losses) => losses.reduce((sum, loss) => sum + loss.count, 0);

const showTiles = (node) => {
  const sum = (value) => node.communicators.reduce((all, comm) => all + comm.collectives.reduce((part, item) => part + (value(item) ?? 0), 0), 0);
  const live = node.processes.filter((process) => process.alive).length;
  setText(byId('tile-processes'), live === node.processes.length ? String(live) : `${live} of ${node.processes.length}`);
  setText(byId('tile-communicators'), String(node.communicators.length));
  setText(byId('tile-operations'), count(sum((item) => item.recent.operations_per_second)) + '/s');
  setText(byId('tile-bytes'), bytes(sum((item) => item.recent.bytes_per_second)) + '/s');
  setText(byId('tile-in-flight'), count(node.communicators.reduce((all, comm) => all + comm.local_ranks.reduce((part, rank) => part + (rank.in_flight_count ?? 0), 0), 0)));
  setText(byId('tile-losses'), count(lossCount(node.losses)));
};

const show = (node) => {
  document.title = `${node.node} – nccl-exporter`;
  setText(byId('node'), node.node || 'nccl-exporter');
  const { times, step_seconds } = node.history;
  setText(byId('span'), times.length ? `last ${seconds(times.length * step_seconds)}` : 'charts begin within seconds');
  showTiles(node);
  sync(byId('findings'), findingsOf(node), (item) => item.key, (item) => make('li', item.kind), (element, item) => {
    setText(element, item.text);
    element.className = item.kind;
  });
  const list = byId('communicator-list');
  if (!list.dataset.shown) list.replaceChildren();
  list.dataset.shown = 'yes';
  sync(list, node.communicators.slice().sort((a, b) => a.comm < b.comm ? -1 : 1), (comm) => [comm.comm, comm.ranks, comm.uid, comm.slurm_job_id, comm.namespace].join('/'),
    communicatorCard, showCommunicator(node));
  const processes = node.processes.slice().sort((a, b) => a.slurm_job_id.localeCompare(b.slurm_job_id) || Number(a.global_rank) - Number(b.global_rank) || a.pid - b.pid);
  sync(byId('processes'), processes, (process) => `${process.pid} ${process.start}`, row(['number', '', '', '', 'number', '', 'number', '', 'number']), (line, process) =>
    fillRow(line, [process.pid, process.alive ? 'alive' : 'gone', process.executable.split('/').pop() || unknown, process.slurm_job_id || process.pod || unknown, process.global_rank || unknown,
      process.host || unknown, process.start === null ? unknown : seconds(node.taken - process.start), process.plugin_version || unknown, lossCount(process.losses)], process.alive ? '' : 'warn'));
  sync(byId('losses'), node.losses.length ? node.losses : [{ count: 0, kind: 'nothing', reason: unknown, meaning: 'every operation was counted and followed' }], (loss) => loss.reason,
    row(['number', '', '', 'meaning']), (line, loss) => fillRow(line, [loss.count, loss.kind.replace('_', ' '), loss.reason, loss.meaning]));
};

const setState = (className, text) => {
  byId('lamp').className = 'lamp ' + className;
  setText(byId('state'), text);
  document.body.classList.toggle('stale', className === 'lost');
};

let lastAnswer = null;
const poll = async () => {
  try {
    const response = await fetch('api/v1/node', { signal: AbortSignal.timeout(timeoutMilliseconds) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    show(await response.json());
    lastAnswer = Date.now();
    setState('live', 'live');
  } catch (error) {
    setState('lost', lastAnswer === null ? 'no answer yet, trying again' : `no answer for ${seconds(Math.round((Date.now() - lastAnswer) / 1000))}, trying again`);
  }
};

// One request at a time, and none while nobody looks.
let timer = null, isAsking = false;
const run = async () => {
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  await poll();
  isAsking = false;
  if (!document.hidden) timer = setTimeout(run, pollMilliseconds);
};
document.addEventListener('visibilitychange', () => { if (!document.hidden) run(); });
run();
