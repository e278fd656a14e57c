/** The worker, where the ratings live. (Stands in until the app is there.) */

addEventListener('message', ({ data }) => {
  data.ui.postMessage({ view: data.host })
  data.shell.postMessage({ rest: 60 })
}, { once: true })
