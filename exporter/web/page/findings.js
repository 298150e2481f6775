// SPDX-License-Identifier: Apache-2.0
// The daemon's findings: the worst as a headline with all it takes to act, the others below.
import { byId, fillList, make, setText, sync } from './dom.js';
import { capital, clock, counted, roughly, whole } from './format.js';
import { communicatorKey, communicatorName, culpritNames, culpritText, isAbout, kindWord, ranksText, severityClass } from './words.js';
import { hashWithOpen, setOpen } from './view.js';

const unfolded = 5;  // findings below the worst that need no click

// With the time of day only where the sentence lacks it.
const sinceText = (finding, node) => {
  if (finding.since === null) return '';
  const time = clock(finding.since);
  return `${finding.headline.includes(time) ? '' : `since ${time} UTC, `}for ${roughly(node.taken - finding.since)}`;
};
const priceText = (finding, node) => [capital(finding.cost), sinceText(finding, node)].filter(Boolean).join(' · ');
const namedCulprits = 8;
const waitingText = (finding) => {
  const more = finding.waiting_count - finding.waiting.length;
  return `${ranksText(finding.waiting, finding.comm_name)}${more > 0 ? ` and ${more} more` : ''}`;
};
const culpritsText = (finding) => finding.culprits.slice(0, namedCulprits).map(culpritText).join('; ') +
  (finding.culprits.length > namedCulprits ? ` and ${finding.culprits.length - namedCulprits} more` : '');

const communicatorLink = () => {
  const link = make('a');
  link.addEventListener('click', (event) => {
    event.preventDefault();
    setOpen(link.dataset.open, true);
    const row = document.querySelector(`[data-key="${CSS.escape(link.dataset.open)}"]`);
    if (!row) return;
    row.scrollIntoView({ block: 'start' });
    row.querySelector('summary').focus({ preventScroll: true });
  });
  return link;
};

// What the copy button copies: all that a colleague needs.
const copyText = (finding, node) => [
  `${node.node}: ${finding.headline}`,
  finding.cost && `Cost: ${finding.cost}`,
  finding.since !== null && `Since: ${new Date(finding.since * 1000).toISOString().replace('T', ' ').slice(0, 19)} UTC`,
  ...finding.evidence.map(({ name, value }) => `${capital(name)}: ${value}`),
  finding.next && `Next: ${finding.next}`,
  ...finding.collect.map(({ what, command }) => `Collect: ${command}  # ${what}`),
  finding.runbook && `Runbook: ${finding.runbook}`,
].filter(Boolean).join('\n');

// Browsers give no clipboard to pages without TLS, as most of these are; the old way works there.
const copy = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  if (!isCopied) throw new Error('not copied');
};
const copyButton = () => {
  const button = make('button', '', 'Copy');
  button.type = 'button';
  button.addEventListener('click', async () => {
    let said = 'Copied';
    try { await copy(button.dataset.text); } catch { said = 'Not copied'; }
    setText(button, said);
    setTimeout(() => setText(button, 'Copy'), 2000);
  });
  return button;
};

const details = () => {
  const list = make('dl', 'facts'), link = communicatorLink(), runbook = make('a'), button = copyButton();
  const element = make('div');
  element.append(list, button);
  element.show = (finding, node) => {
    const comm = node.communicators.find((one) => isAbout(finding, one));
    if (comm) {
      const key = communicatorKey(comm);
      link.dataset.open = key;
      link.href = hashWithOpen(key);
      setText(link, communicatorName(comm));
    }
    setText(runbook, finding.runbook);
    runbook.href = `docs/runbooks/${encodeURIComponent(finding.runbook)}`;
    fillList(list, [
      ['Culprit', culpritsText(finding)],
      ['Next', finding.next],
      ['Waiting', finding.waiting_count ? waitingText(finding) : ''],
      ...finding.evidence.map(({ name, value }) => [capital(name), value]),
      ['Job', finding.job],
      ['Communicator', comm ? link : finding.comm_name],
      ['Runbook', finding.runbook && runbook],
    ].filter(([, value]) => value));
    button.dataset.text = copyText(finding, node);
  };
  return element;
};

// Where there is nothing to look at, nothing found would say too much.
const isIdle = (node) => node.looked_at.communicators === 0;
const idleText = (node) => {
  if (!node.processes.length) return 'No process has made a communicator yet.';
  const ended = node.processes.filter((process) => process.ended).length;
  if (ended < node.processes.length) return 'No communicator is open.';
  return `No communicator is open: ${ended === 1 ? 'the process has' : `all ${ended} processes have`} ended.`;
};
const quietText = (node) => {
  if (isIdle(node)) return idleText(node);
  const { seconds, communicators, compared_operations: operations, learning_seconds: learning, communicators_across_nodes: across } = node.looked_at;
  const looked = counted(communicators, 'communicator');
  if (!seconds) return `No hang found on ${looked}. Late ranks are told when there is some history.`;
  return `Nothing found in the last ${roughly(seconds)}: ${looked}, ${whole(operations)} operations compared.` +
    (learning > 0 ? ` Late ranks can be found in ${roughly(learning)}.` : '') +
    ` Not judged here: bandwidth${across ? `, and the network of ${counted(across, 'communicator')} across nodes` : ''}. The alerts do: see nccl-exporter report.`;
};

const worst = details();
byId('worst').append(worst);

const shortFinding = () => {
  const element = make('details', 'finding'), summary = make('summary'), inner = details();
  summary.append(make('span', 'headline'), make('span', 'cost'));
  element.append(summary, inner);
  element.show = (finding, node) => {
    element.className = `finding ${severityClass(finding.severity)}`;
    setText(summary.children[0], finding.headline);
    setText(summary.children[1], priceText(finding, node));
    inner.show(finding, node);
  };
  return element;
};
const findingKey = (finding) => [finding.kind, finding.comm, finding.uid, finding.job, ...finding.culprits.map((rank) => `${rank.rank} ${rank.pid}`)].join('/');
const showList = (list, findings, node) => sync(list, findings, findingKey, shortFinding, (element, finding) => element.show(finding, node));

// Read out when another finding is the worst, not at each new number in its sentence.
let announced = null;
const announce = (finding, text) => {
  const key = finding ? findingKey(finding) : '';
  if (key === announced) return;
  announced = key;
  setText(byId('announcement'), text);
};

export const showFindings = (node) => {
  const [first, ...others] = node.findings;
  const headline = first ? first.headline : quietText(node);
  setText(byId('headline'), headline);
  byId('verdict').className = verdictOf(node).className;
  announce(first, headline);
  setText(byId('price'), first ? priceText(first, node) : '');
  byId('worst').hidden = !first;
  if (first) worst.show(first, node);
  byId('others').hidden = !others.length;
  showList(byId('other-list'), others.slice(0, unfolded), node);
  const folded = others.slice(unfolded);
  byId('folded').hidden = !folded.length;
  setText(byId('folded-title'), `${counted(folded.length, 'further finding')}`);
  showList(byId('folded-list'), folded, node);
};

// For lamp and tab: the worst finding in some words.
export const verdictOf = (node) => {
  const [first] = node.findings;
  const title = `${node.node} – nccl-exporter`;
  if (!first && isIdle(node)) return { className: 'idle', word: 'nothing to watch', title };
  // No clean bill: the alerts judge more.
  if (!first) return { className: 'good', word: 'nothing found on this node', title };
  const who = culpritNames(first), word = kindWord(first.kind);
  return { className: severityClass(first.severity), word, title: `● ${word}${who ? `: ${who}` : ''} – ${node.node}` };
};
