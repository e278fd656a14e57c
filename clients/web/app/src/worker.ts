/** The entry of the worker: opens the store, and connects the host to its ports. */

import { type Carrier, IndexedStore, type Sealed } from '@hdpmf/core'

import { Host } from './host.ts'
import type { Act, HostInfo } from './messages.ts'

interface Begin {
  readonly ui: MessagePort
  readonly carrier: MessagePort
  readonly shell: MessagePort
  readonly link: string
  readonly host: HostInfo
}

interface Answer {
  readonly id: number
  readonly failed?: true
  readonly status: number
  readonly body: Uint8Array<ArrayBuffer>
  readonly date?: string
}

/** The carrier cell, which has the network, behind its port. */
class PortCarrier implements Carrier {
  private next = 0
  private readonly waiting = new Map<number, (answer: Answer) => void>()

  constructor(private readonly port: MessagePort) {
    port.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.waiting.get(data.id)?.(data)
      this.waiting.delete(data.id)
    }
  }

  async read(url: string, most: number): Promise<Uint8Array<ArrayBuffer>> {
    const { status, body } = await this.ask({ read: { url, most } })
    if (status !== 200) throw new Error(`status ${status}`)
    return body
  }

  async date(url: string): Promise<string | null> {
    return (await this.ask({ read: { url, most: 1024 } })).date ?? null
  }

  send({ url, headers, body }: Sealed): Promise<Answer> {
    return this.ask({ send: { url, headers, body } })
  }

  allow(origins: readonly string[]): void {
    this.port.postMessage({ origins })
  }

  private async ask(what: object): Promise<Answer> {
    const id = this.next++
    const answer = await new Promise<Answer>((resolve) => {
      this.waiting.set(id, resolve)
      this.port.postMessage({ id, ...what })
    })
    if (answer.failed) throw new Error('no answer')
    return answer
  }
}

const sleep = (seconds: number, wake: (now: () => void) => void): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000)
    wake(() => {
      clearTimeout(timer)
      resolve()
    })
  })

async function begin({ ui, carrier: port, shell, link, host: info }: Begin): Promise<void> {
  const carrier = new PortCarrier(port)
  const databases = indexedDB as unknown as Parameters<typeof IndexedStore.open>[0]
  const host = await Host.open({
    store: await IndexedStore.open(databases, 'hdpmf'),
    carrier,
    allow: (origins) => carrier.allow(origins),
    show: (view) => ui.postMessage({ view }),
    save: (name, bytes) => shell.postMessage({ save: { name, bytes } }),
    now: () => Date.now() / 1000,
    host: info,
  }, link)
  ui.onmessage = ({ data }: MessageEvent<{ act: Act }>) => void host.act(data.act)
  shell.onmessage = ({ data }: MessageEvent<{ link?: string; file?: Uint8Array }>) => {
    if (data.link !== undefined) void host.act({ do: 'link', link: data.link })
  }
  await host.run(sleep)
}

self.onmessage = ({ data }: MessageEvent<Begin>) => {
  self.onmessage = null
  void begin(data)
}
