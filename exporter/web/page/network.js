// SPDX-License-Identifier: Apache-2.0
// What the network operations of each rank wait for.
import { fillRow, make, row, setText, sync, table } from './dom.js';
import { bytes, percent, seconds, unknown, whole } from './format.js';

const columns = [['rank', 'number'], ['sends timed', 'number'], ['of', 'number'], ['own GPU', 'number'], ['receiver', 'number'], ['network', 'number'], ['network time of 1 MiB', 'number'],
  ['receives timed', 'number'], ['of', 'number'], ['own GPU', 'number'], ['sender or network', 'number'], ['flush', 'number']];

const shares = ({ wait_seconds }, states) => {
  const sum = Object.values(wait_seconds).reduce((all, wait) => all + wait, 0);
  return states.map((state) => sum > 0 ? percent(wait_seconds[state] / sum) : unknown);
};
const direction = (counts, states) => counts.operations ? [whole(counts.operations), bytes(counts.bytes), ...shares(counts, states)]
  : Array(states.length + 2).fill(unknown);
// Of a rank's sends. A slow adapter shows here, while all ranks share the waits.
const mebibyte = 1048576;
const perMebibyte = ({ send }) => send.operations && send.bytes ? send.wait_seconds.network / send.bytes * mebibyte : null;
const median = (values) => {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b), half = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
};
// "38 µs, 4.0 times as long as the median": beside its peers.
const perMebibyteText = (network, usual) => {
  const own = perMebibyte(network);
  if (own === null) return unknown;
  const times = own / usual;
  return seconds(own) + (times >= unusualTimes ? `, ${times.toFixed(1)} times the median` : '');
};
// As --network-ratio of the rules.
const unusualTimes = 2;
const showRank = (usual) => (line, { rank, network }) =>
  fillRow(line, [rank, ...direction(network.send, ['gpu', 'peer', 'network']), perMebibyteText(network, usual), ...direction(network.recv, ['gpu', 'network', 'flush'])]);

// Hidden while no rank has a timed network operation.
export const networkTimes = () => {
  const element = make('div'), note = make('p', 'note'), ranks = table('What network operations wait for, by rank', columns);
  element.append(make('h3', '', 'Where network time goes'), note, ranks.element);
  element.show = (comm) => {
    const timed = comm.local_ranks.filter(({ network }) => network && network.send.operations + network.recv.operations > 0);
    element.hidden = timed.length === 0;
    if (element.hidden) return;
    const { network } = timed[0];
    setText(note, `Shares of the time of network operations in the last ${seconds(network.seconds)}, timed for ${percent(network.timed_share)} of the time. Ranks of other nodes are not here: the alert NCCLSlowNetworkNode compares all.`);
    const usual = median(timed.map(({ network }) => perMebibyte(network)));
    sync(ranks.body, timed, ({ rank }) => String(rank), row(columns.map((column) => column[1])), showRank(usual));
  };
  return element;
};
