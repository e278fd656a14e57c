/** A carrier cell with a made-up world in it, instead of a network: for trials, tests and screenshots. */

import { MadeUp } from './world.ts'

interface Asked {
  readonly id?: number
  readonly read?: { readonly url: string; readonly most: number }
  readonly send?: { readonly url: string; readonly body: Uint8Array<ArrayBuffer> }
}

/** Set by tests: the number of the model, another one on another day; and how many titles there are. */
const { model = 1, items = 600 } = globalThis as { model?: number; items?: number }
const world = MadeUp.begin({ now: Date.now() / 1000, task: 8 * 60, items, model })

addEventListener('message', ({ data: { core } }: MessageEvent<{ core: MessagePort }>) => {
  core.onmessage = async ({ data: { id, read, send } }: MessageEvent<Asked>) => {
    if (id === undefined) return
    const made = await world
    const told = read !== undefined
      ? await made.read(read.url, read.most).then((body) => ({ status: 200, body }), () => ({ failed: true }))
      : send !== undefined ? await made.send(send) : { failed: true }
    core.postMessage({ id, ...told })
  }
}, { once: true })
