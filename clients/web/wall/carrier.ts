/** Stands where the carrier's code does, and tries to get out; it may by `fetch`, and so says that all were here. */

import { tried } from './ways.ts'

addEventListener('message', ({ data: { core } }) => {
  core.onmessage = async ({ data: { carrier, done } }: MessageEvent) => {
    const alone = carrier.names.length === 1 // it may be the end of this document
    const count = alone ? 1 : await tried(carrier)
    await fetch(`${done}&carrier=${count}`)
    if (alone) await tried(carrier)
  }
}, { once: true })
