/**
 * The carrier: the only code with a network. It has no ratings. It reads what the wire publishes and
 * sends what the wire sends (spec/wire.md, 1), to origins that the person has joined, and nothing else.
 */

/** Requests have no cookies, no Referer, no cache, and go where they say. */
const ALIKE = {
  credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer', cache: 'no-store', mode: 'cors',
} as const
const PATIENCE = 60_000
const MOST_READ = 512 * 2 ** 20
const MOST_TOLD = 1024 // bytes of an answer to what was sent: a token has 256
const FILES = /\/(index|invitation|(catalogue|keys|model|task)-[\w-]{43,64})\.json$|\/array-[\w-]{43,64}\.bin$|\/healthz$/

/** What may be sent: where, what headers it has, and whether the body is one of this kind. */
const SENDINGS = [
  {
    path: /\/participants$/,
    headers: { 'content-type': /^application\/json$/ },
    fits: (body: Uint8Array) => body.length <= 8192,
  },
  {
    path: /\/tokens\/[\w-]{43}$/,
    headers: {
      'content-type': /^application\/private-token-request$/,
      'hdpmf-device': /^[\w-]{43}$/, 'hdpmf-signature': /^[\w-]{86}$/,
    },
    fits: (body: Uint8Array) => body.length === 2 + 1 + 256,
  },
  {
    path: /\/tasks\/[\w-]{43}\/reports$/,
    headers: {
      'content-type': /^application\/ppm-dap;message=upload-req$/,
      authorization: /^PrivateToken token="[\w-]{1,1000}={0,2}"$/,
    },
    fits: isReport,
  },
]

/** Whether these bytes are one report: nothing is before, between or after its parts. */
function isReport(body: Uint8Array): boolean {
  const view = new DataView(body.buffer, body.byteOffset, body.length)
  try {
    let at = 16 + 8 + 2 // id, time, no extensions
    at += 4 + view.getUint32(at) // public share
    for (let share = 0; share < 2; share++) {
      at += 1 // the key's id
      at += 2 + view.getUint16(at)
      at += 4 + view.getUint32(at)
    }
    return at === body.length && view.getUint16(24) === 0
  } catch {
    return false // it ends too early
  }
}

export interface Read { readonly url: string; readonly most: number }
export interface Send {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array<ArrayBuffer>
}
export interface Told { readonly status: number; readonly body: Uint8Array; readonly date?: string }

export class Carrier {
  private origins: ReadonlySet<string> = new Set()

  constructor(private readonly fetch: (url: string, options: RequestInit) => Promise<Response>) {}

  /** Answer what comes by the worker's port. */
  serve(port: MessagePort): void {
    port.onmessage = async ({ data }) => {
      if (Array.isArray(data.origins)) this.origins = new Set(data.origins)
      if (typeof data.id !== 'number') return
      try {
        const told = await (data.read === undefined ? this.send(data.send) : this.read(data.read))
        port.postMessage({ id: data.id, ...told })
      } catch {
        port.postMessage({ id: data.id, failed: true })
      }
    }
  }

  read({ url, most }: Read): Promise<Told> {
    const place = this.placeOf(url)
    if (!FILES.test(place.pathname) || !(most <= MOST_READ)) throw new TypeError('nobody publishes that')
    return this.told(place, {}, most)
  }

  send({ url, headers, body }: Send): Promise<Told> {
    const place = this.placeOf(url)
    const kind = SENDINGS.find(({ path }) => path.test(place.pathname))
    const wanted = Object.entries(kind?.headers ?? {})
    if (
      kind === undefined || Object.keys(headers).length !== wanted.length
      || !wanted.every(([name, value]) => value.test(headers[name] ?? '')) || !kind.fits(body)
    ) throw new TypeError('nobody sends that')
    return this.told(place, { method: 'POST', headers, body }, MOST_TOLD)
  }

  /** Return an address at an origin that the person has joined; it has a path alone. */
  private placeOf(url: string): URL {
    const place = new URL(url)
    if (!this.origins.has(place.origin) || place.href !== place.origin + place.pathname) {
      throw new TypeError('nobody joined that')
    }
    return place
  }

  private async told(place: URL, options: RequestInit, most: number): Promise<Told> {
    const signal = AbortSignal.timeout(PATIENCE)
    const answer = await this.fetch(place.href, { ...ALIKE, ...options, signal })
    const date = answer.headers.get('date')
    const body = await firstOf(answer.body, most)
    return { status: answer.status, body, ...(date === null ? {} : { date }) }
  }
}

/** Read at most one byte more than `most`, so that whoever reads it sees that it is too long. */
async function firstOf(stream: Response['body'], most: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let size = 0
  const reader = stream?.getReader()
  while (reader !== undefined && size <= most) {
    const { done, value } = await reader.read()
    if (done) break
    parts.push(value.subarray(0, most + 1 - size))
    size += parts.at(-1)!.length
  }
  if (size > most) await reader?.cancel()
  const whole = new Uint8Array(size)
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0)
  return whole
}
