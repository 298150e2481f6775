// SPDX-License-Identifier: Apache-2.0
// Asks for the node every two seconds and shows it.
import { showCommunicators } from './communicators.js';
import { byId, setText } from './dom.js';
import { showFindings, verdictOf } from './findings.js';
import { roughly } from './format.js';
import { later } from './later.js';
import { showDirectories, showLosses, showProcesses } from './tables.js';

const pollMilliseconds = 2000, timeoutMilliseconds = 5000;

// Lamp and tab say one thing: the worst finding, or that nobody answers.
const setState = (className, text, title) => {
  byId('lamp').className = 'lamp ' + className;
  setText(byId('state'), text);
  if (document.title !== title) document.title = title;
  document.body.classList.toggle('stale', className === 'lost');
};

let nodeName = 'nccl-exporter';
const show = (node) => {
  nodeName = node.node || nodeName;
  setText(byId('node'), nodeName);
  document.body.classList.toggle('bare', !node.processes.length && !node.communicators.length && !node.losses.length);
  showFindings(node);
  showDirectories(node);
  showCommunicators(node);
  showProcesses(node);
  showLosses(node);
  const { className, word, title } = verdictOf(node);
  setState(className, word, title);
};

let lastAnswer = null;
const showLost = () => setState('lost', lastAnswer === null ? 'no answer yet, trying again'
  : `connection lost: no answer for ${roughly((Date.now() - lastAnswer) / 1000)}, trying again`, `connection lost – ${nodeName}`);

const poll = async () => {
  let node = null;
  try {
    const response = await fetch('api/v1/node', { signal: AbortSignal.timeout(timeoutMilliseconds) });
    if (response.ok) node = await response.json();
  } catch {
    // No answer, or none that can be read: the same as a bad status.
  }
  if (!node) return showLost();
  lastAnswer = Date.now();
  later(show, () => show(node));  // apart from the parsing, which takes as long
};

// One request at a time, and none while nobody looks.
let timer = null, isAsking = false;
const run = async () => {
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  try {
    await poll();
  } finally {
    isAsking = false;
    if (!document.hidden) timer = setTimeout(run, pollMilliseconds);
  }
};
document.addEventListener('visibilitychange', () => { if (!document.hidden) run(); });
// A link within the page would replace the view in the address.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  byId('communicators').focus();
});
run();
