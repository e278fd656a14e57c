/**
 * What recommenders publish: which files a device reads, and what it takes of them. None of it is trusted, and what is
 * refused is refused for what is public alone.
 */

import {
  DIGEST_SIZE, NotNowError, ProtocolError, type Read, VERSION, canonical, fileDigest, flag, fromBase64, isSame,
  labelledDigest, list, named, numberFrom, object, only, orNull, readDocument, require, text, toBase64, whole,
} from './documents.ts'
import { sha256 as running } from '@noble/hashes/sha2.js'
import { type Bytes, utf8, verifies } from './platform.ts'
import { isChosen } from './rows.ts'
import { DAY, type Joined, NONE, type State, readToday, withJoined } from './state.ts'
import { type Server, type Task, readTask, refusedBy, taskId } from './task.ts'

const BYTES_PER_DAY = 512 * 2 ** 20 // that a recommender may have a device read, at most
const [REFUSED_FOR, MOST_TASKS] = [7 * DAY, 8] // tasks a day
const [MAX_INDEX, MAX_LIST, MAX_CATALOGUE] = [2 ** 14, 2 ** 14, 2 ** 26]
const MAX_KEYS = 2 * MAX_LIST + 64
const [FREE, PER_ITEM] = [2 ** 21, 4096] // bytes of another file, and for each item
const [MAX_ITEMS, MAX_RATING, MOST_ARRAYS] = [2 ** 20, 10 ** 6, 32]
type Kind = 'catalogue' | 'keys' | 'task' | 'model' | 'array'

const digestText: Read<string> = (value) => {
  const found = text(43)(value)
  if (found !== '') fromBase64(found, DIGEST_SIZE)
  return found
}

const index = object({
  catalogue: digestText, keys: digestText, model: digestText, name: text(), servers: text(), task: digestText,
  type: only('index'), version: only(VERSION),
})

/** What a recommender publishes now: the digests of its files. */
export type Index = ReturnType<typeof index>

/** What was read of a recommender at one look; files by their digests, empty where too long. */
export interface Published {
  readonly index: Index
  readonly files: ReadonlyMap<string, Bytes>
  readonly read: number
}

/** Return an index; ProtocolError if it is none. */
export function readIndex(data: Bytes): Index {
  const found = readDocument(index, data, MAX_INDEX)
  require(found.catalogue !== '', 'an index names no catalogue')
  return found
}

/** A file to read, and how long it may be. */
export type Wanted = Readonly<Record<'name' | 'digest', string>> & { readonly most: number }
export const INDEX: Wanted = { name: 'index.json', digest: '', most: MAX_INDEX }

/** Return the files to read next, of those that the index names and that are not here. */
export function wanted(state: State, joined: Joined, seen: Published, now: number): Wanted[] {
  const refused = new Set(joined.refused.filter(([, at]) => Math.abs(now - at) < REFUSED_FOR).map(([name]) => name))
  const left = BYTES_PER_DAY - readToday(joined, now) - seen.read
  return namedFiles(joined, seen)
    .filter(([, digest]) => digest !== '' && !refused.has(digest) && !seen.files.has(digest))
    .map(([kind, digest]) => ({
      name: `${kind}-${digest}.${kind === 'array' ? 'bin' : 'json'}`, digest,
      most: Math.min(mostBytes(kind, state, joined), left),
    })).filter(({ most }) => most > 0)
}

function namedFiles(joined: Joined, { index: names, files }: Published): [Kind, string][] {
  const found: [Kind, string][] = names.catalogue === joined.catalogue ? [] : [['catalogue', names.catalogue]]
  if (found.length > 0 && !files.has(names.catalogue)) return found // the rest is about items that are not here
  if (names.keys !== joined.keysDigest) found.push(['keys', names.keys])
  if (!joined.seen.some(([task]) => task === names.task)) found.push(['task', names.task])
  if (names.model === joined.model) return found
  const document = files.get(names.model)
  return [...found, ['model', names.model], ...(document === undefined ? [] : arraysIn(document, joined))]
}

function arraysIn(document: Bytes, joined: Joined): [Kind, string][] {
  try {
    const names = Object.values(readModel(document).arrays).map((each) => each.sha256)
    return names.filter((name) => !joined.arrays.includes(name)).map((name) => ['array', name])
  } catch {
    return [] // it is refused when it is taken
  }
}

function mostBytes(kind: Kind, state: State, joined: Joined): number {
  if (kind === 'catalogue' || joined.catalogue === '') return MAX_CATALOGUE
  return kind === 'keys' ? MAX_KEYS : FREE + PER_ITEM * itemsOf(state, joined).ids.length
}

export function checkDigest(kind: Kind, digest: string, data: Bytes): void {
  const found = kind === 'task' ? toBase64(taskId(data)) : fileDigest(data)
  require(found === digest, `the ${kind} is not what the index says: its digest differs`)
}

// Catalogues

const table = object({
  audiences: list(text()), genres: list(list(text())), ids: list(text(), 1, MAX_ITEMS), integer_ids: flag,
  scale_high: numberFrom(-MAX_RATING, MAX_RATING), scale_low: numberFrom(-MAX_RATING, MAX_RATING),
  scale_step: orNull(numberFrom(Number.MIN_VALUE, 2 * MAX_RATING)), titles: list(text()), type: only('items'),
  version: only(VERSION), years: list(orNull(whole(Number.MIN_SAFE_INTEGER))),
})
const link = object({
  content: text(), items: whole(), number: whole(), previous: text(), retired: list(whole()), signature: text(),
})
const catalogue = object({
  key: text(), links: list(link, 1, 4096), table, type: only('catalogue'), version: only(VERSION),
})
type Catalogue = ReturnType<typeof catalogue>

/** The items of a catalogue. */
export interface Items extends ReturnType<typeof table> {
  /** The digest of the newest version. */
  readonly fingerprint: string
  /** All versions, the first one first: their digests, and how many of the items they have. */
  readonly versions: readonly (readonly [string, number])[]
  readonly retired: ReadonlySet<number>
  readonly positions: ReadonlyMap<string, number>
}

const digestOf = (of: Catalogue['links'][number]): Bytes =>
  labelledDigest('catalogue version', utf8(canonical({ ...of, signature: '' })))
const scaleOf = ({ scale_low, scale_high, scale_step }: Catalogue['table']) => [scale_low, scale_high, scale_step]

function readCatalogue(data: Bytes): Catalogue {
  const found = readDocument(catalogue, data)
  const { table: items, links } = found
  const { ids, scale_step: step } = items
  require(new Set(ids).size === ids.length, 'item ids do not differ')
  const facts = [items.titles, items.genres, items.years, items.audiences].map(({ length }) => length)
  require(facts.every((length) => length === 0 || length === ids.length), 'facts are one per item or none')
  const width = items.scale_high - items.scale_low
  const least = Math.max(1, Math.abs(items.scale_low), Math.abs(items.scale_high)) / 2 ** 20
  require(width >= least && (step === null || (step <= width && width / step <= 10_000)), 'no scale')
  require(!items.integer_ids || ids.every((id) => /^(0|-?[1-9]\d{0,17})$/.test(id)), 'ids are not written as integers')
  require(links[links.length - 1].items === ids.length, 'the last version does not have all items')
  return found
}

/** Raise ProtocolError unless the versions follow from each other and are signed. */
async function checkChain({ table: items, links, key }: Catalogue): Promise<void> {
  const spelled = fromBase64(key, 32)
  const lines = items.ids.map((id, at) => {
    const facts = [id, items.titles[at] ?? '', items.genres[at] ?? [], items.years[at] ?? null]
    return utf8(`\n${canonical(items.audiences[at] ? [...facts, items.audiences[at]] : facts)}`)
  })
  const said = running.create().update(utf8(canonical([items.integer_ids, ...scaleOf(items)])))
  const retired = new Set<number>()
  let [before, count] = ['', 0]
  for (const [at, version] of links.entries()) {
    const right = version.number === at + 1 && version.previous === before &&
      version.items >= Math.max(count, 1) && version.items <= items.ids.length &&
      (at > 0 ? version.items > count || version.retired.length > 0 : version.retired.length === 0)
    require(right, `version ${at + 1} of the catalogue does not follow from the one before it`)
    const able = version.retired.every((position, place, all) => position < version.items && !retired.has(position) &&
      (place === 0 || all[place - 1] < position))
    require(able, `version ${at + 1} retires what it cannot`)
    version.retired.forEach((position) => retired.add(position))
    lines.slice(count, version.items).forEach((line) => said.update(line))
    require(toBase64(said.clone().digest()) === version.content, `version ${at + 1} is about other items`)
    const digest = digestOf(version)
    require(await verifies(spelled, fromBase64(version.signature, 64), digest), `version ${at + 1} is not signed`)
    ;[before, count] = [toBase64(digest), version.items]
  }
}

const known = new WeakMap<Bytes, Items>()

/** Return the items of a recommender; ProtocolError before its catalogue has come. */
export function itemsOf(state: State, joined: Joined): Items {
  const data = state.files[joined.catalogue]
  require(data !== undefined, 'no catalogue is here yet')
  let found = known.get(data)
  if (found === undefined) {
    const { table: items, links } = readCatalogue(data)
    const versions = links.map((each) => [toBase64(digestOf(each)), each.items] as const)
    const positions = new Map(items.ids.map((id, at) => [id, at]))
    const retired = new Set(links.flatMap((each) => each.retired))
    found = { ...items, versions, fingerprint: versions[versions.length - 1][0], retired, positions }
    known.set(data, found)
  }
  return found
}

/** Take a catalogue that is the first one, or follows from the one that is here. */
export async function takeCatalogue(state: State, joined: Joined, digest: string, data: Bytes): Promise<State> {
  const offered = readCatalogue(data)
  await checkChain(offered)
  if (joined.catalogue !== '') {
    const pinned = readCatalogue(state.files[joined.catalogue])
    const [ours, theirs] = [pinned, offered].map((each) => each.links.map(digestOf).map(toBase64))
    require(ours.every((one, at) => one === theirs[at]), 'an older catalogue than the pinned one, or another one')
    if (theirs.length === ours.length) return state
    require(pinned.key === offered.key, 'the catalogue is signed by another key')
    require(isSame(scaleOf(pinned.table), scaleOf(offered.table)), 'the catalogue is for another scale')
  }
  const files = { ...state.files, [digest]: data }
  return withJoined({ ...state, files }, { ...joined, catalogue: digest })
}

// The servers' keys

const keyList = object({ configs: text(), not_after: whole(), serial: whole() })
type KeyList = ReturnType<typeof keyList>
const signedList = object({ keys: keyList, signature: text(), type: only('key list'), version: only(VERSION) })
const publishedKeys = object({
  helper: orNull(signedList), leader: orNull(signedList), type: only('keys'), version: only(VERSION),
})

async function checkList(data: Bytes, server: Server): Promise<KeyList> {
  const { keys, signature } = readDocument(signedList, data, MAX_LIST)
  const digest = labelledDigest('key list', utf8(canonical(keys)))
  const good = await verifies(fromBase64(server.signing), fromBase64(signature), digest)
  require(good, "a server's list of keys is not signed by the key on its card")
  configsIn(keys)
  return keys
}

/** Return the keys of a list for X25519, HKDF-SHA256 and AES-128-GCM, the preferred ones first. */
function configsIn(keys: KeyList): { readonly id: number; readonly key: Bytes }[] {
  const data = fromBase64(keys.configs)
  const number = (at: number): number => data[at] * 256 + data[at + 1]
  const found = []
  let at = 2
  while (at + 9 <= data.length && number(at + 7) > 0) {
    const end = at + 9 + number(at + 7)
    const plain = number(at + 1) === 0x20 && number(at + 3) === 1 && number(at + 5) === 1
    if (plain && end - at === 41) found.push({ id: data[at], key: data.slice(at + 9, end) })
    at = end
  }
  const whole = data.length > 2 && number(0) === data.length - 2 && at === data.length
  require(whole, "a server's list of keys is malformed")
  return found
}

/** Follow the lists that both servers have signed; one that is missing stays. */
export async function takeKeys(state: State, joined: Joined, digest: string, data: Bytes): Promise<State> {
  const offered = readDocument(publishedKeys, data, MAX_KEYS)
  const follow = async (place: 0 | 1, role: 'leader' | 'helper'): Promise<Bytes> => {
    const server = joined.invitation.servers[role]
    let before: { readonly list: Bytes; readonly keys: KeyList } | null = null
    // What another recommender has shown of the same server counts as well.
    for (const { keys: { [place]: list }, invitation: { servers } } of state.joined) {
      if (servers[role].signing !== server.signing || list.length === 0) continue
      const keys = await checkList(list, server)
      if (before === null || keys.serial > before.keys.serial) before = { list, keys }
    }
    const signed = offered[role]
    if (signed === null) return before?.list ?? NONE
    const spelled = utf8(canonical(signed))
    const keys = await checkList(spelled, server)
    const follows = before === null || keys.serial > before.keys.serial || isSame(keys, before.keys)
    require(follows, "a server's list of keys is older than the one before, or another one of the same number")
    return spelled
  }
  const taken = [await follow(0, 'leader'), await follow(1, 'helper')] as const
  return withJoined(state, { ...joined, keys: taken, keysDigest: digest })
}

/** Return the key to encrypt to, of a list that is valid now. */
export async function configOf(server: Server, list: Bytes, now: number): Promise<ReturnType<typeof configsIn>[0]> {
  require(list.length > 0, "a server's list of keys has not come yet")
  const keys = await checkList(list, server)
  require(now < keys.not_after, "a server's list of keys is over, and no newer one has come")
  const [config] = configsIn(keys)
  require(config !== undefined, "a server's list has no key for X25519 and AES-128-GCM")
  return config
}

// Models

const KINDS = ['f2', 'f4', 'u2', 'u4', 'i1', 'i8'] as const // names end in their sizes
const array = object({ kind: only(...KINDS), sha256: digestText, shape: list(whole(), 1, 2) })
const model = object({
  arrays: named(array), catalogue: text(), mean: numberFrom(-Infinity, Infinity), reports: list(whole()), run: text(),
  type: only('model'), version: only(VERSION),
})

/** What came of a run; its arrays are files. */
export type Model = ReturnType<typeof model>

function readModel(data: Bytes): Model {
  const found = readDocument(model, data)
  fromBase64(found.run, 16)
  require(Object.keys(found.arrays).length <= MOST_ARRAYS, 'a model has too many arrays')
  return found
}

/** Return the document of the last model that a recommender has published. */
export const modelOf = (state: State, joined: Joined): Model => readModel(state.files[joined.model])

function checkArray({ kind, shape, sha256: digest }: ReturnType<typeof array>, data: Bytes): void {
  const size = Number(kind[1])
  const right = data.length === shape.reduce((all, each) => all * each, size) && fileDigest(data) === digest
  require(right, 'a file is not the array that its document names')
  if (kind[0] !== 'f') return
  const upper = size === 4 ? 0x7f80 : 0x7c00 // all ones: no finite number
  for (let at = size - 2; at < data.length; at += size) {
    require(((data[at] | (data[at + 1] << 8)) & upper) !== upper, 'an array has a number that is not finite')
  }
}

/** Take a model with all of its arrays. */
export function takeModel(state: State, joined: Joined, digest: string, read: ReadonlyMap<string, Bytes>): State {
  const document = read.get(digest) as Bytes
  const files: Record<string, Bytes> = { ...state.files, [digest]: document }
  const arrays = Object.values(readModel(document).arrays)
  for (const each of arrays) {
    const data = read.get(each.sha256) ?? state.files[each.sha256]
    if (data === undefined) throw new NotNowError('an array of the model has not come')
    checkArray(each, data)
    files[each.sha256] = data
  }
  const names = [...new Set(arrays.map((each) => each.sha256))]
  return withJoined({ ...state, files }, { ...joined, model: digest, arrays: names })
}

/** Return the task in a document that a device may answer: by all that is public, nobody refuses. */
export function readAsked(state: State, joined: Joined, document: Bytes, now: number): readonly [Bytes, Task] {
  const task = readTask(document)
  const id = taskId(document)
  if (joined.seen.some(([old]) => old === toBase64(id))) throw new NotNowError('taken before')
  const items = itemsOf(state, joined)
  const { collector, invitation: { servers } } = joined
  const rule = refusedBy(task, {
    servers, collector: collector ?? task.collector, catalogue: items.fingerprint, items: items.ids.length,
    stars: !isChosen(items),
  }, now)
  const today = joined.seen.filter(([, taken]) => taken + DAY > now).length
  if (today >= MOST_TASKS || now < task.begin) throw new NotNowError('its time has not come')
  if (rule !== null) throw new ProtocolError(`rule ${rule}`)
  return [id, task]
}
