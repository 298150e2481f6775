// SPDX-License-Identifier: Apache-2.0
// Words for what the API says of findings, ranks, processes and communicators. Nothing is judged here: findings come from the daemon.
import { ranges, unknown } from './format.js';

const kinds = {
  hang_culprit: 'hang', hang_other_call: 'hang', hang_nobody_behind: 'hang', hang_elsewhere: 'hang',
  late_rank: 'late', process_killed: 'killed', segments_unusable: 'unusable files', operations_not_followed: 'not followed', not_judged: 'not judged', ranks_unmeasured: 'not measured', abandoned: 'abandoned', socket_fallback: 'sockets',
};
export const isHang = (finding) => kinds[finding.kind] === 'hang';
// A kind of a later version has its own name.
export const kindWord = (kind) => kinds[kind] ?? kind.replaceAll('_', ' ');

const standings = {
  waits: 'waits', missing_call: 'has not entered', other_call: 'is in another call', no_partner: 'has no partner call',
  stopped: 'is stopped', killed: 'was killed', missing: 'is missing', no_room: 'no room', late: 'is late',
};
export const standingWord = (standing) => standings[standing] ?? standing.replaceAll('_', ' ');

export const severityClass = (severity) => severity === 'critical' ? 'bad' : severity === 'warning' ? 'warn' : 'info';

// Of a process, or of a rank's process: a rank's communicator is open, so that one that is gone was killed.
export const processWord = (process) => {
  if (process.alive) return process.stopped ? 'stopped' : 'runs';
  return process.ended ? 'ended' : 'killed';
};
export const processClass = (process) => ({ runs: '', stopped: 'warn', ended: 'waits', killed: 'warn' })[processWord(process)];

// "GPU 3, pid 5829, node-1": what leads to the machine.
const placeOf = (rank) => {
  const parts = [];
  if (rank.gpu !== null) parts.push(`GPU ${rank.gpu}`);
  if (rank.pid !== null) parts.push(`pid ${rank.pid}`);
  if (rank.host) parts.push(rank.host);
  if (rank.pod) parts.push(`pod ${rank.pod}`);
  return parts.join(', ');
};
// The daemon gives global ranks to all ranks of a finding, or to none.
export const culpritText = (rank) => {
  const name = rank.global_rank ? `global rank ${rank.global_rank}` : `rank ${rank.rank}`;
  const place = placeOf(rank);
  return `${name}${place ? ` (${place})` : ''} ${standingWord(rank.standing)}${rank.behind ? `, ${rank.behind} behind` : ''}${rank.operation ? `, in ${rank.operation}` : ''}`;
};
// "global ranks 4, 6-8", or "ranks 0, 2 of tp".
export const ranksText = (list, communicator) => {
  const areGlobal = list.every((rank) => /^\d+$/.test(rank.global_rank));
  const numbers = ranges(list.map((rank) => areGlobal ? Number(rank.global_rank) : rank.rank));
  return `${areGlobal ? 'global ' : ''}rank${list.length === 1 ? '' : 's'} ${numbers}${areGlobal || !communicator ? '' : ` of ${communicator}`}`;
};
// For a title of few letters.
export const culpritNames = (finding) => {
  const [first] = finding.culprits;
  if (!first) return finding.comm_name;
  const name = first.global_rank ? `global rank ${first.global_rank}` : `rank ${first.rank}`;
  return finding.culprits.length === 1 ? name : `${name} and ${finding.culprits.length - 1} more`;
};

export const communicatorKey = (comm) => [comm.comm, comm.ranks, comm.uid, comm.nccl_job, comm.namespace].join('/');
export const isAbout = (finding, comm) => finding.comm === comm.comm && finding.uid === comm.uid;
export const jobOf = (comm) => !comm.nccl_job ? (comm.namespace ? `namespace ${comm.namespace}` : '') :
  `job ${comm.nccl_job}` + (comm.namespace ? ` (namespace ${comm.namespace})` : '');

// "tp: GPU 0-3".
export const communicatorName = (comm) => {
  const ranks = comm.local_ranks;
  const members = ranks.every((rank) => rank.gpu !== null)
    ? `GPU ${ranges(ranks.map((rank) => rank.gpu))}`
    : `rank ${ranges(ranks.map((rank) => rank.rank))}`;
  return `${comm.comm_name || 'unnamed'}: ${members}`;
};
export const operationName = (operation) => operation.collective +
  (operation.sequence === null ? operation.peer === null ? '' : ` with rank ${operation.peer}` : ` #${operation.sequence}`);
// Of the oldest operation in flight, in seconds; null for none.
export const ageOf = (rank, node) => rank.in_flight.length ? Math.max(node.taken - rank.in_flight[0].start, 0) : null;

export const sizeText = (comm) => {
  const all = comm.ranks ?? unknown;
  const here = comm.local_ranks.length;
  return (here === comm.ranks ? `${here} ranks` : `${here} of ${all} ranks`) + (comm.nodes > 1 ? `, ${comm.nodes} nodes` : '');
};
