/** Try every way from every context of the app, in one browser. */

import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { build } from 'vite'

import { buildAll } from '../build.mjs'
import { POLICIES } from '../policies.mjs'
import { serve } from '../serve.mjs'
import type { Adversary } from './adversary.ts'
import { type Name, installed, launched, opened } from './browsers.ts'
import { LAST, TOGETHER } from './ways.ts'

const HERE = import.meta.dirname
const [SETTLE, SETTLE_ALONE] = [1000, 400]
const entry = (name: string): string => join(HERE, `${name}.ts`)
/** `own host`: a page again, where ways lead to who serves it; `headed page`: its host sends headers. */
export const HOSTS = ['page', 'own host', 'headed page', 'extension'] as const
export const CONTEXTS = ['worker', 'ui', 'carrier'] as const

/** Build the app with code in each context that tries to get out; all else is what ships. */
export const buildTrying = (out: string, policies?: typeof POLICIES): Promise<unknown> => buildAll(out, {
  entries: { worker: entry('worker'), ui: entry('ui'), carrier: entry('carrier') },
  ...(policies === undefined ? {} : { policies }),
})

/** Build it with a hole: a policy that somebody forgot half of. */
export async function buildHoled(out: string): Promise<void> {
  const { 'connect-src': _, 'default-src': __, ...page } = POLICIES.page
  await buildTrying(join(out, 'holed'), { ...POLICIES, page: page as typeof POLICIES.page })
}

/** Build a page and an extension without any policy. */
export async function buildFree(out: string): Promise<void> {
  const lib = { entry: entry('free'), formats: ['iife' as const], name: 'it', fileName: () => 'free.js' }
  await build({ configFile: false, logLevel: 'warn', build: { outDir: join(out, 'free'), emptyOutDir: true, lib, target: 'es2022' } })
  const page = '<!doctype html><meta charset="utf-8"><title>free</title><script src="free.js"></script><body></body>'
  writeFileSync(join(out, 'free/index.html'), page)
  for (const name of ['chromium', 'firefox']) {
    const folder = join(out, `free-${name}`)
    cpSync(join(out, 'free'), folder, { recursive: true })
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'manifest.json'), JSON.stringify({
      manifest_version: 3, name: 'free', version: '1', permissions: name === 'chromium' ? ['alarms', 'offscreen'] : ['alarms'],
      browser_specific_settings: { gecko: { id: 'free@hdpmf' } },
    }))
  }
}

export interface Found {
  /** Ways that reached the adversary where nothing stopped them. */
  readonly counted: readonly string[]
  /** Ways that got out, by context: of `page worker`, `extension ui` and so on. */
  readonly out: Readonly<Record<string, readonly string[]>>
  readonly tried: readonly number[]
}

const settleOf = (names: readonly string[]): number => (names.length > 1 ? SETTLE : SETTLE_ALONE)
const wait = (time: number): Promise<void> => new Promise((go) => setTimeout(go, time))

/** Run one browser against the adversary. */
export async function run(name: Name, folder: string, adversary: Adversary): Promise<Found> {
  const browser = await launched(name)
  const count = (path: string) => adversary.count(path)
  const servers = await Promise.all([
    ...['free', 'page', 'holed/page'].map((each) => serve(join(folder, each), 0, count)),
    serve(join(folder, 'page'), 0, count, true),
  ])
  const [free, page, holed, headed] = servers
  const tried: number[] = []
  const order = async (host: string, context: string, names: readonly string[]) => {
    const whole = `${name} ${host} ${context}`
    return { base: adversary.base, context: whole, ports: await adversary.ports(whole), names }
  }
  const tab = async (address: string, key: string, orders: object, settle: number, tries = 5): Promise<void> => {
    const done = `${adversary.base}/done/${encodeURIComponent(key)}`
    const close = await opened(browser, `${address}/index.html#${encodeURIComponent(JSON.stringify({ ...orders, done }))}`)
    const said = await adversary.done(key, 8_000)
    if (said !== null) {
      await wait(settle)
      tried.push(...[...said.values()].map(Number))
    }
    await close()
    // Firefox may lose a tab that opens beside others. What is tried twice has not become less.
    if (said === null && tries === 0) throw new Error(`nothing was heard of ${key}`)
    if (said === null) await tab(address, key, orders, settle, tries - 1)
  }
  const all = [TOGETHER, ...Object.keys(LAST).map((each) => [each])]
  const freely = async (address: string, host: string, batches: readonly (readonly string[])[]) => {
    for (const names of batches) {
      const [page, worker] = await Promise.all([order(host, 'page', names), order(host, 'worker', names)])
      await tab(address, `${name} ${host} ${names[0]}`, names.length > 1 ? { page, worker } : { page }, settleOf(names))
    }
  }
  // One after another: the newest tab stops the one before.
  const walled = async (address: string, host: string, batches = all, base = adversary.base) => {
    for (const names of batches) {
      const orders = await Promise.all(CONTEXTS.map((context) => order(host, context, names)))
      const [worker, ui, carrier] = orders.map((each) => ({ ...each, base }))
      await tab(address, `${name} ${host} ${names[0]}`, { worker, ui, carrier }, settleOf(names))
    }
  }
  try {
    const extended = async () => {
      const [app, bare] = [join(folder, `extension-${name}`), join(folder, `free-${name}`)]
      await walled(await installed(browser, name, app), 'extension')
      await freely(await installed(browser, name, bare), 'free extension', [TOGETHER])
    }
    const paged = async () => {
      await walled(page.address, 'page')
      await walled(page.address, 'own host', [TOGETHER], page.address)
      await walled(headed.address, 'headed page', [TOGETHER])
      await walled(holed.address, 'holed page', [TOGETHER])
    }
    await Promise.all([freely(free.address, 'free page', all), paged(), extended()])
    await wait(SETTLE)
  } finally {
    await browser.close()
    servers.forEach((each) => each.close())
  }
  const of = (host: string, context: string) => adversary.of(`${name} ${host} ${context}`)
  const counted = new Set(['free page', 'free extension'].flatMap((host) => [...of(host, 'page'), ...of(host, 'worker')]))
  const out = Object.fromEntries([...HOSTS, 'holed page'].flatMap((host) =>
    CONTEXTS.map((context) => [`${host} ${context}`, of(host, context)])))
  return { counted: [...counted].sort(), out, tried }
}
