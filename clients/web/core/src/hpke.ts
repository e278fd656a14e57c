/** HPKE (RFC 9180) in base mode, for one message: X25519, HKDF-SHA256 and AES-128-GCM. */

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'

import { type Bytes, bigEndian, concat, machine, utf8 } from './platform.ts'

const KEM = concat(utf8('KEM'), bigEndian(0x20, 2))
const SUITE = concat(utf8('HPKE'), bigEndian(0x20, 2), bigEndian(1, 2), bigEndian(1, 2))
const NONE: Bytes = new Uint8Array(0)

export interface Encrypted {
  readonly enc: Bytes
  readonly payload: Bytes
}

/** Encrypt to the owner of a key; a pair of keys is for tests. */
export async function encryptTo(
  key: Bytes, info: Bytes, aad: Bytes, plaintext: Bytes, pair = newPair(),
): Promise<Encrypted> {
  const { subtle } = machine.crypto
  const { publicKey, privateKey } = await pair
  const enc = new Uint8Array(await subtle.exportKey('raw', publicKey))
  const theirs = await subtle.importKey('raw', key, 'X25519', false, [])
  const agreed = await subtle.deriveBits({ name: 'X25519', public: theirs }, privateKey, 256)
  const dh = new Uint8Array(agreed)
  if (dh.every((byte) => byte === 0)) throw new Error('a public key is none') // of small order
  const shared = labelled(KEM, extractWith(KEM, NONE, 'eae_prk', dh), 'shared_secret',
    concat(enc, key), 32)
  const context = concat(
    Uint8Array.of(0),
    extractWith(SUITE, NONE, 'psk_id_hash', NONE),
    extractWith(SUITE, NONE, 'info_hash', info),
  )
  const secret = extractWith(SUITE, shared, 'secret', NONE)
  const iv = labelled(SUITE, secret, 'base_nonce', context, 12)
  const raw = labelled(SUITE, secret, 'key', context, 16)
  const gcm = await subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt'])
  const algorithm = { name: 'AES-GCM', iv, additionalData: aad }
  return { enc, payload: new Uint8Array(await subtle.encrypt(algorithm, gcm, plaintext)) }
}

const newPair = () => machine.crypto.subtle.generateKey('X25519', true, ['deriveBits'])

const extractWith = (suite: Bytes, salt: Bytes, label: string, input: Bytes): Bytes =>
  new Uint8Array(extract(sha256, concat(utf8('HPKE-v1'), suite, utf8(label), input), salt))

function labelled(suite: Bytes, secret: Bytes, label: string, info: Bytes, size: number): Bytes {
  const whole = concat(bigEndian(size, 2), utf8('HPKE-v1'), suite, utf8(label), info)
  return new Uint8Array(expand(sha256, secret, whole, size))
}
