// SPDX-License-Identifier: Apache-2.0
// What one communicator shows when it is opened: who waits, its collectives, its ranks.
import { durationMap, lineChart, waitingMap } from './charts.js';
import { fillList, fillRow, make, row, setText, sync, table } from './dom.js';
import { bytes, count, known, percent, perSecond, seconds, unknown, whole } from './format.js';
import { networkTimes } from './network.js';
import { ageOf, isAbout, operationName, processClass, processWord, standingWord } from './words.js';

// What the daemon found of each rank here: its culprits first, then those that wait for them.
const foundRanks = (comm, node) => {
  const found = new Map();
  const about = node.findings.filter((finding) => isAbout(finding, comm));
  for (const [list, className] of [['culprits', 'culprit'], ['waiting', 'waits']]) {
    for (const finding of about) {
      for (const rank of finding[list]) if (!found.has(rank.rank)) found.set(rank.rank, { rank, className });
    }
  }
  return found;
};

const perRank = (value, collective) => known(value) ? value / Math.max(collective.used_by, 1) : null;

// A bandwidth that sinks when a rank is late says nothing about links: where the two are known apart, they take its place.
const collectiveFacts = (collective) => {
  const { recent } = collective;
  const each = collective.used_by === 1 ? 'on one rank' : `on each of ${collective.used_by} ranks`;
  const isApart = known(recent.transfer_seconds) || known(recent.waiting_seconds);
  return [
    ['operations', `${perSecond(count)(perRank(recent.operations_per_second, collective))} ${each}`],
    ['message bytes', `${perSecond(bytes)(perRank(recent.bytes_per_second, collective))} ${each}`],
    ['mean time', seconds(recent.duration_seconds)],
    ...isApart ? [['transfer, of the fastest rank', seconds(recent.transfer_seconds)], ['waiting, on average', seconds(recent.waiting_seconds)]]
      : [['bus bandwidth, waiting included', perSecond(bytes)(recent.bus_bytes_per_second)]],
  ];
};

const collectiveCard = (node) => () => {
  const { first_bin_seconds, bins_per_octave } = node.history;
  const element = make('section', 'collective'), facts = make('div'), numbers = make('dl');
  facts.append(make('h3'), numbers);
  const duration = lineChart('Mean time', seconds);
  const bandwidth = lineChart('Bus bandwidth, waiting included', perSecond(bytes));
  const heat = durationMap('How long operations take', (bin) => first_bin_seconds * 2 ** (bin / bins_per_octave));
  element.append(facts, duration.element, bandwidth.element, heat.element);
  element.show = (collective, times) => {
    setText(facts.firstChild, collective.collective);
    fillList(numbers, collectiveFacts(collective));
    duration.update(collective.history.duration_seconds, times);
    bandwidth.update(collective.history.bus_bytes_per_second, times);
    heat.update(collective.history.heat, times);
  };
  return element;
};

const rankColumns = [['rank', 'number'], ['state', ''], ['GPU', 'number'], ['pid', 'number'], ['global rank', 'number'], ['oldest in flight', ''], ['for', 'number'],
  ['behind', 'number'], ['started, all kinds', 'number'], ['last to enter', 'number'], ['late by', 'number'], ['timing', '']];

const stateOf = (rank, found) => {
  if (found) return standingWord(found.rank.standing);
  const word = processWord(rank);
  return word === 'runs' && rank.in_flight_count === 0 ? 'idle' : word;
};

const showRank = (node, found) => (line, rank) => {
  const { arrivals } = rank;
  const age = ageOf(rank, node), mine = found.get(rank.rank);
  const isCompared = arrivals && arrivals.compared > 0;
  fillRow(line, [rank.rank, stateOf(rank, mine), rank.gpu ?? unknown, rank.pid, rank.global_rank || unknown,
    rank.in_flight.length ? operationName(rank.in_flight[0]) : rank.in_flight_count === null ? 'not seen' : unknown, age === null ? unknown : seconds(age),
    rank.behind || unknown, whole(rank.started_sequence), isCompared ? percent(arrivals.last / arrivals.compared) : unknown,
    isCompared ? seconds(arrivals.mean_lateness_seconds) : unknown, rank.timing_source + (rank.drift_cause ? ` (${rank.drift_cause.replaceAll('_', ' ')})` : '')],
  mine ? mine.className : processClass(rank));
};

// Ranks that are not here, in the form of those that are.
const absentRanks = (comm, found) => {
  const here = new Set(comm.local_ranks.map((rank) => rank.rank));
  const absent = new Map();
  for (const [list, standing] of [[comm.missing_ranks, 'missing'], [comm.no_room_ranks, 'no_room']]) {
    for (const rank of list ?? []) absent.set(rank, { rank, standing });
  }
  for (const { rank } of found.values()) absent.set(rank.rank, rank);
  return [...absent.values()].filter((rank) => !here.has(rank.rank));
};
const showAbsent = (line, rank, mine) => {
  const cells = [rank.rank, standingWord(rank.standing), rank.gpu ?? unknown, rank.pid ?? unknown, rank.global_rank || unknown, rank.operation || unknown];
  while (cells.length < rankColumns.length) cells.push(unknown);
  fillRow(line, cells, mine ? mine.className : rank.standing === 'missing' ? 'warn' : 'waits');
};

export const communicatorDetails = () => {
  const element = make('div', 'inside'), facts = make('p', 'note'), network = networkTimes(), collectives = make('div');
  const ranks = table('Ranks on this node', rankColumns);
  let map = null, found = new Map();
  element.append(facts, ranks.element, make('p', 'note', 'A number after # counts operations of one kind. “Started” counts all collectives of the rank.'), network, collectives);
  element.show = (comm, node) => {
    found = foundRanks(comm, node);
    setText(facts, [`id ${comm.comm}`, `uid ${comm.uid}`, comm.nccl_job && `job ${comm.nccl_job}`, comm.namespace && `namespace ${comm.namespace}`,
      `${comm.local_ranks.length} of ${comm.ranks ?? 'an unknown number of'} ranks here`, comm.nodes && (comm.nodes === 1 ? 'one node' : `${comm.nodes} nodes`)].filter(Boolean).join(' · '));
    const absent = absentRanks(comm, found);
    const all = [...comm.local_ranks, ...absent].sort((a, b) => a.rank - b.rank);
    sync(ranks.body, all, (rank) => `${rank.rank} ${rank.pid}`, row(rankColumns.map((column) => column[1])), (line, rank) =>
      absent.includes(rank) ? showAbsent(line, rank, found.get(rank.rank)) : showRank(node, found)(line, rank));
    if (comm.waiting && comm.local_ranks.length > 1) {
      if (!map) {
        map = waitingMap('Who waits, by rank and time', () => new Set([...found].filter(([, { className }]) => className === 'culprit').map(([rank]) => rank)));
        facts.after(map.element);
      }
      map.update(comm.waiting, node.history.times);
    }
    network.show(comm);
    sync(collectives, comm.collectives, (item) => item.collective, collectiveCard(node), (card, item) => card.show(item, node.history.times));
  };
  return element;
};
