/**
 * What a device does next: a pure function of its state, of what is published, and of the time.
 *
 * Nothing here reads a clock or a rating, and nothing is drawn. Whether a device answers depends on documents and on
 * limits that are the same for everybody; when, on a secret of the state; how long it takes, on nothing. The owner's
 * limits decide between their row and zeros, which nobody can tell apart.
 */

import { NotNowError, ProtocolError, sameBytes, sha256, toBase64, toHex } from './documents.ts'
import { priceOf, promise } from './ledger.ts'
import { type Bytes, utf8 } from './platform.ts'
import { type Published, checkDigest, readAsked, takeCatalogue, takeKeys, takeModel } from './published.ts'
import { type Answer, DAY, type Joined, NONE, type State, of, readToday, refusing, withJoined } from './state.ts'
import { type Task, isAsked, readTask } from './task.ts'

/** Answers after which nothing is tried again. */
const REFUSED = new Set([401, 403, 409, 410, 413, 415, 422])
const [LEAD, FIRST_WAIT, LONGEST_WAIT] = [10, 15, 3600]
const LATEST = 9 // tenths of what is left of a task, in which moments lie

/** What is to be sealed and sent, once the decision is committed; not before `at`. An enrolment is of no task. */
export interface Sending {
  readonly what: 'enrolment' | 'token' | 'report'
  readonly address: string; readonly task: Bytes; readonly at: number
}

/** Something for the owner to read, about a recommender; the app has the words. */
export type Said = { readonly address: string } & (
  | { readonly what: 'model' | 'asked' | 'over' | 'token' | 'sent' | 'enrolled' | 'not enrolled' }
  | { readonly what: 'refused'; readonly why: string }
  /** This clock is so many seconds ahead of the leader's: nothing was sent. */
  | { readonly what: 'clock'; readonly ahead: number }
  | { readonly what: 'given up' | 'again'; readonly status: number | null }
)

/** What becomes of a state, what is to be sent then, and what there is to say of it. */
export type Decision = { readonly state: State; readonly sending: readonly Sending[]; readonly said: readonly Said[] }

/** Take what is published, by recommenders' addresses, and bring answers forward. */
export async function decide(state: State, published: ReadonlyMap<string, Published>, now: number): Promise<Decision> {
  const [sending, said]: [Sending[], Said[]] = [[], []]
  let next = state
  for (const { invitation: { address } } of state.joined.filter(({ left }) => !left)) {
    const seen = published.get(address)
    if (seen !== undefined) next = await learned(next, address, seen, now, said)
    const { enrolled, enrolAt } = of(next, address)
    // Or the clock was put back.
    if (!enrolled && !(now < enrolAt && enrolAt <= now + 2 * DAY)) {
      sending.push({ what: 'enrolment', address, task: NONE, at: now })
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
  state: State, address: string, { index, files, read }: Published, now: number, said: Said[],
): Promise<State> {
  const before = of(state, address)
  const today = { day: Math.floor(now / DAY), read: readToday(before, now) + read }
  let next = read > 0 ? withJoined(state, { ...before, ...today }) : state
  for (const kind of ['catalogue', 'keys', 'model', 'task'] as const) {
    const digest = index[kind]
    const data = files.get(digest)
    if (data === undefined) continue
    const joined = of(next, address)
    try {
      checkDigest(kind, digest, data)
      if (kind === 'catalogue') next = await takeCatalogue(next, joined, digest, data)
      else if (kind === 'keys') next = await takeKeys(next, joined, digest, data)
      else if (kind === 'task') next = takeTask(next, joined, data, now, said)
      else next = takeModel(next, joined, digest, files)
      if (kind === 'model') said.push({ what: 'model', address })
    } catch (error) {
      if (error instanceof NotNowError) continue // looked at again with the next index
      if (!(error instanceof ProtocolError)) throw error
      said.push({ what: 'refused', address, why: error.message })
      next = withJoined(next, refusing(joined, digest, now))
    }
  }
  return next
}

function takeTask(state: State, given: Joined, document: Bytes, now: number, said: Said[]): State {
  // Its time comes when the one under way is over.
  if (given.answer !== null && !given.answer.done && now < given.answer.end) return state
  const [id, task] = readAsked(state, given, document, now)
  const old = given.seen.filter(([, taken, end]) => Math.max(taken + DAY, end) > now)
  let joined: Joined = { ...given, collector: task.collector, seen: [...old, [toBase64(id), now, task.end]] }
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
    end: task.end, lead, token: NONE, promised: false, tries: 0, again: 0, done: false,
  }
}

/** Return a moment from `first` to `last`, uniform for whoever has not the secret. */
export function drawn(secret: Bytes, what: string, first: number, last: number): number {
  const number = BigInt(`0x${toHex(sha256(utf8(`hdpmf moment ${what}`), secret).slice(0, 8))}`)
  return first + Number((number * BigInt(last - first)) >> 64n)
}

function broughtForward(state: State, address: string, now: number, said: Said[]): [State, Sending[]] {
  const joined = of(state, address)
  const { answer } = joined
  if (answer === null || answer.done) return [state, []]
  if (now >= answer.end) {
    said.push({ what: 'over', address })
    return [withJoined(state, { ...joined, answer: { ...answer, done: true } }), []]
  }
  // Or the clock was put back.
  if (now < answer.again && answer.again <= now + 2 * LONGEST_WAIT) return [state, []]
  const { task, token, tokenAt, reportAt, lead } = answer
  if (token.length === 0) return [state, now >= tokenAt ? [{ what: 'token', address, task, at: now }] : []]
  if (now < reportAt - lead) return [state, []]
  const next = answer.promised ? state : promised(state, joined, answer, now)
  return [next, [{ what: 'report', address, task, at: Math.max(reportAt, now + lead) }]]
}

/** Write down what a report costs, before anything is made of it. */
function promised(state: State, joined: Joined, answer: Answer, now: number): State {
  const task = readTask(answer.document)
  const line = promise(state.limits, state.ledger, priceOf(task), state.wish, {
    at: now, recommender: joined.invitation.address, task: toHex(answer.task), part: task.sums.type,
  })
  const next = { ...state, ledger: [...state.ledger, line] }
  return withJoined(next, { ...joined, answer: { ...answer, promised: true } })
}

/** Take the answer to something that was sent; a pure function as well. */
export function answered(
  state: State, sending: Sending, now: number, status: number | null, token: Bytes = NONE,
): Decision {
  const { address } = sending
  const joined = of(state, address)
  const { answer, enrolAt, proof } = joined
  const become = (next: Partial<Joined>, said: Said): Decision =>
    ({ state: withJoined(state, { ...joined, ...next }), sending: [], said: [said] })
  const refused = status !== null && REFUSED.has(status)
  if (sending.what === 'enrolment') {
    const enrolled = status === 200 || status === 201
    const what = enrolled ? 'enrolled' : 'not enrolled'
    return become({
      enrolled, enrolAt: enrolled ? enrolAt : now + (refused ? DAY : LONGEST_WAIT), proof: enrolled ? '' : proof,
    }, enrolled || refused ? { what, address } : { what: 'again', address, status })
  }
  if (answer === null || !sameBytes(answer.task, sending.task) || answer.done) return { state, sending: [], said: [] }
  const step = (next: Partial<Answer>, said: Said): Decision => become({ answer: { ...answer, ...next } }, said)
  if (token.length > 0) return step({ token, tries: 0, again: 0 }, { what: 'token', address })
  if (sending.what === 'report' && status === 200) return step({ done: true }, { what: 'sent', address })
  if (refused) return step({ done: true }, { what: 'given up', address, status })
  const wait = Math.min(FIRST_WAIT * 2 ** Math.min(answer.tries, 16), LONGEST_WAIT)
  // All devices try again at moments of their own.
  const again = now + drawn(answer.secret, `again${answer.tries}`, Math.floor(wait / 2), wait)
  return step({ tries: answer.tries + 1, again }, { what: 'again', address, status })
}
