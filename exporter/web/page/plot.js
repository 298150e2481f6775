// SPDX-License-Identifier: Apache-2.0
// The frame of all charts: title, axes with ticks, and a cursor that pointer or arrow keys move, with value and time beside the title.
import { make, setText } from './dom.js';
import { clock } from './format.js';

// `picture` fills the field. `describe(step, row)` is the text at the cursor, `summary()` that without one.
export const plot = (title, picture, describe, summary) => {
  const element = make('figure', 'plot'), caption = make('figcaption'), readout = make('span', 'readout');
  const vertical = make('div', 'ticks-y'), field = make('div', 'field'), cursor = make('div', 'cursor'), horizontal = make('div', 'ticks-x');
  picture.setAttribute('aria-hidden', 'true');
  caption.append(make('span', '', title), readout);
  horizontal.append(make('span'), make('span'));
  cursor.hidden = true;
  field.append(picture, cursor);
  field.tabIndex = 0;
  field.setAttribute('role', 'slider');
  field.setAttribute('aria-label', title);
  field.setAttribute('aria-valuemin', '0');
  element.append(caption, vertical, field, horizontal);
  let times = [], rows = 1, at = null, row = 0;

  const show = () => {
    const last = Math.max(times.length - 1, 0);
    if (at !== null) at = Math.min(at, last);
    cursor.hidden = at === null || !times.length;
    const isPointed = !cursor.hidden;
    if (isPointed) cursor.style.left = `${(at + 0.5) / times.length * 100}%`;
    const text = isPointed ? `${clock(times[at])} UTC: ${describe(at, row)}` : summary();
    setText(readout, text);
    field.setAttribute('aria-valuemax', String(last));
    field.setAttribute('aria-valuenow', String(at ?? last));
    field.setAttribute('aria-valuetext', text);
  };
  const move = (step, toRow) => {
    at = Math.max(0, Math.min(step, times.length - 1));
    row = Math.max(0, Math.min(toRow, rows - 1));
    show();
  };
  const leave = () => { at = null; show(); };
  field.addEventListener('pointermove', (event) => {
    const box = field.getBoundingClientRect();
    if (times.length) move(Math.floor((event.clientX - box.left) / box.width * times.length), Math.floor((event.clientY - box.top) / box.height * rows));
  });
  field.addEventListener('pointerleave', leave);
  field.addEventListener('focus', () => { if (at === null && times.length) move(times.length - 1, row); });
  field.addEventListener('blur', leave);
  field.addEventListener('keydown', (event) => {
    const [right, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0] }[event.key] ?? [0, 0];
    if (!times.length || !right && !down) return;
    event.preventDefault();
    move((at ?? times.length - 1) + right, row + down);
  });

  // `ticks` from the top; an element or a text each. The field is as wide as the time that exists.
  const update = (newTimes, newRows, ticks) => {
    times = newTimes;
    rows = newRows;
    while (vertical.children.length > ticks.length) vertical.lastChild.remove();
    ticks.forEach(({ text, className = '' }, i) => {
      if (!vertical.children[i]) vertical.append(make('span'));
      setText(vertical.children[i], text);
      vertical.children[i].className = className;
    });
    setText(horizontal.firstChild, times.length ? clock(times[0]) : '');
    setText(horizontal.lastChild, times.length ? `${clock(times[times.length - 1])} UTC` : '');
    show();
  };
  return { element, field, update };
};
