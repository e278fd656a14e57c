/** The way out, by Node's own fetch. */

/** @param {string} url @param {RequestInit} [how] */
const ask = (url, how) => fetch(url, { redirect: 'error', signal: AbortSignal.timeout(30_000), ...how })

/** @type {import('@hdpmf/core').Carrier} */
export const carrier = {
  async read(url, most) {
    const answer = await ask(url)
    if (answer.status !== 200 || answer.body === null) throw new Error(`${url}: ${answer.status}`)
    const parts = []
    let size = 0
    for await (const part of answer.body) {
      parts.push(part)
      size += part.length
      if (size > most) break // what is too long is refused for that
    }
    return new Uint8Array(Buffer.concat(parts))
  },

  async date(url) {
    return (await ask(url)).headers.get('date')
  },

  async send({ url, headers, body }) {
    const answer = await ask(url, { method: 'POST', headers, body })
    return { status: answer.status, body: new Uint8Array(await answer.arrayBuffer()) }
  },
}
