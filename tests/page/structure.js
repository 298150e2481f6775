// SPDX-License-Identifier: Apache-2.0
// The structure of the page as it is seen: a list of lines, in order, without numbers and names. A line is indented below that which contains it; of equal
// neighbours the first one is there, marked "...".
(() => {
const severities = ['good', 'info', 'warn', 'bad', 'idle', 'lost'];
const withoutNumbers = (text) => text.trim().replace(/\s+/g, ' ').replace(/\d[\d,.:]*/g, '#');
const text = (element) => `"${withoutNumbers(element.textContent)}"`;
const severity = (element) => severities.filter((name) => element.classList.contains(name)).map((name) => ` ${name}`).join('');
const opened = (element) => element.open ? ' open' : ' folded';

// The first that fits has the line. What comes from the data is left out: names, sentences, values.
const lines = [
  ['header, main, footer, pre', (element) => element.localName],
  ['nav', (element) => `nav "${element.getAttribute('aria-label')}"`],
  ['a', (element) => element.closest('nav') ? `link ${text(element)}` : 'link'],
  ['#lamp', (element) => `lamp${severity(element)}`],
  ['#state', (element) => `state ${text(element)}`],
  ['#headline, h1, .collective h3', (element) => element.localName],
  ['h2, h3', (element) => `${element.localName} ${text(element)}`],
  ['section', (element) => `section ${element.id || element.className}${severity(element)}`.trim()],
  ['#price', () => 'cost and age'],
  ['.communicator', (element) => `communicator${severity(element)}${opened(element)}`],
  ['.finding', (element) => `finding ${element.dataset.key.split('/')[0]}${severity(element)}${opened(element)}`],
  ['summary > span', (element) => element.textContent && element.className],
  ['#folded, #alone', (element) => `more${opened(element)}`],
  ['#folded-title, #alone-title', text],
  ['table', (element) => `table ${text(element.caption)}`],
  ['th', (element) => `column ${text(element)}`],
  ['tbody tr', (element) => `row ${element.className}`.trim()],
  ['figure', (element) => `chart ${text(element.querySelector('figcaption span'))}`],
  ['label', (element) => `label "${withoutNumbers(element.firstChild.data)}"`],
  ['dt, button', text],
  ['.note', () => 'note'],
];

const structureOf = (element) => {
  if (!element.checkVisibility()) return [];
  const found = lines.find(([selector]) => element.matches(selector));
  const own = found ? found[1](element) : '';
  const blocks = [];
  for (const child of element.children) {
    const block = structureOf(child);
    if (!block.length) continue;
    const last = blocks.at(-1);
    if (last && last.block.join('\n') === block.join('\n')) last.isRepeated = true;
    else blocks.push({ block, isRepeated: false });
  }
  const inner = blocks.flatMap(({ block: [first, ...rest], isRepeated }) => [isRepeated ? `${first} ...` : first, ...rest]);
  return own ? [own, ...inner.map((line) => `  ${line}`)] : inner;
};
return structureOf(document.body);
})()
