/** The entry of the worker: opens the store, and connects the host to its ports. */

import { type Carrier, IndexedStore, type Locked, type Sealed, type State } from '@hdpmf/core'

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

/** With no page open, the shell ends where there is nothing to do for so many seconds. */
const REST = 30

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

async function begin({ ui, carrier: port, shell, link, host: info }: Begin): Promise<void> {
  const carrier = new PortCarrier(port)
  const databases = indexedDB as unknown as Parameters<typeof IndexedStore.open>[0]
  let host: Host | null = null
  let unlock: (passphrase: string) => void = () => undefined
  ui.onmessage = ({ data: { act } }: MessageEvent<{ act: Act }>) => {
    if (act.do === 'unlock') unlock(act.passphrase)
    else void host?.act(act)
  }
  host = await Host.open({
    store: await IndexedStore.open<State | Locked>(databases, 'device'),
    carrier,
    allow: (origins) => carrier.allow(origins),
    show: (view) => ui.postMessage({ view }),
    save: (name, bytes) => shell.postMessage({ save: { name, bytes } }),
    choose: () => shell.postMessage({ choose: true }),
    passphrase: () => {
      shell.postMessage({ rest: Infinity }) // nothing happens before somebody is here
      return new Promise((resolve) => { unlock = resolve })
    },
    now: () => Date.now() / 1000,
    host: info,
  }, link)
  shell.onmessage = ({ data }: MessageEvent<{ link?: string; file?: Uint8Array<ArrayBuffer> }>) => {
    if (data.link !== undefined) void host.opened(data.link)
    if (data.file !== undefined) void host.restore(data.file)
  }
  await host.run((seconds, wake) => new Promise((resolve) => {
    if (seconds > REST) shell.postMessage({ rest: seconds })
    const timer = setTimeout(resolve, seconds * 1000)
    wake(() => {
      clearTimeout(timer)
      resolve()
    })
  }))
}

self.onmessage = ({ data }: MessageEvent<Begin>) => {
  self.onmessage = null
  void begin(data)
}
