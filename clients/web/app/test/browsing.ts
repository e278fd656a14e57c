/** The app as it is built, with a made-up carrier, in a browser that is on this machine. */

import { existsSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import puppeteer, { type Browser, type Frame, type Page } from 'puppeteer-core'

import { buildAll } from '../../build.mjs'
import { serve } from '../../serve.mjs'

export const BROWSERS = {
  chrome: process.env.CHROMIUM ?? '/usr/bin/chromium',
  firefox: process.env.FIREFOX ?? '/usr/bin/firefox-esr',
} as const
export const has = (browser: keyof typeof BROWSERS): boolean => existsSync(BROWSERS[browser])

export interface Served {
  readonly address: string
  close(): void
}

export async function served(): Promise<Served> {
  const out = await mkdtemp(join(tmpdir(), 'app-'))
  await buildAll(out, { entries: { carrier: join(import.meta.dirname, '../demo/carrier.ts') } })
  return serve(join(out, 'page'))
}

export const started = (browser: keyof typeof BROWSERS): Promise<Browser> =>
  puppeteer.launch({
    browser, executablePath: BROWSERS[browser], headless: true, acceptInsecureCerts: true,
    ...(browser === 'chrome' ? { args: ['--no-sandbox'], pipe: true } : {}),
  })

export interface Opened {
  readonly page: Page
  readonly ui: Frame
  readonly errors: string[]
}

/** Open the app on a new device; `#LINK` is how an invitation reaches it. */
export async function opened(browser: Browser, address: string, {
  width = 390, height = 844, dark = false, link = '', language = 'en', items = 600,
} = {}): Promise<Opened> {
  const page = await (await browser.createBrowserContext()).newPage()
  const errors: string[] = []
  page.on('pageerror', (error) => errors.push(String(error)))
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()) })
  await page.setViewport({ width, height, deviceScaleFactor: 1 })
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]).catch(() => undefined)
  await page.evaluateOnNewDocument((tag: string, count: number) => {
    Object.defineProperty(navigator, 'language', { get: () => tag })
    Object.assign(globalThis, { items: count })
  }, language, items)
  await page.goto(`${address}/${link === '' ? '' : `#${link}`}`)
  const ui = await cell(page, 'ui.html')
  await ui.waitForSelector('h1')
  return { page, ui, errors }
}

/** Return the frame of a cell, once it is there. */
export async function cell(page: Page, name: string): Promise<Frame> {
  for (let tries = 0; tries < 200; tries++) {
    const found = page.frames().find((frame) => frame.url().endsWith(name))
    if (found !== undefined) return found
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`no ${name}`)
}

/** Change what the store has, as another day would: `how` is a function's text. */
export const changed = (page: Page, how: string): Promise<unknown> => page.evaluate(`new Promise((resolve, reject) => {
  const opening = indexedDB.open('device', 1)
  opening.onerror = reject
  opening.onsuccess = () => {
    const table = opening.result.transaction('device', 'readwrite').objectStore('device')
    const asked = table.get('state')
    asked.onsuccess = () => {
      const { state, version } = asked.result
      table.put({ state: (${how})(state), version: version + 1 }, 'state').onsuccess = () => { opening.result.close(); resolve() }
    }
  }
})`)

/** The text of a function that writes two reports into the ledger, of a day ago. */
export const REPORTED = `(state) => {
  const now = Math.floor(Date.now() / 1000)
  for (const each of Object.values(state.kept.visits)) each.at -= 86400
  const ledger = [['linear', 96e6, 294e6], ['pairs', 52e6, 104e6]].map(([part, none, other], at) => ({
    at: now - 86400 + 3000 * at, recommender: state.joined[0].invitation.address, task: String(at + 3).repeat(64), part, price: none,
    wish: 1000, cost: { none, other, grain: 40 }, zeros: false }))
  return { ...state, ledger, wish: 1000, kept: { ...state.kept, answer: true } }
}`
