/** Invitations: the link that a person was given, and what the recommender shows for it. */

import {
  DIGEST_SIZE, canonical, fileDigest, fromBase64, labelledDigest, readDocument, require, toHex,
} from './documents.ts'
import { utf8 } from './platform.ts'
import { type Invitation, invitation } from './state.ts'
import type { Servers } from './task.ts'
import type { Bytes } from './xof.ts'

const MOST_LINK = 300
const MOST = 64 * 2 ** 10

export interface Link {
  readonly address: string
  /** Where the invitation is; it has at most so many bytes. */
  readonly url: string
  readonly most: number
  readonly digest: string
  /** Lets one person in, once; empty for none. */
  readonly secret: string
}

/** Return what a link to an invitation says. What is behind its # is told to nobody. */
export function readLink(text: string): Link {
  const plain = text.trim()
  const found = /^(https:\/\/[^#\s]+)\/join#([\w-]{43})(?:\.([\w-]{32}))?$/.exec(plain)
  require(found !== null && plain.length <= MOST_LINK,
    'this is no link to an invitation, or it is cut off')
  const [, address, digest, secret = ''] = found
  fromBase64(digest, DIGEST_SIZE)
  return { address, url: `${address}/invitation.json`, most: MOST, digest, secret }
}

/** Return the invitation of a link, which is all that the recommender may show for it. */
export function opened(link: Link, data: Bytes): Invitation {
  require(fileDigest(data) === link.digest, 'the recommender shows another invitation than that of this link')
  const found = readDocument(invitation, data, MOST)
  require(found.address === link.address, 'the invitation is of another address than its link')
  return found
}

/** Return the digest of two servers that people compare, in groups of four. */
export const serversDigest = (servers: Servers): string =>
  (toHex(labelledDigest('servers', utf8(canonical(servers))).slice(0, 16)).match(/.{4}/g) ?? []).join(' ')
