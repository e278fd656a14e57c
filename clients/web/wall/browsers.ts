/** Both browsers, as Debian has them, and the app in each as a page and as an extension. */

import { existsSync } from 'node:fs'

import puppeteer, { type Browser, type Page } from 'puppeteer-core'

export type Name = 'chromium' | 'firefox'
export const NAMES: readonly Name[] = ['chromium', 'firefox']

/** Firefox's extensions have an address of their own on every machine; here it is known beforehand. */
const UUIDS = { 'app@hdpmf': '11111111-2222-4333-8444-555555555555', 'free@hdpmf': '11111111-2222-4333-8444-666666666666' }

function path(name: Name): string {
  const found = { chromium: '/usr/bin/chromium', firefox: '/usr/bin/firefox-esr' }[name]
  if (!existsSync(found)) throw new Error(`${found} is missing: apt-get install chromium firefox-esr`)
  return found
}

export const launched = (name: Name, preferences: object = {}): Promise<Browser> => name === 'chromium'
  ? puppeteer.launch({
    executablePath: path(name), pipe: true, enableExtensions: true,
    // As people have it: what puppeteer turns off would be closed by puppeteer, not by the app.
    ignoreDefaultArgs: ['--disable-background-networking'],
    args: [
      '--no-sandbox', '--ignore-certificate-errors', '--allow-loopback-in-peer-connection',
      // The adversary is on loopback here, and somewhere else in the world.
      '--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebRTC',
    ],
  })
  : puppeteer.launch({
    browser: 'firefox', executablePath: path(name), acceptInsecureCerts: true,
    args: ['--remote-allow-system-access'], // without it no extension's page can be opened
    extraPrefsFirefox: {
      'extensions.webextensions.uuids': JSON.stringify(UUIDS),
      'dom.disable_open_during_load': false,
      'network.http.speculative-parallel-limit': 6,
      'network.prefetch-next': true,
      'network.preconnect': true,
      'media.peerconnection.ice.loopback': true,
      ...preferences,
    },
  })

/** Install an extension; return the address of its files. */
export async function installed(browser: Browser, name: Name, folder: string): Promise<string> {
  const id = await browser.installExtension(folder)
  return name === 'chromium' ? `chrome-extension://${id}` : `moz-extension://${UUIDS[id as keyof typeof UUIDS]}`
}

/** Firefox opens a tab beside the newest, which another way may just have closed. */
async function fresh(browser: Browser, tries = 10): Promise<Page> {
  try {
    return await browser.newPage()
  } catch (error) {
    if (tries === 0) throw error
    await new Promise((go) => setTimeout(go, 100))
    return fresh(browser, tries - 1)
  }
}

/** Open an address in a tab of its own. Firefox loses sight of a tab that shows an extension. */
export async function opened(browser: Browser, address: string): Promise<() => Promise<void>> {
  const page = await fresh(browser)
  page.goto(address).catch(() => {})
  return () => page.close().catch(() => {})
}
