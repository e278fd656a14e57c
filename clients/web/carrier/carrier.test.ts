import { expect, test, vi } from 'vitest'

import { Carrier, type Send } from './carrier.ts'

const HOST = 'https://recommender.example'
const ID = 'A'.repeat(43)
const FILE = `${HOST}/model-${'a'.repeat(64)}.json`

/** A carrier that may reach one origin; what it asks for, and what is answered. */
function joined(answer: () => Response = () => new Response('{}')) {
  const fetched = vi.fn(async (_url: string, _options: RequestInit) => answer())
  const { port1, port2 } = new MessageChannel()
  new Carrier(fetched).serve(port1)
  port2.postMessage({ origins: [HOST] })
  let id = 0
  const ask = (what: object): Promise<Record<string, any>> => new Promise((told) => {
    const asked = id++
    port2.addEventListener('message', ({ data }) => data.id === asked && told(data))
    port2.start()
    port2.postMessage({ id: asked, ...what })
  })
  return { ask, fetched, read: (url: string, most = 100) => ask({ read: { url, most } }) }
}

/** A report of DAP with parts of these sizes, and bytes left over. */
function report(share = 40, over = 0): Uint8Array<ArrayBuffer> {
  const sized = (size: number): number[] => [0, 0, size >> 8, size & 255, ...Array<number>(size).fill(7)]
  const encrypted = [1, 0, 32, ...Array<number>(32).fill(9), ...sized(share)]
  return Uint8Array.from([
    ...Array<number>(26).fill(0), ...sized(64), ...encrypted, ...encrypted, ...Array<number>(over).fill(0),
  ])
}

const REPORT: Send = {
  url: `${HOST}/tasks/${ID}/reports`,
  headers: { 'content-type': 'application/ppm-dap;message=upload-req', authorization: 'PrivateToken token="AAAA=="' },
  body: report(),
}
const TOKEN: Send = {
  url: `${HOST}/tokens/${ID}`,
  headers: {
    'content-type': 'application/private-token-request',
    'hdpmf-device': 'b'.repeat(43), 'hdpmf-signature': 'c'.repeat(86),
  },
  body: new Uint8Array(259),
}
const ENROLMENT: Send = {
  url: `${HOST}/participants`, headers: { 'content-type': 'application/json' }, body: new Uint8Array(300),
}

test('reads are the same for everybody', async () => {
  const { read, fetched } = joined()
  expect(await read(FILE)).toMatchObject({ status: 200, body: new Uint8Array([123, 125]) })
  const [url, { signal: _, ...options }] = fetched.mock.calls[0]
  expect([url, options]).toEqual([FILE, {
    credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer', cache: 'no-store', mode: 'cors',
  }])
})

test.each(['index.json', 'invitation.json', `catalogue-${ID}.json`, `array-${'0'.repeat(64)}.bin`, 'healthz'])(
  '%s is read', async (name) => expect((await joined().read(`${HOST}/a/path/${name}`)).status).toBe(200))

test.each([
  ['another origin', FILE.replace('recommender', 'other')],
  ['another port', FILE.replace('.example', '.example:444')],
  ['a name below', FILE.replace('recommender.', 'rating-5.recommender.')],
  ['no encryption', FILE.replace('https', 'http')],
  ['a name and a password', FILE.replace('//', '//rating:5@')],
  ['a question', `${FILE}?rating=5`],
  ['a fragment', `${FILE}#rating=5`],
  ['another file', `${HOST}/rating-5.json`],
  ['a digest that is none', `${HOST}/model-5.json`],
  ['no address', 'rating'],
])('nothing is read: %s', async (_, url) => {
  const { read, fetched } = joined()
  expect(await read(url)).toEqual({ id: 0, failed: true })
  expect(fetched).not.toHaveBeenCalled()
})

test.each([['a report', REPORT], ['a request for a token', TOKEN], ['an enrolment', ENROLMENT]])(
  '%s is sent', async (_, send) => {
    const { ask, fetched } = joined()
    expect((await ask({ send })).status).toBe(200)
    const [url, options] = fetched.mock.calls[0]
    expect([url, options.method, options.headers, options.credentials, options.redirect])
      .toEqual([send.url, 'POST', send.headers, 'omit', 'error'])
    expect(options.body).toEqual(send.body)
  })

const headed = (send: Send, headers: Record<string, string>): Send => ({ ...send, headers: { ...send.headers, ...headers } })
test.each<[string, Send]>([
  ['to another origin', { ...REPORT, url: REPORT.url.replace('recommender', 'other') }],
  ['to another place', { ...REPORT, url: `${HOST}/ratings` }],
  ['with a question', { ...REPORT, url: `${REPORT.url}?rating=5` }],
  ['of another type', headed(REPORT, { 'content-type': 'application/json' })],
  ['of the type of something else', { ...TOKEN, url: REPORT.url }],
  ['with one header more', headed(REPORT, { 'x-rating': '5' })],
  ['with one header fewer', { ...REPORT, headers: { 'content-type': REPORT.headers['content-type'] } }],
  ['with a key that is none', headed(TOKEN, { 'hdpmf-device': 'rating 5' })],
  ['a report that is longer', { ...REPORT, body: report(40, 1) }],
  ['a report that is shorter', { ...REPORT, body: report().slice(0, -1) }],
  ['a report that is nothing', { ...REPORT, body: new Uint8Array(0) }],
  ['a report with extensions', { ...REPORT, body: report().with(25, 1) as Uint8Array<ArrayBuffer> }],
  ['a request for a token of another size', { ...TOKEN, body: new Uint8Array(260) }],
  ['an enrolment that is too long', { ...ENROLMENT, body: new Uint8Array(8193) }],
])('nothing is sent: %s', async (_, send) => {
  const { ask, fetched } = joined()
  expect(await ask({ send })).toEqual({ id: 0, failed: true })
  expect(fetched).not.toHaveBeenCalled()
})

test('answers are cut one byte behind what was wanted, and no more is read', async () => {
  let sent = 0
  const endless = () => new Response(new ReadableStream({
    pull: (controller) => {
      sent += 1
      controller.enqueue(new Uint8Array(64))
    },
  }))
  expect((await joined(endless).read(FILE, 100)).body).toHaveLength(101)
  expect(sent).toBeLessThan(5)
  expect((await joined(endless).ask({ send: REPORT })).body).toHaveLength(1025)
})

test('a redirect, or nobody there, is no answer', async () => {
  const { read } = joined(() => { throw new TypeError('redirect') })
  expect(await read(FILE)).toEqual({ id: 0, failed: true })
})

test('an answer has its status, and its date where the server tells it', async () => {
  const date = 'Thu, 19 Nov 2026 23:00:00 GMT'
  const told = await joined(() => new Response(null, { status: 503, headers: { date } })).read(`${HOST}/healthz`)
  expect(told).toEqual({ id: 0, status: 503, body: new Uint8Array(0), date })
})

test('who has left is not reached any more', async () => {
  const { ask, read } = joined()
  await ask({ origins: [] , read: { url: FILE, most: 1 } })
  expect(await read(FILE)).toEqual({ id: 1, failed: true })
})
