/** What the app keeps in the device's state besides what the core knows. PRIVATE. */

import type { Held, State, Store } from '@hdpmf/core'

/**
 * A store that is read once: what was committed last is here, and somebody else's commit makes the
 * next one of ours fail. So large catalogues are neither read nor understood anew for every tap.
 */
export class Remembering implements Store {
  private held: Held | null = null

  constructor(private readonly inner: Store) {}

  async load(): Promise<Held | null> {
    const found = this.held ?? await this.inner.load()
    this.held ??= found
    return this.held
  }

  async commit(next: State, expected: number): Promise<boolean> {
    const kept = await this.inner.commit(next, expected)
    this.held = kept ? { state: next, version: expected + 1 } : null
    return kept
  }

  async erase(): Promise<void> {
    this.held = null
    await this.inner.erase()
  }
}

/** What stood at the top of a list, and when. */
export interface Seen {
  readonly at: number
  readonly top: readonly string[]
}

/** The last look at a list, and the end of the visit before this one. */
export interface Visit extends Seen {
  readonly since: Seen | null
}

export interface Kept {
  readonly language: string
  /** Whether ratings may take part in sums; null: not answered yet. */
  readonly answer: boolean | null
  readonly levelChosen: boolean
  /** By recommenders' addresses. */
  readonly saved: Readonly<Record<string, readonly string[]>>
  readonly hidden: Readonly<Record<string, readonly string[]>>
  readonly visits: Readonly<Record<string, Visit>>
}

export const NOTHING_KEPT: Kept = {
  language: '', answer: null, levelChosen: false, saved: {}, hidden: {}, visits: {},
}

export const keptIn = (state: State): Kept => ({ ...NOTHING_KEPT, ...(state.kept as Partial<Kept>) })

export const withKept = (state: State, change: Partial<Kept>): State =>
  ({ ...state, kept: { ...keptIn(state), ...change } })

/** Return a list with an id, or without it; the newest first. */
export const toggled = (ids: readonly string[], id: string, on: boolean): readonly string[] =>
  on ? [id, ...ids.filter((each) => each !== id)] : ids.filter((each) => each !== id)
