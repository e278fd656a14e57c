/**
 * A made-up world: a recommender and two servers, as a carrier that has no network.
 *
 * Everything it publishes is signed and numbered as the wire wants it, and it gives real tokens; it
 * counts what it is sent, and opens nothing.
 */

import type { Carrier, Sealed, Server } from '@hdpmf/core'

import {
  canonical, fileDigest, fromBase64, labelledDigest, sha256, toBase64, toHex,
} from '../../core/src/documents.ts'
import { power } from '../../core/src/field.ts'
import { publicOf, signed, utf8 } from '../../core/src/platform.ts'
import { taskId } from '../../core/src/task.ts'
import { type Made, madeTitles } from './titles.ts'

type Bytes = Uint8Array<ArrayBuffer>

const SPKI = '30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d' +
  '010108300b0609608648016503040202a2030201300382010f003082010a0282010100'
const DIRECTIONS = 12

/** Numbers from 0 to 1, the same each time. */
export function numbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

export interface Wishes {
  readonly name?: string
  readonly items?: number
  /** Unix seconds. */
  readonly now: number
  /** The number of the model that is there from the beginning; 0: there is none. */
  readonly model?: number
  /** The task that is under way takes so many seconds; 0: there is none. */
  readonly task?: number
}

export class MadeUp implements Carrier {
  readonly sent: { readonly url: string; readonly size: number }[] = []
  readonly files = new Map<string, Bytes>()
  readonly made: readonly Made[]
  readonly address = 'https://films.example'
  link = ''
  private index: Record<string, unknown> = {}
  private servers!: { readonly leader: Server; readonly helper: Server }
  private fingerprint = ''
  private rsa!: { readonly n: bigint; readonly d: bigint; readonly encoded: string }

  private constructor(private readonly wishes: Wishes) {
    this.made = madeTitles(wishes.items ?? 240)
  }

  static async begin(wishes: Wishes): Promise<MadeUp> {
    const world = new MadeUp(wishes)
    await world.publishAll()
    return world
  }

  private async publishAll(): Promise<void> {
    const { name = 'Lantern Film Club', now, model = 1, task = 0 } = this.wishes
    const signing = [secretOf('leader'), secretOf('helper')] as const
    const card = async (organisation: string, url: string, key: Bytes): Promise<Server> => ({
      authority: '', identity: toBase64(secretOf(organisation)), organisation, signing: await publicOf(key), url,
    })
    this.servers = {
      leader: await card('Civic Sums', 'https://sums.civic.example', signing[0]),
      helper: await card('University of Elbe', 'https://zwei.elbe.example', signing[1]),
    }
    const invitation = { address: this.address, authority: '', name, servers: this.servers }
    this.link = `${this.address}/join#${fileDigest(this.put('invitation.json', utf8(canonical(invitation))))}`
    const catalogue = await this.catalogue()
    const keys = await this.keys(signing)
    this.index = { catalogue, keys, model: '', name, servers: '', task: '', type: 'index', version: 2 }
    if (model > 0) this.publishModel(model)
    if (task > 0) await this.ask(now, task)
    this.publishIndex()
  }

  private put(name: string, data: Bytes): Bytes {
    this.files.set(`${this.address}/${name}`, data)
    return data
  }

  private publishIndex(): void {
    this.put('index.json', utf8(canonical(this.index)))
  }

  private document(kind: string, value: object): string {
    const data = utf8(canonical(value))
    const digest = kind === 'task' ? toBase64(taskId(data)) : fileDigest(data)
    this.put(`${kind}-${digest}.json`, data)
    return digest
  }

  private async catalogue(): Promise<string> {
    const { made } = this
    const table = {
      audiences: [], genres: made.map(({ genres }) => genres), ids: made.map((_, at) => String(at + 1)), integer_ids: true,
      scale_high: 5, scale_low: 1, scale_step: 1, titles: made.map(({ title }) => title), type: 'items', version: 2,
      years: made.map(({ year }) => year),
    }
    const lines = table.ids.map((id, at) => `\n${canonical([id, table.titles[at], table.genres[at], table.years[at]])}`)
    const content = toBase64(sha256(utf8(canonical([true, 1, 5, 1]) + lines.join(''))))
    const link = { content, items: made.length, number: 1, previous: '', retired: [], signature: '' }
    const secret = secretOf('catalogue')
    const digest = labelledDigest('catalogue version', utf8(canonical(link)))
    this.fingerprint = toBase64(digest)
    const links = [{ ...link, signature: toBase64(await signed(secret, digest)) }]
    return this.document('catalogue', { key: await publicOf(secret), links, table, type: 'catalogue', version: 2 })
  }

  private async keys(signing: readonly [Bytes, Bytes]): Promise<string> {
    const list = async (secret: Bytes): Promise<object> => {
      // Any 32 bytes are a key of X25519; nobody opens what is encrypted to it.
      const config = new Uint8Array([1, 0, 0x20, 0, 1, 0, 1, 0, 32, ...secretOf('key')])
      const keys = {
        configs: toBase64(new Uint8Array([0, config.length, ...config])), not_after: this.wishes.now + 400 * 86_400, serial: 1,
      }
      const signature = toBase64(await signed(secret, labelledDigest('key list', utf8(canonical(keys)))))
      return { keys, signature, type: 'key list', version: 2 }
    }
    return this.document('keys', { helper: await list(signing[1]), leader: await list(signing[0]), type: 'keys', version: 2 })
  }

  /** Publish a model; another number makes another one, so that there is something new. */
  publishModel(number: number): void {
    const next = numbers(100 + number)
    const count = this.made.length
    const heads = Math.min(count, 300)
    const normal = (): number => next() + next() + next() + next() - 2
    const fame = this.made.map((_, at) => 4000 * (1 + ((at + 7 * number) % count)) ** -0.62)
    const latent = this.made.map(({ genres, mood, year }) =>
      Array.from({ length: DIRECTIONS }, (_, at) =>
        genres.reduce((all, genre) => all + (((genre.charCodeAt(0) * 7 + genre.length * (at + 3)) % 9) - 4) / 5, 0) +
        (mood === at % 5 ? 1 : 0) + ((year > 1990) === (at % 2 === 0) ? 0.4 : 0) + 0.3 * normal()))
    const eighths = Int8Array.from(latent.slice(0, heads).flat().map((each) => Math.max(-127, Math.min(127, Math.round(each * 28)))))
    const unit = Float32Array.from({ length: DIRECTIONS }, () => 1 / 110)
    const arrays = {
      bias: this.array('f4', [count], Float32Array.from(fame, (each) => 0.12 * Math.log(each / 300) + 0.25 * normal())),
      variance: this.array('f4', [count], Float32Array.from(fame, (each) => 1 / (4 + each / 20))),
      popularity: this.array('f4', [count], Float32Array.from(fame)),
      'popularity-margin': this.array('f4', [count], Float32Array.from(fame, () => 180)),
      heads: this.array('u4', [heads], Uint32Array.from({ length: heads }, (_, at) => at)),
      encode: this.array('i1', [heads, DIRECTIONS], eighths),
      'encode-unit': this.array('f4', [DIRECTIONS], unit),
      decode: this.array('i1', [heads, DIRECTIONS], eighths),
      'decode-unit': this.array('f4', [DIRECTIONS], unit),
    }
    this.index.model = this.document('model', {
      arrays, catalogue: this.fingerprint, mean: 3.55, reports: [8200, 8100], run: toBase64(new Uint8Array(16).fill(number)),
      type: 'model', version: 2,
    })
    this.publishIndex()
  }

  private array(kind: string, shape: number[], values: ArrayBufferView): object {
    const data = new Uint8Array(values.buffer as ArrayBuffer)
    const digest = fileDigest(data)
    this.put(`array-${digest}.bin`, data)
    return { kind, sha256: digest, shape }
  }

  /** Ask for sums, for so many seconds. */
  async ask(now: number, seconds: number, part: 'linear' | 'pairs' = 'linear'): Promise<void> {
    this.rsa ??= await rsaKey()
    const count = this.made.length
    const common = { bound: part === 'linear' ? 2 ** 20 - 1 : 2 ** 24 - 1, cap: 16 }
    const heads = Array.from({ length: Math.min(count, 60) }, (_, at) => at)
    const sums = part === 'linear'
      ? { ...common, bits: 8, items: count, presence: 3300, type: 'linear', values: 5200 }
      : { ...common, bits: 10, deviation: 5.2e7, heads, type: 'pairs', weights: heads.map(() => 1024) }
    const begin = Math.floor(now)
    const any = (value: number): Bytes => new Uint8Array(32).fill(value)
    this.index.task = this.document('task', {
      asked: 65_536, begin, catalogue: this.fingerprint, collector: {
        hpke: toBase64(new Uint8Array([1, 0, 0x20, 0, 1, 0, 1, 0, 32, ...any(9)])), identity: toBase64(any(8)),
        organisation: this.wishes.name ?? 'Lantern Film Club',
      }, end: begin + seconds, minimum: 100, precision: 1, run: toBase64(new Uint8Array(16).fill(1)), servers: this.servers, sums,
      token_key: this.rsa.encoded, type: 'task', version: 2,
    })
    this.publishIndex()
  }

  async read(url: string, most: number): Promise<Bytes> {
    const data = this.files.get(url)
    if (data === undefined) throw new Error('not there')
    return data.slice(0, most + 1)
  }

  async date(_: string): Promise<string | null> {
    return null
  }

  async send({ url, body }: Pick<Sealed, 'url' | 'body'>): Promise<{ readonly status: number; readonly body: Bytes }> {
    this.sent.push({ url, size: body.length })
    if (url.includes('/tokens/')) {
      const blinded = BigInt(`0x${toHex(body.slice(3))}`)
      const answer = power(blinded, this.rsa.d, this.rsa.n).toString(16).padStart(512, '0')
      return { status: 200, body: fromHex(answer) }
    }
    return { status: url.endsWith('/participants') ? 201 : 200, body: new Uint8Array(0) }
  }
}

/** The same each time, so that a link is good for another day. */
const secretOf = (name: string): Bytes => sha256(utf8(`made up ${name}`))

const fromHex = (text: string): Bytes => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16))

async function rsaKey(): Promise<{ readonly n: bigint; readonly d: bigint; readonly encoded: string }> {
  const pair = await crypto.subtle.generateKey(
    { name: 'RSA-PSS', modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1), hash: 'SHA-384' }, true, ['sign', 'verify'])
  const { n = '', d = '' } = await crypto.subtle.exportKey('jwk', pair.privateKey)
  const modulus = toHex(fromBase64(n))
  const number = (spelled: string): bigint => BigInt(`0x${toHex(fromBase64(spelled))}`)
  return { n: number(n), d: number(d), encoded: toBase64(fromHex(`${SPKI}${modulus}0203010001`)) }
}
