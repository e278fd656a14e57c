/** Stands where the app's worker does, and tries to get out; so do the cells, at its word. */

import { type Order, tried } from './ways.ts'

export interface Orders { readonly worker: Order; readonly ui: Order; readonly carrier: Order; readonly done: string }

addEventListener('message', async ({ data }) => {
  const { worker, ui, carrier, done } = JSON.parse(decodeURIComponent(data.link)) as Orders
  const drawn = new Promise<number>((go) => (data.ui.onmessage = (told: MessageEvent) => go(told.data)))
  data.ui.postMessage(ui)
  const own = await tried(worker)
  // The carrier may go out: it says that all were here.
  data.carrier.postMessage({ carrier, done: `${done}?worker=${own}&ui=${await drawn}` })
}, { once: true })
