import { expect, test } from 'vitest'

import { opened, readLink, serversDigest } from '../src/index.ts'
import { canonical, fileDigest } from '../src/documents.ts'
import { ours, read } from './files.ts'

const { known, servers_digest } = read(ours('wire'), 'documents.json')
const ADDRESS = 'https://films.example'
const SECRET = 's'.repeat(32)
const bytes = (value: unknown) => new TextEncoder().encode(canonical(value))
const shown = bytes({ address: ADDRESS, authority: '', name: 'films', servers: known.servers })
const linkTo = (data: Uint8Array, secret = '') => `${ADDRESS}/join#${fileDigest(data)}${secret}`

test('a link opens the invitation that it is about', () => {
  const link = readLink(` ${linkTo(shown, `.${SECRET}`)}\n`)
  expect(link).toMatchObject({ address: ADDRESS, url: `${ADDRESS}/invitation.json`, secret: SECRET })
  expect(opened(link, shown)).toMatchObject({ name: 'films', servers: known.servers })
  expect(readLink(linkTo(shown)).secret).toBe('')
  expect(serversDigest(known.servers).replaceAll(' ', '')).toBe(servers_digest)
})

test('what is no link, or cut off, is refused', () => {
  const whole = linkTo(shown, `.${SECRET}`)
  for (const bad of ['', ADDRESS, whole.slice(0, -1), whole.replace('https', 'http'), `${whole}x`,
    `https://${'a'.repeat(300)}/join#${fileDigest(shown)}`, whole.replace('#', '?')]) {
    expect(() => readLink(bad), bad).toThrow(/refused/)
  }
})

test('another invitation than that of the link is refused', () => {
  const other = bytes({ address: 'https://other.example', authority: '', name: '', servers: known.servers })
  expect(() => opened(readLink(linkTo(shown)), other)).toThrow(/another invitation/)
  expect(() => opened(readLink(linkTo(other)), other)).toThrow(/another address/)
  const more = bytes({ address: ADDRESS, authority: '', name: '', servers: known.servers, more: 1 })
  expect(() => opened(readLink(linkTo(more)), more)).toThrow(/other fields/)
})
