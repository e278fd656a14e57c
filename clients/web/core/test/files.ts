import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../../../..')
export const OFFICIAL = join(ROOT, '../shared/vectors/vdaf-20')
export const hasOfficial = existsSync(OFFICIAL)

export type Bytes = Uint8Array<ArrayBuffer>

/** What a file of vectors holds is seen by the test that reads it. */
export type Entry = any

export const read = (folder: string, name: string): Entry =>
  JSON.parse(readFileSync(join(folder, name), 'utf8'))

export const ours = (...names: string[]): string => join(ROOT, 'spec/vectors', ...names)

export const namesIn = (folder: string, start: string): string[] =>
  readdirSync(folder).filter((name) => name.startsWith(start)).sort()

export const hex = (data: Uint8Array): string => Buffer.from(data).toString('hex')

export const bytes = (text: string): Bytes => new TextEncoder().encode(text)

export const unhex = (text: string): Bytes => new Uint8Array(Buffer.from(text, 'hex'))
