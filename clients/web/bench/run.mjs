/**
 * Print the processor time that the core takes, in Node and in both browsers: `npm run bench` in clients/web (Linux).
 *
 * In browsers that of all their processes counts: compiling and collecting garbage, but drawing and idling as well.
 */

import { existsSync, readFileSync, readdirSync } from 'node:fs'

import puppeteer from 'puppeteer-core'
import { build } from 'vite'

const RUNS = 5
const TICKS = 100 // a second

const [{ output: [{ code }] }] = await build({
  configFile: false, logLevel: 'silent',
  build: { write: false, target: 'es2022', lib: { entry: `${import.meta.dirname}/work.ts`, formats: ['iife'], name: 'bench' } },
})

/** Milliseconds that a process and all that it started have had. */
function spentBy(pid) {
  const stats = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    try {
      const [, id, rest] = /^(\d+) \(.*\) (.*)$/s.exec(readFileSync(`/proc/${name}/stat`, 'utf8'))
      const fields = rest.split(' ')
      return [{ id: Number(id), parent: Number(fields[1]), time: Number(fields[11]) + Number(fields[12]) }]
    } catch {
      return [] // it has just ended
    }
  })
  const ours = new Set([pid])
  for (let before = 0; before < ours.size;) {
    before = ours.size
    for (const { id, parent } of stats) if (ours.has(parent)) ours.add(id)
  }
  return stats.reduce((all, { id, time }) => all + (ours.has(id) ? time : 0), 0) * (1000 / TICKS)
}

/** Print the first run's time, and the least of some more. */
async function print(where, evaluate, spent) {
  for (const name of await evaluate('Object.keys(bench.works)')) {
    const times = []
    for (let run = 0; run < RUNS; run++) {
      const before = spent()
      await evaluate(`bench.works[${JSON.stringify(name)}]()`)
      times.push(Math.round(spent() - before))
    }
    console.log(`${where.padEnd(10)}${name.padEnd(44)}first ${String(times[0]).padStart(6)} ms, least ${String(Math.min(...times)).padStart(6)} ms`)
  }
}

;(0, eval)(`${code}; globalThis.bench = bench`)
const own = () => process.cpuUsage()
await print('node', async (text) => (0, eval)(text), () => (own().user + own().system) / 1000)
for (const [browser, executablePath] of [['chrome', '/usr/bin/chromium'], ['firefox', '/usr/bin/firefox-esr']]) {
  if (!existsSync(executablePath)) continue
  const args = browser === 'chrome' ? ['--no-sandbox'] : []
  const opened = await puppeteer.launch({ browser, executablePath, args, protocolTimeout: 600_000 })
  try {
    const page = await opened.newPage()
    await page.evaluate(`${code}; globalThis.bench = bench; 0`)
    await print(browser, (text) => page.evaluate(text), () => spentBy(opened.process().pid))
  } finally {
    await opened.close()
  }
}
