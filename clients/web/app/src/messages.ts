/** What the worker hands to the UI cell, and what the cell may ask for. Plain data, no functions. */

import type { Risk } from '@hdpmf/core'
import type { Reason } from '@hdpmf/core/lists'

export type Tab = 'list' | 'rate' | 'saved' | 'privacy'
export type LevelName = 'careful' | 'middle' | 'open'
export const LEVEL_NAMES: readonly LevelName[] = ['careful', 'middle', 'open']

/** What everything that was sent tells, or may tell: parts of one, not yet rounded. */
export interface Risks {
  /** Whether the person has a history at all. */
  readonly none: Risk
  /** Which of two histories it is. */
  readonly other: Risk
}

export interface Server {
  readonly organisation: string
  readonly domain: string
  /** It is on the list of operators that came with the app. */
  readonly known: boolean
}

export interface Title {
  readonly id: string
  readonly title: string
  readonly year: number | null
  readonly genres: readonly string[]
  /** The owner's own rating, from 1 to 5. */
  readonly stars: number | null
  /** What the owner would probably give, from 1 to 5. */
  readonly expected: number | null
  /** Why it is here; other titles in it are named, not numbered. */
  readonly reason: Reason | null
  readonly saved: boolean
  readonly hidden: boolean
  /** It was not in the list at the last visit. */
  readonly fresh: boolean
}

export interface Level {
  readonly name: LevelName
  /** What a whole life at this level may tell, at most. */
  readonly risk: Risks
}

/** What of a list is shown: all of it where both are empty. */
export interface Picked {
  readonly genre: string
  readonly decade: number | null
}

export interface Shelf {
  readonly titles: readonly Title[]
  readonly more: boolean
}

/** Something that happened, for one line on the screen. */
export interface Notice {
  readonly what:
    | 'bad link' | 'no answer' | 'other servers' | 'changed' | 'left' | 'forgotten' | 'erased' | 'imported'
    | 'bad file' | 'bad passphrase' | 'locked next time' | 'unlocked for good' | 'failed'
  /** Counts up, so that the same thing twice is seen twice. */
  readonly number: number
}

export interface Invited {
  readonly name: string
  readonly domain: string
  readonly servers: readonly Server[]
  readonly levels: readonly Level[]
  readonly level: LevelName
  /** The level is of the person, for all recommenders: it was chosen before. */
  readonly chosenBefore: boolean
  /** Public files are being read. */
  readonly busy: boolean
}

/** A report that the next sum would have of the person, if they say yes. */
export interface Asked {
  readonly name: string
  readonly servers: readonly Server[]
  readonly rated: number
  readonly before: Risks
  readonly after: Risks
  /** What later sums may add, at most: a yes holds for them as well. */
  readonly most: Risks
  /** Parts of one of what the level lets through. */
  readonly month: readonly [before: number, after: number]
  readonly life: readonly [before: number, after: number]
}

/** A report that was promised, and left. */
export interface Report {
  readonly task: string
  readonly part: 'linear' | 'pairs'
  readonly at: number
  readonly zeros: boolean
  readonly risk: Risks
}

/** One run of a recommender: one line, which unfolds to its reports. */
export interface Run {
  readonly at: number
  readonly name: string
  readonly reports: readonly Report[]
  /** Of its reports together. */
  readonly risk: Risks
  readonly zeros: boolean
}

/** Why something does not go on, until it does. */
export type Trouble =
  | { readonly what: 'clock'; readonly minutes: number }
  | { readonly what: 'not enrolled' | 'again' | 'given up' | 'refused' | 'stopped'; readonly why: string }

export interface Member {
  readonly address: string
  readonly name: string
  readonly domain: string
  readonly servers: readonly Server[]
  /** Of both servers, as people compare it. */
  readonly digest: string
  readonly enrolled: boolean
  readonly left: boolean
  readonly rated: number
  readonly trouble: Trouble | null
}

export interface ListView extends Shelf {
  readonly tab: 'list'
  readonly genres: readonly string[]
  readonly decades: readonly number[]
  readonly pick: Picked
  /** 'list': by the owner's ratings; 'known': by what many choose; 'none': no model has come. */
  readonly by: 'list' | 'known' | 'none'
  readonly fresh: readonly Title[]
  readonly trouble: Trouble | null
  /** When the owner was here before; null on the first day. */
  readonly before: number | null
}

export interface RateView extends Shelf {
  readonly tab: 'rate'
  readonly genres: readonly string[]
  readonly pick: Picked
  readonly search: string
  readonly mine: boolean
  /** Titles are in the order of how well known they are. */
  readonly wellKnown: boolean
  /** The first titles of the list as it is now. */
  readonly strip: readonly Title[]
}

export interface SavedView extends Shelf {
  readonly tab: 'saved'
  readonly hidden: readonly Title[]
}

export interface PrivacyView {
  readonly tab: 'privacy'
  readonly level: LevelName
  readonly levels: readonly Level[]
  readonly spent: Risks
  readonly month: number
  readonly life: number
  readonly takesPart: boolean | null
  readonly runs: readonly Run[]
  readonly members: readonly Member[]
  readonly passphrase: boolean
}

export interface AppView {
  readonly page: 'app'
  readonly member: { readonly address: string; readonly name: string }
  readonly others: readonly { readonly address: string; readonly name: string }[]
  readonly rated: number
  readonly savedCount: number
  /** Reports that left with anything of the owner in them. */
  readonly sent: number
  readonly asked: Asked | null
  readonly asking: boolean
  /** Ratings are only yes or no, where a recommender has no stars. */
  readonly stars: boolean
  readonly shown: ListView | RateView | SavedView | PrivacyView
}

export interface Shown {
  readonly host: HostInfo
  /** Chosen by the owner; '' is the browser's. */
  readonly language: string
  readonly notice: Notice | null
}

export type View = Shown & (
  | { readonly page: 'locked' }
  | {
    readonly page: 'start'
    readonly busy: boolean
    /** There is something to go back to. */
    readonly back: boolean
  }
  | { readonly page: 'invited'; readonly invited: Invited }
  | AppView
)

export interface HostInfo {
  readonly origin: string
  readonly kind: 'extension' | 'page'
  readonly version: string
  readonly digest: string
}

export type Act =
  | { readonly do: 'link'; readonly link: string }
  | { readonly do: 'level'; readonly level: LevelName }
  | { readonly do: 'join' }
  | { readonly do: 'back' }
  | { readonly do: 'tab'; readonly tab: Tab }
  | { readonly do: 'member'; readonly address: string }
  | { readonly do: 'pick'; readonly pick: Picked }
  | { readonly do: 'search'; readonly text: string }
  | { readonly do: 'mine'; readonly on: boolean }
  | { readonly do: 'more' }
  | { readonly do: 'rate'; readonly id: string; readonly stars: number | null }
  | { readonly do: 'save'; readonly id: string; readonly on: boolean }
  | { readonly do: 'hide'; readonly id: string; readonly on: boolean }
  | { readonly do: 'ask'; readonly on: boolean }
  | { readonly do: 'answer'; readonly yes: boolean }
  | { readonly do: 'language'; readonly language: string }
  | { readonly do: 'add' }
  | { readonly do: 'leave'; readonly address: string }
  | { readonly do: 'forget' }
  | { readonly do: 'erase' }
  | { readonly do: 'receipts' }
  | { readonly do: 'export'; readonly passphrase: string }
  | { readonly do: 'import'; readonly passphrase: string }
  | { readonly do: 'passphrase'; readonly old: string; readonly passphrase: string }
  | { readonly do: 'unlock'; readonly passphrase: string }
