/** The page of privacy: what has left, what it tells, and everything that the owner may change. */

import type { VNode } from 'preact'
import { useState } from 'preact/hooks'

import type { Act, HostInfo, PrivacyView, Report, Run } from '../messages.ts'
import { Fields, Gauge, Levels, Section, Sure, Why, type With } from './parts.tsx'

export function PrivacyPage({ shown, host, language, speech, act }: With & {
  readonly shown: PrivacyView
  readonly host: HostInfo
  readonly language: string
}): VNode {
  const { say } = speech
  const { spent: { other }, month, life, takesPart, runs, members, level, levels } = shown
  const told = runs.some(({ zeros }) => !zeros)
  return (
    <>
      <header class="head"><h1>{say('privacy.title')}</h1></header>
      <Section title={say('privacy.spent')}>
        <p class="promise">
          {told
            ? say('privacy.sentence', { right: speech.right(other), adjective: speech.adjective(other), sure: speech.sure(other) })
            : say('privacy.nothing')}{told && ` ${say('level.noise')}`}
        </p>
        <div class="gauges">
          <Gauge label={say('gauge.person')} from={0.5} value={other.right} text={say('gauge.right', { right: speech.right(other) })} />
          <Gauge label={say('gauge.month')} value={month} text={speech.percent(month)} />
          <Gauge label={say('gauge.life')} value={life} text={speech.percent(life)} />
        </div>
        <p>{say(takesPart === null ? 'privacy.takesPartOpen' : takesPart ? 'privacy.takesPart' : 'privacy.takesPartNot')}</p>
        <div class="even">
          <button type="button" class="answer" aria-pressed={takesPart === true} onClick={() => act({ do: 'answer', yes: true })}>{say('ask.yes')}</button>
          <button type="button" class="answer" aria-pressed={takesPart === false} onClick={() => act({ do: 'answer', yes: false })}>{say('ask.no')}</button>
        </div>
      </Section>
      <Section title={say('privacy.activity')}>
        {runs.length === 0 && <p class="calm">{say('privacy.noActivity')}</p>}
        {runs.map((run) => <RunLine key={run.reports[0].task} run={run} speech={speech} act={act} />)}
        {runs.length > 0 && <button type="button" class="plain" onClick={() => act({ do: 'receipts' })}>{say('privacy.receipts')}</button>}
      </Section>
      <Section title={say('privacy.level')}>
        <Levels levels={levels} level={level} speech={speech} choose={(each) => act({ do: 'level', level: each })} />
      </Section>
      <Section title={say('privacy.members')}>
        <ul class="who">
          {members.map(({ address, name, domain, servers, left, rated, trouble, digest }) => (
            <li key={address}>
              <b>{name}</b> {left && <mark>{say('privacy.isLeft')}</mark>}
              <small>{say('privacy.memberOf', {
                domain, leader: `${servers[0].organisation} (${servers[0].domain})`, helper: `${servers[1].organisation} (${servers[1].domain})`,
              })} · {say('privacy.rated', { n: rated })}</small>
              <small>{say('privacy.compare')} <code>{digest}</code></small>
              <Why trouble={trouble} speech={speech} />
              {!left && <Sure label={say('privacy.leave')} sure={say('privacy.leaveSure')} done={() => act({ do: 'leave', address })} />}
            </li>
          ))}
        </ul>
        <button type="button" class="plain" onClick={() => act({ do: 'add' })}>{say('privacy.add')}</button>
      </Section>
      <Section title={say('privacy.device')}>
        <Secrets shown={shown} speech={speech} act={act} />
        <p><small>{say('privacy.forgetText')}</small></p>
        <Sure label={say('privacy.forget')} sure={say('privacy.forgetSure')} done={() => act({ do: 'forget' })} />
        <p><small>{say('privacy.eraseText')}</small></p>
        <Sure label={say('privacy.erase')} sure={say('privacy.eraseSure')} done={() => act({ do: 'erase' })} />
      </Section>
      <Section title={say('privacy.about')}>
        <p>{host.kind === 'page' ? say('privacy.servedPage', { origin: host.origin }) : say('privacy.servedExtension')}</p>
        {/* Behind a lock nothing happens before somebody is here. */}
        <p>{say(host.kind === 'page' || shown.passphrase ? 'privacy.leavesPage' : 'privacy.leavesExtension')}</p>
        <p>{say('privacy.version', { version: host.version })}<br />
          {say('privacy.digest')} <code>{host.digest}</code></p>
        <label>{say('privacy.language')}{' '}
          <select value={language} onChange={(event) => act({ do: 'language', language: event.currentTarget.value })}>
            <option value="">{say('privacy.languageAuto')}</option>
            <option value="en" lang="en">English</option>
            <option value="de" lang="de">Deutsch</option>
          </select>
        </label>
      </Section>
    </>
  )
}

function RunLine({ run, speech }: With & { readonly run: Run }): VNode {
  const { say } = speech
  const { at, name, zeros, risk, reports } = run
  return (
    <details class="fold">
      <summary>
        <time dateTime={new Date(at * 1000).toISOString()}>{speech.shortly(at)}</time>
        <span>{zeros ? say('privacy.runZeros', { name }) : say('privacy.run', { name, adjective: speech.adjective(risk.other) })}</span>
      </summary>
      <ul>{reports.map((report) => <li key={report.task}>{exactly(report)}</li>)}</ul>
    </details>
  )

  function exactly({ at: moment, part, zeros: none, task, risk: { other } }: Report): VNode {
    const values = { right: speech.right(other), epsilon: speech.epsilon(other) }
    return (
      <>
        <time dateTime={new Date(moment * 1000).toISOString()}>{speech.moment(moment)}</time>{' '}
        {none ? say('privacy.reportZeros') : say(part === 'linear' ? 'privacy.reportLinear' : 'privacy.reportPairs', values)}{' '}
        <code>{say('privacy.task', { task })}</code>
      </>
    )
  }
}

/** A file to take along, and a lock. */
function Secrets({ shown, speech, act }: With & { readonly shown: PrivacyView }): VNode {
  const { say } = speech
  const [texts, change] = useState({ file: '', old: '', passphrase: '' })
  const field = (name: keyof typeof texts, label: string): VNode => (
    <>
      <label for={name}>{label}</label>
      <input id={name} type="password" autocomplete={name === 'old' ? 'current-password' : 'new-password'} value={texts[name]}
        onInput={(event) => change({ ...texts, [name]: event.currentTarget.value })} />
    </>
  )
  const send = (what: Act): void => {
    act(what)
    change({ file: '', old: '', passphrase: '' })
  }
  const lock = (): void => send({ do: 'passphrase', old: texts.old, passphrase: texts.passphrase })
  return (
    <>
      <details class="fold">
        <summary>{say('privacy.export')}</summary>
        <Fields send={() => undefined}>
          <p><small>{say('privacy.exportText')}</small></p>
          {field('file', say('privacy.passphraseFile'))}
          <div class="even">
            <button type="button" class="plain" disabled={texts.file === ''}
              onClick={() => send({ do: 'export', passphrase: texts.file })}>{say('privacy.export')}</button>
            <button type="button" class="plain" disabled={texts.file === ''}
              onClick={() => send({ do: 'import', passphrase: texts.file })}>{say('privacy.import')}</button>
          </div>
        </Fields>
      </details>
      <details class="fold">
        <summary>{say('privacy.lock')}</summary>
        <Fields send={lock}>
          <p><small>{say(shown.passphrase ? 'privacy.locked' : 'privacy.lockText')}</small></p>
          {shown.passphrase && field('old', say('privacy.old'))}
          {field('passphrase', say('privacy.passphrase'))}
          <button type="button" class="plain" disabled={texts.passphrase === '' && !shown.passphrase} onClick={lock}>
            {say(shown.passphrase && texts.passphrase === '' ? 'privacy.unlockForGood' : 'privacy.lock')}
          </button>
        </Fields>
      </details>
    </>
  )
}
