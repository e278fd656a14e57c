import { expect, test } from 'vitest'

import { labelledDigest, sha256, toBase64, toHex } from '../src/documents.ts'
import { concat, signed } from '../src/platform.ts'
import { configOf } from '../src/published.ts'
import type { Answer } from '../src/state.ts'
import { configurationOf, readTask, refusedBy, taskId } from '../src/task.ts'
import { headerOf, reportId, tokenIn } from '../src/tokens.ts'
import { type Entry, ours, read, unhex } from './files.ts'

const given = read(ours('wire'), 'documents.json')
const [part, of] = [].concat(given.known.rho) as unknown as number[]
const RHO = [BigInt(part), BigInt(of ?? 1)] as const
const bytes = (text: string) => new TextEncoder().encode(text)

test('tasks have the ids and configurations of the specification, and nobody refuses them', () => {
  for (const { document, id, configuration } of given.tasks) {
    const task = readTask(bytes(document))
    const found = taskId(bytes(document))
    expect(toBase64(found)).toBe(id)
    expect(toHex(configurationOf(task, found))).toBe(configuration)
    expect(refusedBy(task, given.known, given.now, RHO)).toBeNull()
  }
})

test.each<Entry>(given.bad_tasks)('rule $rule: $what', ({ rule, document }: Entry) => {
  if (/^\d/.test(rule)) {
    expect(refusedBy(readTask(bytes(document)), given.known, given.now, RHO)).toBe(Number(rule))
  } else {
    expect(() => readTask(bytes(document))).toThrow(/refused/)
  }
})

test('values are refused where ratings have no stars', () => {
  const [task] = given.tasks.map(({ document }: Entry) => readTask(bytes(document)))
  expect(refusedBy(task, { ...given.known, stars: false }, given.now, RHO)).toBe(4)
})

test.each<Entry>(given.key_lists)('list of keys, rule $rule: $what', async ({ rule, document }: Entry) => {
  const taken = configOf(given.known.servers.leader, bytes(document) as Uint8Array<ArrayBuffer>, given.now)
  if (rule === '') expect((await taken).id).toBe(1)
  else await expect(taken).rejects.toThrow(/refused/)
})

test('tokens are asked for, shown, and refused as in the specification', async () => {
  const vector = read(ours('wire'), 'tokens.json')
  const task = readTask(bytes(vector.task))
  const id = taskId(bytes(vector.task))
  const digest = labelledDigest('token request', concat(id, sha256(unhex(vector.request))))
  expect(toHex(digest)).toBe(vector.signed)
  expect(toBase64(await signed(unhex(vector.device), digest))).toBe(vector.signature)
  const token = unhex(vector.token)
  expect(toHex(reportId(token))).toBe(vector.nonce.slice(0, 32))
  expect(headerOf(token)).toBe(`PrivateToken token="${Buffer.from(token).toString('base64').replaceAll('+', '-').replaceAll('/', '_')}"`)
  // What the issuer has signed is blinded by another's factor.
  const other = { secret: new Uint8Array(32), task: id } as unknown as Answer
  for (const { answer } of [vector, ...vector.bad]) {
    expect(() => tokenIn(other, task, unhex(answer))).toThrow(/refused/)
  }
})
