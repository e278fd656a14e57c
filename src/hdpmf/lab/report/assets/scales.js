"use strict";
/* Scales, ticks and SVG elements: what every chart needs. */
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function html(name, properties, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function scale(from, to, start, end, log) {
  const f = log ? Math.log : (v) => v;
  const [a, b] = [f(from), f(to)];
  return (v) => (a === b ? (start + end) / 2 : start + ((f(v) - a) / (b - a)) * (end - start));
}

function ticks(low, high, log, wanted) {
  if (log) {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of [1, 2, 3, 5, 7]) all.push(Number(`${digit}e${power}`));
    }
    const inside = all.filter((v) => v >= low && v <= high);
    if (inside.length > 3) return inside;
  }
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/* The powers of ten on an axis, fewer where they would touch; where there are not two, round numbers. */
function decades(xs) {
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.floor(Math.log10(high)); power++) found.push(Number(`1e${power}`));
  if (found.length < 2) return ticks(low, high, true, 4).filter((v) => v > 0);
  return found.length > 5 ? found.filter((_, i) => i % 2 === 0) : found;
}

/* An epsilon as the accountant writes it. */
function cost(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/* A measure as people write it: ndcg_at_10 is NDCG@10. */
function measure(metric) {
  return metric.replace("_at_", "@").toUpperCase();
}

function four(value) {
  return value === null ? "n/a" : value.toFixed(4);
}

const SHAPES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0 ${-1.25 * r}L${1.2 * r} ${0.9 * r}H${-1.2 * r}z`,
  (r) => `M0 ${-1.35 * r}L${1.35 * r} 0L0 ${1.35 * r}L${-1.35 * r} 0z`,
  (r) => `M0 ${1.25 * r}L${1.2 * r} ${-0.9 * r}H${-1.2 * r}z`,
];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/* Fixed looks for the methods that the library began with, so that a colour means the same in every report. */
const LOOKS = ["mf", "hdpmf", "hdpmf-w", "hdpmf-r", "pdpmf", "dpmf", "user-mean", "global-mean"];
const PLAIN_LINES = new Set(["hdpmf", "pdpmf", "dpmf", "hdpmf-w"]);

function look(methods, name) {
  const others = methods.map((one) => one.name).filter((one) => !LOOKS.includes(one));
  const place = LOOKS.includes(name) ? LOOKS.indexOf(name) : LOOKS.length + others.indexOf(name);
  const dash = PLAIN_LINES.has(name) ? "" : DASHES[1 + (place % (DASHES.length - 1))];
  return { colour: `c${place < 8 ? place : 8 + ((place - 8) % 9)}`, shape: SHAPES[place % SHAPES.length], dash };
}
