// SPDX-License-Identifier: Apache-2.0
// Communicators by job: one folded row each, filtered and sorted as the reader has chosen.
import { byId, make, setText, sync } from './dom.js';
import { count, counted, perSecond, seconds } from './format.js';
import { communicatorDetails } from './details.js';
import { createJob, jobKey, kindOf } from './jobs.js';
import { later } from './later.js';
import { changeView, onView, setOpen, view } from './view.js';
import { ageOf, communicatorKey, communicatorName, culpritNames, isAbout, kindWord, operationName, severityClass, sizeText, standingWord } from './words.js';

// Ages below that come and go with each step of a job: rows would change places all the time.
const leastAgeSeconds = 10;

const oldestOf = (comm, node) => {
  let oldest = null;
  for (const rank of comm.local_ranks) {
    const age = ageOf(rank, node);
    if (age !== null && age >= leastAgeSeconds && (!oldest || age > oldest.age)) oldest = { age, operation: rank.in_flight[0] };
  }
  return oldest;
};
const rateOf = (comm) => {
  const used = comm.collectives.filter((collective) => collective.recent.operations_per_second > 0);
  return used.reduce((sum, collective) => sum + collective.recent.operations_per_second / Math.max(collective.used_by, 1), 0);
};

// Words of the filter: all must fit. "gpu 3", "rank 5", "pid 77", "job 4712" and "user 1000" look at one thing; a number alone looks at all of them.
const fieldsOf = (comm) => ({
  gpu: comm.local_ranks.map((rank) => rank.gpu), rank: comm.local_ranks.map((rank) => rank.rank),
  pid: comm.local_ranks.map((rank) => rank.pid), job: [comm.nccl_job], user: [comm.uid],
});
const fits = (comm, filter) => {
  const fields = fieldsOf(comm);
  const text = [comm.comm_name, comm.comm, comm.nccl_job, comm.namespace, kindOf(comm), ...comm.collectives.map((collective) => collective.collective)].join(' ').toLowerCase();
  let rest = filter.toLowerCase();
  for (const [all, name, value] of filter.toLowerCase().matchAll(/\b(gpu|rank|pid|job|user)[\s:=]*(\d+)/g)) {
    if (!fields[name].some((one) => String(one) === value)) return false;
    rest = rest.replace(all, ' ');
  }
  return rest.split(/\s+/).filter(Boolean).every((word) =>
    /^\d+$/.test(word) ? Object.values(fields).flat().some((one) => String(one) === word) || text.includes(word) : text.includes(word));
};

// By trouble: with a finding first, in the order of findings, then the oldest in flight, then by name.
const names = new Intl.Collator('en', { numeric: true });
const compareNames = (a, b) => names.compare(a.label, b.label) || (a.key < b.key ? -1 : 1);
const byAge = (a, b) => (b.oldest?.age ?? 0) - (a.oldest?.age ?? 0);
const orders = {
  trouble: (a, b) => a.trouble - b.trouble || byAge(a, b) || compareNames(a, b),
  name: compareNames,
  age: (a, b) => byAge(a, b) || compareNames(a, b),
  rate: (a, b) => b.rate - a.rate || compareNames(a, b),
};

const itemsOf = (node) => {
  const items = node.communicators.map((comm) => {
    const at = node.findings.findIndex((finding) => isAbout(finding, comm));
    return { comm, key: communicatorKey(comm), label: communicatorName(comm), trouble: at < 0 ? node.findings.length : at,
      finding: node.findings[at], oldest: oldestOf(comm, node), rate: rateOf(comm) };
  });
  // Members are enough to tell most apart; only where they are the same, the hash helps.
  const same = new Map();
  for (const item of items) same.set(item.label + jobKey(item.comm), (same.get(item.label + jobKey(item.comm)) ?? 0) + 1);
  for (const item of items) if (same.get(item.label + jobKey(item.comm)) > 1) item.label += ` (${item.comm.comm.slice(0, 8)})`;
  return items;
};

// The view says what is open; a details element that opened by itself could be folded by an answer that comes in between.
const openByView = (element, name) => element.querySelector('summary').addEventListener('click', (event) => {
  event.preventDefault();
  setOpen(name, !view().open.has(name));
});

const createRow = ({ key }) => {
  const element = make('details', 'communicator'), summary = make('summary');
  for (const name of ['name', 'kind', 'size', 'state', 'rate']) summary.append(make('span', name));
  element.append(summary);
  openByView(element, key);
  return element;
};

// "hang: global rank 5 has not entered AllReduce #1003, for 51 s": the rank to blame is not in the operation that the others wait in.
const troubleWords = (finding, oldest) => {
  const [first] = finding.culprits;
  const what = oldest && operationName(oldest.operation);
  const age = oldest ? ` for ${seconds(oldest.age)}` : '';
  if (!first) return [kindWord(finding.kind), what && `${what}${age}`].filter(Boolean).join(', in ');
  const state = first.standing === 'missing_call' && what ? `has not entered ${what},${age}`
    : `${standingWord(first.standing)}${what ? `, others in ${what}${age}` : ''}`;
  return `${kindWord(finding.kind)}: ${culpritNames(finding)} ${finding.culprits.length > 1 ? `(the first ${state})` : state}`;
};

const showRow = (node) => (element, item) => {
  const { comm, finding, oldest, key } = item;
  const [name, kind, size, state, rate] = element.firstChild.children;
  element.className = `communicator ${finding ? severityClass(finding.severity) : ''}`;
  setText(name, item.label);
  setText(kind, kindOf(comm));
  setText(size, sizeText(comm));
  setText(state, finding ? troubleWords(finding, oldest) : oldest ? `in ${operationName(oldest.operation)} for ${seconds(oldest.age)}` : '');
  // Nothing that ends is not yet idle: a hang has much in flight.
  const isIdle = item.rate === 0 && comm.local_ranks.every((rank) => !rank.in_flight_count);
  setText(rate, isIdle ? 'idle' : `${perSecond(count)(item.rate)} per rank`);
  const isOpen = view().open.has(key);
  if (element.open !== isOpen) element.open = isOpen;
  if (!isOpen) {
    while (element.children.length > 1) element.lastChild.remove();
    return;
  }
  later(element, () => {
    if (!element.open) return;
    if (element.children.length === 1) element.append(communicatorDetails());
    element.lastChild.show(comm, node);
  });
};

const filterBox = byId('filter'), sortBox = byId('sort'), folded = byId('alone');
filterBox.addEventListener('input', () => changeView({ filter: filterBox.value }));
sortBox.addEventListener('change', () => changeView({ sort: sortBox.value }));
openByView(folded, 'alone');

// Groups in the order of their first members.
const groupsOf = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  }
  return groups;
};

let lastNode = null;
export const showCommunicators = (node) => {
  lastNode = node;
  const { filter, sort, open } = view();
  if (filterBox.value !== filter) filterBox.value = filter;
  if (sortBox.value !== sort) sortBox.value = sort;
  const items = itemsOf(node).sort(orders[sort]);
  const shown = items.filter((item) => fits(item.comm, filter));
  // Nobody waits for anybody in a communicator of one rank.
  const isAlone = (item) => item.comm.ranks === 1 && !item.finding;
  const alone = shown.filter(isAlone), rows = shown.filter((item) => !isAlone(item));
  const comms = groupsOf(node.communicators, jobKey);
  sync(byId('communicator-list'), [...groupsOf(rows, ({ comm }) => jobKey(comm))], ([job]) => job, createJob, (element, [job, ofJob]) => {
    element.show(comms.get(job), node);
    const byKind = [...groupsOf(ofJob, ({ comm }) => kindOf(comm)).values()].flat();
    sync(element.lastChild, byKind, (item) => item.key, createRow, showRow(node));
  });
  sync(byId('alone-list'), alone, (item) => item.key, createRow, showRow(node));
  folded.hidden = !alone.length;
  if (folded.open !== open.has('alone')) folded.open = open.has('alone');
  setText(byId('alone-title'), `${counted(alone.length, 'communicator')} of one rank`);
  const leftOut = node.left_out?.communicators ?? 0;
  setText(byId('shown'), (!items.length ? 'There is none.' : shown.length === items.length ? counted(items.length, 'communicator') : `${shown.length} of ${counted(items.length, 'communicator')}`) +
    (leftOut ? `, ${leftOut} more are not listed` : ''));
};
onView(() => { if (lastNode) showCommunicators(lastNode); });
