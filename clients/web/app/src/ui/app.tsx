/** What is drawn of a view. */

import type { VNode } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import type { Act, AppView, Tab, View } from '../messages.ts'
import { Speech } from '../words/say.ts'
import { Ask, Invitation, ListPage, Locked, RatePage, SavedPage, Start, Strip } from './pages.tsx'
import { Picture, type With } from './parts.tsx'
import { PrivacyPage } from './privacy.tsx'

const TABS: readonly Tab[] = ['list', 'rate', 'saved', 'privacy']

export function App({ view, act }: { readonly view: View; readonly act: (act: Act) => void }): VNode {
  const language = view.language || navigator.language
  const speech = useMemo(() => new Speech(language), [language])
  const place = view.page === 'app' ? `app ${view.asking ? 'ask' : view.shown.tab}` : view.page
  const first = useRef(true)
  useEffect(() => {
    document.documentElement.lang = speech.language
    document.title = speech.say('app.name')
  }, [speech])
  useEffect(() => {
    // Whoever reads by ear or keyboard begins where the eye does.
    window.scrollTo(0, 0)
    const heading = document.querySelector('h1')
    heading?.setAttribute('tabindex', '-1')
    if (!first.current) heading?.focus({ preventScroll: true })
    first.current = false
  }, [place])
  return (
    <>
      <Page view={view} speech={speech} act={act} />
      <Said view={view} speech={speech} act={act} />
    </>
  )
}

function Page({ view, speech, act }: With & { readonly view: View }): VNode {
  if (view.page === 'locked') return <Locked speech={speech} act={act} />
  if (view.page === 'start') return <Start busy={view.busy} onBack={view.back} speech={speech} act={act} />
  if (view.page === 'invited') return <Invitation invited={view.invited} speech={speech} act={act} />
  if (view.asking && view.asked !== null) return <Ask asked={view.asked} speech={speech} act={act} />
  const { shown } = view
  return (
    <div class={`app ${shown.tab}`}>
      <main class="page" id="main">
        {view.others.length > 1 && <Members view={view} speech={speech} act={act} />}
        {shown.tab === 'list' && <ListPage view={view} shown={shown} speech={speech} act={act} />}
        {shown.tab === 'rate' && <RatePage view={view} shown={shown} speech={speech} act={act} />}
        {shown.tab === 'saved' && <SavedPage view={view} shown={shown} speech={speech} act={act} />}
        {shown.tab === 'privacy' &&
          <PrivacyPage shown={shown} host={view.host} language={view.language} speech={speech} act={act} />}
      </main>
      <div class="bottom">
        {shown.tab === 'rate' && <Strip view={view} shown={shown} speech={speech} act={act} />}
        <nav aria-label={speech.say('tabs')}>
          <span class="brand" aria-hidden="true">{speech.say('app.name')}</span>
          {TABS.map((tab) => (
            <button key={tab} type="button" aria-current={tab === shown.tab ? 'page' : undefined} onClick={() => act({ do: 'tab', tab })}>
              <Picture of={tab} full={tab === shown.tab} />
              <span>{speech.say(`tab.${tab}`)}</span>
              {tab === 'saved' && view.savedCount > 0 && <span class="count">{view.savedCount}</span>}
            </button>
          ))}
        </nav>
      </div>
    </div>
  )
}

const Members = ({ view, speech, act }: With & { readonly view: AppView }): VNode => (
  <select class="member" aria-label={speech.say('privacy.members')} value={view.member.address}
    onChange={(event) => act({ do: 'member', address: event.currentTarget.value })}>
    {view.others.map(({ address, name }) => <option key={address} value={address}>{name}</option>)}
  </select>
)

/** What has just happened, for some seconds. */
function Said({ view: { notice }, speech }: With & { readonly view: View }): VNode {
  const [past, pass] = useState(0)
  useEffect(() => {
    const timer = setTimeout(() => pass(notice?.number ?? 0), 7000)
    return () => clearTimeout(timer)
  }, [notice?.number])
  const here = notice !== null && notice.number !== past
  return <div class={here ? 'said here' : 'said'} role="status">{here ? speech.say(`notice.${notice.what}`) : ''}</div>
}
