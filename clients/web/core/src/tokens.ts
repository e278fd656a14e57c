/**
 * Blind tokens (RFC 9578, type 2; RFC 9474): a leader takes one report of each, and learns of nobody. The nonce is
 * blinded by a factor from the answer's secret: the same request each time.
 */

import { sha384 } from '@noble/hashes/sha2.js'
import { shake256 } from '@noble/hashes/sha3.js'
import { require, sha256, toBase64, toHex } from './documents.ts'
import { power } from './field.ts'
import { type Bytes, bigEndian, concat, sized, utf8 } from './platform.ts'
import type { Answer } from './state.ts'
import { type Task, readTokenKey } from './task.ts'

const TYPE = Uint8Array.of(0, 2)
const [SIZE, EXPONENT] = [256, 65_537n] // of a signature, in bytes
const [NONCE_SIZE, SALT_SIZE, TOKEN_SIZE] = [32, 48, 2 + 32 + 32 + 32 + SIZE]

/** Return the request for a token: the same bytes each time. */
export const tokenRequest = (answer: Answer, task: Task): Bytes => blinded(answer, task).request

function blinded(answer: Answer, task: Task) {
  const { encoded: key, modulus } = readTokenKey(task.token_key)
  const drawn = (what: string, size: number): Bytes =>
    new Uint8Array(shake256(concat(utf8(`hdpmf token ${what}`), answer.secret), { dkLen: size }))
  const keyId = sha256(key)
  const input = concat(TYPE, drawn('nonce', NONCE_SIZE), challenge(task, answer.task), keyId)
  const encoded = numberOf(encodedPss(input, drawn('salt', SALT_SIZE)))
  const factor = numberOf(drawn('factor', SIZE + 16)) % modulus
  const hidden = (encoded * power(factor, EXPONENT, modulus)) % modulus
  const request = concat(TYPE, keyId.slice(-1), bigEndian(hidden, SIZE))
  return { request, input, encoded, modulus, inverse: inverseOf(factor, modulus) }
}

/** Return the token that the issuer's answer brings; ProtocolError if it has not signed it. */
export function tokenIn(answer: Answer, task: Task, body: Bytes): Bytes {
  require(body.length === SIZE, 'the answer to a request for a token has another size')
  const { input, encoded, inverse, modulus } = blinded(answer, task)
  const signature = (numberOf(body) * inverse) % modulus
  require(power(signature, EXPONENT, modulus) === encoded, 'the issuer has not signed the token')
  return concat(input, bigEndian(signature, SIZE))
}

/** The id of the one report that a token is for: the first half of its nonce. */
export function reportId(token: Bytes): Bytes {
  require(token.length === TOKEN_SIZE, 'no token of type 2')
  return token.slice(TYPE.length, TYPE.length + NONCE_SIZE / 2)
}

/** Return the value of the header that a token is shown in (RFC 9577). */
export function headerOf(token: Bytes): string {
  const text = toBase64(token)
  return `PrivateToken token="${text}${'='.repeat(-text.length & 3)}"`
}

/** Return the digest of a `TokenChallenge` (RFC 9577), which binds a token to a task. */
const challenge = ({ collector, servers }: Task, id: Bytes): Bytes =>
  sha256(TYPE, sized(utf8(collector.identity), 2), sized(id, 1), sized(utf8(servers.leader.identity), 2))

const numberOf = (data: Bytes): bigint => BigInt(`0x${toHex(data)}`)

/** EMSA-PSS of a message (RFC 8017, 9.1.1) for 2,048 bits, with SHA-384 and MGF1 of it. */
function encodedPss(message: Bytes, salt: Bytes): Bytes {
  const hash = (...parts: Bytes[]): Bytes => new Uint8Array(sha384(concat(...parts)))
  const digest = hash(new Uint8Array(8), hash(message), salt)
  const block = new Uint8Array(SIZE - digest.length - 1)
  block[block.length - salt.length - 1] = 1
  block.set(salt, block.length - salt.length)
  for (let at = 0; at < block.length; at += digest.length) {
    const mask = hash(digest, bigEndian(at / digest.length, 4))
    for (let k = at; k < Math.min(at + mask.length, block.length); k++) block[k] ^= mask[k - at]
  }
  block[0] &= 0x7f
  return concat(block, digest, Uint8Array.of(0xbc))
}

/** Return what times a number is 1. */
function inverseOf(number: bigint, modulus: bigint): bigint {
  let [a, b, x, y] = [number, modulus, 1n, 0n]
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y]
  require(a === 1n, "the issuer's modulus has small factors")
  return x < 0n ? x + modulus : x
}
