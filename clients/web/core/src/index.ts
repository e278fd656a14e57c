/** The core of a person's device: what it knows and decides, and what is sealed. No network. */

export { type Decision, type Said, type Sending, answered, decide, nextMoment } from './decide.ts'
export { Device, type Platform } from './device.ts'
export { NotNowError, PrivacyError, ProtocolError, toHex } from './documents.ts'
export {
  type Cost, LEVELS, type Limits, type Line, MONTH, type Risk, UNIT, WHOLE, percentOf, personOf, priceOf, promise,
  shareOf, total, worstWithin,
} from './ledger.ts'
export { type Index, type Items, type Published, itemsOf, readIndex } from './published.ts'
export { type Carrier, Sealed, ownRow, seal } from './seal.ts'
export {
  type Invitation, type Joined, type Link, type Rated, type State, join, leave, newState, opened, rate, readLink,
  serversDigest,
} from './state.ts'
export {
  type Databases, type Held, IndexedStore, type Locked, LockedStore, MemoryStore, PassphraseError, type Store, commit,
} from './store.ts'
export { type Server, readTask } from './task.ts'
