// SPDX-License-Identifier: Apache-2.0
// Processes, losses, and the watched directories with what cannot be used in them.
import { byId, fillRow, row, setText, sync, table } from './dom.js';
import { clock, seconds, unknown, whole } from './format.js';
import { processClass, processWord, standingWord } from './words.js';

const lossCount = (losses) => losses.reduce((sum, loss) => sum + loss.count, 0);

const processColumns = [['pid', 'number'], ['state', ''], ['global rank', 'number'], ['job', ''], ['program', ''], ['host', ''], ['up for', 'number'], ['plugin', ''], ['not followed or timed', 'number']];
const processes = table('Processes that have loaded the plugin', processColumns);
byId('processes').append(processes.element);

// What the findings say of a process: a culprit is red wherever it is shown, those that wait are grey.
const foundOf = (process, node) => {
  for (const [list, className] of [['culprits', 'culprit'], ['waiting', 'waits']]) {
    for (const finding of node.findings) {
      const rank = finding[list].find((one) => one.pid === process.pid && one.host === process.host && one.pod === process.pod);
      if (rank) return { className, word: standingWord(rank.standing) };
    }
  }
  return { className: processClass(process), word: '' };
};
const stateText = (process, found) => {
  const word = processWord(process);
  return !found.word || found.word.endsWith(word) ? word : word === 'runs' ? found.word : `${word}, ${found.word}`;
};

export const showProcesses = (node) => {
  const sorted = node.processes.slice().sort((a, b) => a.nccl_job.localeCompare(b.nccl_job) || Number(a.global_rank) - Number(b.global_rank) || a.pid - b.pid);
  const running = sorted.filter((process) => process.alive && !process.stopped).length;
  setText(byId('processes-title'), sorted.length ? `Processes: ${running} of ${sorted.length} run` : 'Processes');
  byId('no-process').hidden = sorted.length > 0;
  processes.element.hidden = !sorted.length;
  sync(processes.body, sorted, (process) => `${process.pid} ${process.start}`, row(processColumns.map((column) => column[1])), (line, process) => {
    const found = foundOf(process, node);
    fillRow(line, [process.pid, stateText(process, found), process.global_rank || unknown, process.nccl_job || process.pod || unknown, process.executable.split('/').pop() || unknown,
      process.host || unknown, process.start === null ? unknown : seconds(node.taken - process.start), process.plugin_version || unknown, whole(lossCount(process.losses))],
    found.className);
  });
};

const lossColumns = [['count', 'number'], ['what', ''], ['cause', ''], ['meaning', 'meaning']];
const losses = table('Operations and events that are not followed or not timed, by cause', lossColumns);
byId('losses').append(losses.element);

export const showLosses = (node) => {
  byId('no-loss').hidden = node.losses.length > 0;
  byId('losses').hidden = !node.losses.length;
  sync(losses.body, node.losses, (loss) => loss.reason, row(lossColumns.map((column) => column[1])), (line, loss) =>
    fillRow(line, [whole(loss.count), loss.kind === 'dropped' ? 'not followed' : loss.kind.replaceAll('_', ' '), loss.reason, loss.meaning]));
};

const states = { readable: 'can be read', missing: 'does not exist (yet)', not_a_directory: 'is not a directory', unreadable: 'cannot be read' };
const directoryColumns = [['directory', ''], ['state', ''], ['reason', 'meaning']];
const directories = table('Watched directories', directoryColumns);
const fileColumns = [['file', 'meaning'], ['owner', 'number'], ['cause', ''], ['reason', 'meaning'], ['files', 'number'], ['at', '']];
const files = table('Unusable files, the latest per owner and cause', fileColumns);
byId('directory-tables').append(directories.element, files.element);

// Shown where there is nothing else to see, and where something cannot be read.
export const showDirectories = (node) => {
  // A directory is a row of the other table.
  const paths = new Set(node.directories.map((directory) => directory.path));
  const troubles = node.segment_troubles.filter((trouble) => trouble.present > 0 && !paths.has(trouble.file));
  const isWrong = (directory) => directory.state === 'unreadable' || directory.state === 'not_a_directory';
  byId('directories').hidden = node.processes.length > 0 && !troubles.length && !node.directories.some(isWrong);
  byId('first-steps').hidden = node.processes.length > 0;
  sync(directories.body, node.directories, (directory) => directory.path, row(directoryColumns.map((column) => column[1])), (line, directory) =>
    fillRow(line, [directory.path, states[directory.state] ?? directory.state, directory.detail || unknown], isWrong(directory) ? 'warn' : directory.state === 'missing' ? 'waits' : ''));
  files.element.hidden = !troubles.length;
  sync(files.body, troubles, (trouble) => `${trouble.file} ${trouble.reason}`, row(fileColumns.map((column) => column[1])), (line, trouble) =>
    fillRow(line, [trouble.file, trouble.uid ?? unknown, trouble.reason, trouble.detail || unknown, trouble.present, trouble.time === null ? unknown : `${clock(trouble.time)} UTC`], 'warn'));
};
