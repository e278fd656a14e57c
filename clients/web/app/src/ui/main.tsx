/** The UI cell: draws what the worker hands it. (Stands in until the app is there.) */

import { render } from 'preact'

import './style.css'

addEventListener('message', ({ data }) => {
  data.core.onmessage = (told: MessageEvent) =>
    render(<p>{JSON.stringify(told.data.view)}</p>, document.body)
}, { once: true })
