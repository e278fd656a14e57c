/** A page without any policy, and its worker: what arrives from here is a way that counts. */

import { type Order, tried } from './ways.ts'

export interface FreeOrders { readonly page: Order; readonly worker?: Order; readonly done: string }

async function begin({ page, worker, done }: FreeOrders): Promise<void> {
  if (worker !== undefined) new Worker('free.js').postMessage({ page: worker, done: `${done} worker` })
  const count = page.names.length === 1 ? 1 : await tried(page)
  await fetch(`${done}?page=${count}`)
  if (page.names.length === 1) await tried(page)
}

if (globalThis.document === undefined) addEventListener('message', ({ data }) => begin(data))
else addEventListener('load', () => begin(JSON.parse(decodeURIComponent(location.hash.slice(1)))))
