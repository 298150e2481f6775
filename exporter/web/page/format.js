// SPDX-License-Identifier: Apache-2.0
// Numbers, times and lists of ranks for people.

const scaled = (value, units, step) => {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; ++unit; }
  const digits = value >= 100 || unit === 0 && Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + ' ' + units[unit];
};

export const unknown = '–';
export const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
export const whole = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ',');
export const count = (value) => known(value) ? scaled(value, ['', 'k', 'M', 'G', 'T'], 1000).trim() : unknown;
export const bytes = (value) => known(value) ? scaled(value, ['B', 'kB', 'MB', 'GB', 'TB', 'PB'], 1000) : unknown;
export const perSecond = (format) => (value) => known(value) ? format(value) + (format === count ? ' /s' : '/s') : unknown;
export const percent = (value) => known(value) ? Math.round(value * 100) + ' %' : unknown;
export const seconds = (value) => {
  if (!known(value)) return unknown;
  if (value === 0) return '0 s';
  if (value >= 7200) return (value / 3600).toFixed(1) + ' h';
  if (value >= 120) return (value / 60).toFixed(1) + ' min';
  if (value >= 1) return scaled(value, ['s'], 1000);
  return scaled(value * 1e6, ['µs', 'ms'], 1000);
};
// Of ages, which nobody reads to the tenth: "45 s", "5 min".
export const roughly = (value) => {
  if (value >= 7200) return (value / 3600).toFixed(1) + ' h';
  return value >= 120 ? Math.floor(value / 60) + ' min' : Math.floor(Math.max(value, 0)) + ' s';
};
// As in the daemon's sentences and log: in UTC.
export const clock = (epochSeconds) => new Date(epochSeconds * 1000).toISOString().slice(11, 19);
export const counted = (number, noun) => `${whole(number)} ${noun}${number === 1 ? '' : 's'}`;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// "0-3, 7" for 0, 1, 2, 3 and 7.
export const ranges = (numbers) => {
  const parts = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && last[1] + 1 === number) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}-${last}`).join(', ');
};
