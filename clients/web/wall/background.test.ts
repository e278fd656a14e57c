import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, test } from 'vitest'

import { buildAll } from '../build.mjs'
import { Adversary } from './adversary.ts'
import { NAMES, installed, launched, opened } from './browsers.ts'

const MINUTE = 60_000
const EVERY = 0.04 // minutes between alarms; 10 in what ships
const folder = mkdtempSync(join(tmpdir(), 'background-'))

/** Stands where the app's worker does: a report every .2 s, by the carrier; with no page open it rests soon. */
const worker = (base: string): string => `
addEventListener('message', ({ data: { carrier, shell, link } }) => {
  const own = crypto.getRandomValues(new Uint8Array(16))
  const sized = (size) => [0, 0, 0, size, ...Array(size).fill(0)]
  const encrypted = [1, 0, 1, 0, ...sized(8)]
  const body = Uint8Array.from([...own, ...Array(10).fill(0), ...sized(link.length), ...encrypted, ...encrypted])
  const headers = { 'content-type': 'application/ppm-dap;message=upload-req', authorization: 'PrivateToken token="AA=="' }
  carrier.postMessage({ origins: [${JSON.stringify(base)}] })
  let id = 0
  const send = () => carrier.postMessage({ id: id++, send: { url: ${JSON.stringify(base)} + '/tasks/' + 'A'.repeat(43) + '/reports', headers, body } })
  setInterval(send, 200)
  carrier.onmessage = ({ data }) => { if (data.id === 2 && link === '') shell.postMessage({ rest: 600 }) }
})
`
let hosts: Record<string, Adversary>
beforeAll(async () => {
  hosts = Object.fromEntries(await Promise.all(NAMES.map(async (name) => {
    const host = await Adversary.waiting()
    const entry = join(folder, `${name}.ts`)
    writeFileSync(entry, worker(host.base))
    await buildAll(join(folder, name), { entries: { worker: entry }, every: EVERY })
    return [name, host] as const
  })))
}, MINUTE)
afterAll(() => {
  Object.values(hosts).forEach((host) => host.close())
  rmSync(folder, { recursive: true })
})

/** Who sent: a worker each, and whether it was that of a page. */
const senders = (host: Adversary, since = 0): string[] =>
  [...new Set(host.reports.filter(({ at }) => at > since)
    .map(({ body }) => `${body.readUInt32BE(26) > 0 ? 'page' : 'background'} ${body.subarray(0, 4).toString('hex')}`))]

const until = async (what: () => boolean): Promise<void> => {
  for (const end = Date.now() + 45_000; !what(); await new Promise((go) => setTimeout(go, 50))) {
    if (Date.now() > end) throw new Error('it does not happen')
  }
}
const wait = (time: number): Promise<void> => new Promise((go) => setTimeout(go, time))

test.concurrent.for(NAMES)('reports leave with no page open, and never from two places: %s', { timeout: 2 * MINUTE }, async (name) => {
  const host = hosts[name]
  // Firefox ends a background page 30 s after its last event; here sooner.
  const browser = await launched(name, { 'extensions.background.idle.timeout': 800 })
  try {
    const address = await installed(browser, name, join(folder, name, `extension-${name}`))
    await until(() => senders(host).length >= 3)
    const close = await opened(browser, `${address}/index.html#page`)
    await until(() => senders(host).some((each) => each.startsWith('page')))
    await wait(1000)
    const begin = Date.now()
    await wait(3 * EVERY * MINUTE)
    expect(senders(host, begin)).toEqual([expect.stringMatching(/^page/)])
    if (name === 'chromium') { // Firefox's tab is out of sight, see browsers.ts
      await close()
      const closed = Date.now() + 500
      await until(() => senders(host, closed).some((each) => each.startsWith('background')))
    }
  } finally {
    await browser.close()
  }
})
