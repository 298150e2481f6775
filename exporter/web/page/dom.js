// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Everything that comes from elsewhere is set as text, never as markup.

export const byId = (id) => document.getElementById(id);
export const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
export const make = (tag, className = '', text = '') => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
};

// Makes the children of `parent` those of `items`, in order, and keeps those that are there: focus, scroll and selection stay.
// Items of equal keys are told apart by their order.
export const sync = (parent, items, key, create, update) => {
  const occurrences = new Map();
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const shared = key(item);
    const occurrence = occurrences.get(shared) ?? 0;
    occurrences.set(shared, occurrence + 1);
    const name = occurrence === 0 ? shared : `${shared}\n${occurrence}`;
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

export const row = (columns) => () => {
  const element = make('tr');
  for (const className of columns) element.append(make('td', className));
  return element;
};
export const fillRow = (element, texts, className = '') => {
  texts.forEach((text, i) => setText(element.children[i], String(text)));
  element.className = className;
};

// A list of names and values; `pairs` may change from one call to the next.
export const fillList = (list, pairs) => sync(list, pairs.map((pair, i) => [...pair, i]), ([name, , i]) => `${i} ${name}`, () => {
  const element = make('div');
  element.append(make('dt'), make('dd'));
  return element;
}, (element, [name, value]) => {
  setText(element.firstChild, name);
  if (value instanceof Node) {
    if (element.lastChild.firstChild !== value) element.lastChild.replaceChildren(value);
  } else {
    setText(element.lastChild, value);
  }
});

// columns: [title, class]. A table that may scroll sideways, reached by keyboard; its caption is for screen readers.
export const table = (caption, columns) => {
  const element = make('div', 'wide');
  element.tabIndex = 0;
  element.setAttribute('role', 'region');
  element.setAttribute('aria-label', caption);
  const inner = make('table'), head = make('thead'), titles = make('tr'), body = make('tbody');
  for (const [title, className] of columns) {
    const cell = make('th', className, title);
    cell.scope = 'col';
    titles.append(cell);
  }
  head.append(titles);
  inner.append(make('caption', 'unseen', caption), head, body);
  element.append(inner);
  return { element, body };
};
