/**
 * What a device does next: a pure function of its state, of what is published, and of the time.
 *
 * Nothing here reads a clock or a rating, and nothing is drawn: moments follow from a secret of the
 * state. Whether a device answers depends on documents and on limits that are the same for
 * everybody; when, on the secret; how long it takes, on nothing. The owner's limits decide between
 * their row and zeros, which nobody can tell apart. It waits for nothing but signatures' checks.
 */

import { NotNowError, ProtocolError, sha256, toBase64, toHex } from './documents.ts'
import { type Price, bothPrices, matrixPrice, promise, vectorPrice } from './ledger.ts'
import { utf8 } from './platform.ts'
import {
  type Kind, type Published, checkDigest, readAsked, takeCatalogue, takeKeys, takeModel,
} from './published.ts'
import {
  type Answer, DAY, type Joined, type State, of, readToday, refusing, withJoined,
} from './state.ts'
import { type Task, isAsked, readTask } from './task.ts'
import type { Bytes } from './xof.ts'

/** Answers after which nothing is tried again; others may pass. */
const REFUSED = new Set([401, 403, 409, 410, 413, 415, 422])
const LEAD = 10
const [FIRST_WAIT, LONGEST_WAIT] = [15, 3600]
const LATEST = 9 // tenths of what is left of a task, in which moments lie

/** What is to be sealed and sent, once the decision is committed; not before `at`. */
export interface Sending {
  readonly what: 'enrolment' | 'token' | 'report'
  readonly address: string
  /** Empty for an enrolment. */
  readonly task: Bytes
  readonly at: number
}

/** Something for the owner to read; the app has the words. */
export type Said =
  | { readonly what: 'model' | 'asked' | 'over' | 'token' | 'sent' | 'enrolled' | 'not enrolled'; readonly address: string }
  | { readonly what: 'refused'; readonly address: string; readonly why: string }
  /** This clock is so many seconds ahead of the leader's: nothing was sent. */
  | { readonly what: 'clock'; readonly address: string; readonly ahead: number }
  | { readonly what: 'given up' | 'again'; readonly address: string; readonly status: number | null }

export interface Decision {
  readonly state: State
  readonly sending: readonly Sending[]
  readonly said: readonly Said[]
}

/** Take what is published, by recommenders' addresses, and bring answers forward. */
export async function decide(
  state: State, published: ReadonlyMap<string, Published>, now: number,
): Promise<Decision> {
  const sending: Sending[] = []
  const said: Said[] = []
  let next = state
  for (const { invitation: { address }, left } of state.joined) {
    if (left) continue
    const seen = published.get(address)
    if (seen !== undefined) next = await learned(next, address, seen, now, said)
    const { enrolled, enrolAt } = of(next, address)
    // Or the clock was put back.
    if (!enrolled && !(now < enrolAt && enrolAt <= now + 2 * DAY)) {
      sending.push({ what: 'enrolment', address, task: new Uint8Array(0), at: now })
    }
    const [after, send] = broughtForward(next, address, now, said)
    next = after
    sending.push(...send)
  }
  return { state: next, sending, said }
}

/** Return when there is something to do, besides looking at files; null if there is nothing. */
export function nextMoment(state: State): number | null {
  const moments = state.joined.filter(({ left }) => !left).flatMap((joined) => {
    const found = joined.enrolled ? [] : [joined.enrolAt]
    if (joined.answer === null || joined.answer.done) return found
    const { token, reportAt, lead, tokenAt, again, end } = joined.answer
    return [...found, Math.min(Math.max(token.length > 0 ? reportAt - lead : tokenAt, again), end)]
  })
  return moments.length > 0 ? Math.min(...moments) : null
}

async function learned(
  state: State, address: string, seen: Published, now: number, said: Said[],
): Promise<State> {
  let next = state
  if (seen.read > 0) {
    const joined = of(next, address)
    const read = readToday(joined, now) + seen.read
    next = withJoined(next, { ...joined, day: Math.floor(now / DAY), read })
  }
  const kinds: readonly Exclude<Kind, 'array'>[] = ['catalogue', 'keys', 'model', 'task']
  for (const kind of kinds) {
    const digest = seen.index[kind]
    const data = seen.files.get(digest)
    if (data === undefined) continue
    const joined = of(next, address)
    try {
      checkDigest(kind, digest, data)
      if (kind === 'catalogue') next = await takeCatalogue(next, joined, data)
      else if (kind === 'keys') next = await takeKeys(next, joined, digest, data)
      else if (kind === 'task') next = takeTask(next, joined, data, now, said)
      else {
        next = takeModel(next, joined, digest, seen.files)
        said.push({ what: 'model', address })
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      if (error instanceof NotNowError) continue // looked at again with the next index
      said.push({ what: 'refused', address, why: error.message })
      next = withJoined(next, refusing(of(next, address), digest, now))
    }
  }
  return next
}

function takeTask(
  state: State, given: Joined, document: Bytes, now: number, said: Said[],
): State {
  // Its time comes when the one under way is over.
  if (given.answer !== null && !given.answer.done && now < given.answer.end) return state
  const [id, task] = readAsked(state, given, document, now)
  const old = given.seen.filter(([, taken, end]) => Math.max(taken + DAY, end) > now)
  let joined: Joined = {
    ...given, collector: task.collector, seen: [...old, [toBase64(id), now, task.end]],
  }
  const secret = sha256(utf8('hdpmf answer'), state.seed, id)
  if (isAsked(task, id, secret)) {
    joined = { ...joined, answer: answerTo(task, id, document, secret, now) }
    said.push({ what: 'asked', address: given.invitation.address })
  }
  return withJoined({ ...state, seed: sha256(utf8('hdpmf next'), state.seed) }, joined)
}

function answerTo(task: Task, id: Bytes, document: Bytes, secret: Bytes, now: number): Answer {
  const begin = Math.max(now, task.begin)
  const lead = Math.min(LEAD, Math.floor((task.end - begin) / 20))
  const first = begin + lead
  const last = first + Math.floor(((task.end - first) * LATEST) / 10)
  const reportAt = drawn(secret, 'report', first, last)
  return {
    task: id, document, secret, tokenAt: drawn(secret, 'token', first, reportAt), reportAt,
    end: task.end, lead, token: new Uint8Array(0), promised: false, tries: 0, again: 0, done: false,
  }
}

/** Return a moment from `first` to `last`, uniform for whoever has not the secret. */
export function drawn(secret: Bytes, what: string, first: number, last: number): number {
  const number = BigInt(`0x${toHex(sha256(utf8(`hdpmf moment ${what}`), secret).slice(0, 8))}`)
  return first + Number((number * BigInt(last - first)) >> 64n)
}

function broughtForward(
  state: State, address: string, now: number, said: Said[],
): readonly [State, readonly Sending[]] {
  const joined = of(state, address)
  const { answer } = joined
  if (answer === null || answer.done) return [state, []]
  if (now >= answer.end) {
    said.push({ what: 'over', address })
    return [withJoined(state, { ...joined, answer: { ...answer, done: true } }), []]
  }
  // Or the clock was put back.
  if (now < answer.again && answer.again <= now + 2 * LONGEST_WAIT) return [state, []]
  const send = (what: Sending['what'], at: number): readonly Sending[] =>
    [{ what, address, task: answer.task, at }]
  if (answer.token.length === 0) return [state, now >= answer.tokenAt ? send('token', now) : []]
  if (now < answer.reportAt - answer.lead) return [state, []]
  const next = answer.promised ? state : promised(state, joined, answer, now)
  return [next, send('report', Math.max(answer.reportAt, now + answer.lead))]
}

/** Write down what a report costs, before anything is made of it. */
function promised(state: State, joined: Joined, answer: Answer, now: number): State {
  const task = readTask(answer.document)
  const line = promise(state.limits, state.ledger, priceOf(task), state.wish, {
    at: now,
    recommender: joined.invitation.address,
    task: toHex(answer.task),
    part: task.sums.type,
  })
  const next = { ...state, ledger: [...state.ledger, line] }
  return withJoined(next, { ...joined, answer: { ...answer, promised: true } })
}

/** Return what a task costs a person of the whole wish, by its public numbers. */
export function priceOf({ sums }: Pick<Task, 'sums'>): Price {
  if (sums.type === 'pairs') return matrixPrice(sums.bound, sums.deviation, sums.heads.length)
  const presence = vectorPrice(sums.bound, sums.presence, false, sums.items)
  if (sums.values === 0) return presence
  return bothPrices(presence, vectorPrice(sums.bound, sums.values, true, sums.items))
}

/** Return whether the promised report for a task is of zeros. */
export const isZeros = (state: State, task: Bytes): boolean =>
  state.ledger.findLast((line) => line.task === toHex(task))?.zeros ?? true

/** Take the answer to something that was sent; a pure function as well. */
export function answered(
  state: State, sending: Sending, now: number, status: number | null,
  token: Bytes = new Uint8Array(0),
): Decision {
  const { address } = sending
  const joined = of(state, address)
  if (sending.what === 'enrolment') {
    const enrolled = status === 200 || status === 201
    const refused = status !== null && REFUSED.has(status)
    const enrolAt = enrolled ? joined.enrolAt : now + (refused ? DAY : LONGEST_WAIT)
    const said: Said = enrolled || refused
      ? { what: enrolled ? 'enrolled' : 'not enrolled', address }
      : { what: 'again', address, status }
    const proof = enrolled ? '' : joined.proof
    return { state: withJoined(state, { ...joined, enrolled, enrolAt, proof }), sending: [], said: [said] }
  }
  const { answer } = joined
  const same = answer !== null && toHex(answer.task) === toHex(sending.task) && !answer.done
  if (!same) return { state, sending: [], said: [] }
  const become = (next: Partial<Answer>, said: Said): Decision => ({
    state: withJoined(state, { ...joined, answer: { ...answer, ...next } }), sending: [], said: [said],
  })
  if (token.length > 0) return become({ token, tries: 0, again: 0 }, { what: 'token', address })
  if (sending.what === 'report' && status === 200) {
    return become({ done: true }, { what: 'sent', address })
  }
  if (status !== null && REFUSED.has(status)) {
    return become({ done: true }, { what: 'given up', address, status })
  }
  const wait = Math.min(FIRST_WAIT * 2 ** Math.min(answer.tries, 16), LONGEST_WAIT)
  // All devices try again at moments of their own.
  const again = now + drawn(answer.secret, `again${answer.tries}`, Math.floor(wait / 2), wait)
  return become({ tries: answer.tries + 1, again }, { what: 'again', address, status })
}

