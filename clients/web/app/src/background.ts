/**
 * The extension with no page open: an alarm wakes it, and a document that nobody sees runs the shell
 * with a worker and a carrier. Alarms come at times that depend on nothing.
 */

declare const chrome: {
  readonly action: { readonly onClicked: Event }
  readonly alarms: { create(name: string, when: object): void; readonly onAlarm: Event }
  readonly offscreen?: {
    createDocument(what: object): Promise<void>
    closeDocument(): Promise<void>
    hasDocument(): Promise<boolean>
  }
  readonly runtime: { readonly onInstalled: Event; readonly onStartup: Event }
  readonly tabs: { create(what: { url: string }): void }
}
interface Event { addListener(hear: () => unknown): void }

/** Set by the build: minutes. */
declare const EVERY: number

const wake = (): void => chrome.alarms.create('wake', { delayInMinutes: EVERY / 10, periodInMinutes: EVERY })

chrome.runtime.onInstalled.addListener(wake)
chrome.runtime.onStartup.addListener(wake)
chrome.action.onClicked.addListener(() => chrome.tabs.create({ url: 'index.html' }))
chrome.alarms.onAlarm.addListener(async () => {
  const { offscreen } = chrome
  if (offscreen === undefined) return // Firefox: the page that hears this runs the shell itself
  if (await offscreen.hasDocument()) await offscreen.closeDocument() // it hangs
  await offscreen.createDocument({
    url: 'background.html', reasons: ['WORKERS'], justification: 'reports leave with no page open',
  })
})
