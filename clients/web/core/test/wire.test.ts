import { expect, test } from 'vitest'

import { toBase64, toHex } from '../src/documents.ts'
import { configurationOf, prioOf, readTask, refusedBy, taskId } from '../src/task.ts'
import { type Entry, ours, read } from './files.ts'

const given = read(ours('wire'), 'documents.json')
const [part, of] = [].concat(given.known.rho) as unknown as number[]
const RHO = [BigInt(part), BigInt(of ?? 1)] as const
const bytes = (text: string) => new TextEncoder().encode(text)

test('tasks have the ids and configurations of the specification, and nobody refuses them', () => {
  for (const { document, id, configuration } of given.tasks) {
    const task = readTask(bytes(document))
    const found = taskId(bytes(document))
    expect(toBase64(found)).toBe(id)
    expect(toHex(configurationOf(task, found, prioOf(task, found)))).toBe(configuration)
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
