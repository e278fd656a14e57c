/** The UI cell: draws what the worker hands it, and says what the person does. */

import { render } from 'preact'

import type { Act, View } from '../messages.ts'
import { App } from './app.tsx'
import './style.css'

addEventListener('message', ({ data: { core }, source }: MessageEvent<{ core: MessagePort }>) => {
  if (source !== parent) return
  const act = (act: Act): void => core.postMessage({ act })
  core.onmessage = ({ data: { view } }: MessageEvent<{ view: View }>) => render(<App view={view} act={act} />, document.body)
}, { once: true })
