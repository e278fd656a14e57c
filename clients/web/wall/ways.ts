/**
 * Ways out of a page or a worker. Each reaches, or tries to, an address with its own name; who waits
 * there counts them (adversary.ts). A way that a context has not throws, which is as good as closed.
 */

/** Where a way leads. */
export interface To {
  /** An address with this ending, which the adversary answers with something of that kind. */
  at(kind: string): string
  /** A port of the adversary for this way alone: some have no path. */
  readonly port: number
}

type Way = (to: To) => unknown

const add = <K extends keyof HTMLElementTagNameMap | 'frame' | 'frameset'>(
  tag: K, given: Record<string, unknown> = {}, parent: Element = document.body,
): K extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[K] : HTMLElement => {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, String(value))
  parent.append(element)
  return element as never
}

const svg = (tag: string, given: Record<string, string>, parent: Element): Element => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, value)
  parent.append(element)
  return element
}
const drawing = (): Element => svg('svg', { width: '9', height: '9' }, document.body)

/** A way by a stylesheet; a box wears it. */
const styled = (rule: (to: To) => string): Way => (to) => {
  const name = `box${Math.random().toString(36).slice(2)}`
  add('style', {}, document.head).textContent = rule(to).replaceAll('BOX', name)
  add('div', { class: name }).textContent = 'box'
}
const link = (given: (to: To) => Record<string, string>): Way => (to) => void add('link', given(to), document.head)
const click = (given: (to: To) => Record<string, string>): Way => (to) => {
  const anchor = add('a', given(to))
  anchor.textContent = 'a'
  anchor.click()
}
const form = (given: (to: To) => Record<string, string>, submit = 'submit' as 'submit' | 'requestSubmit'): Way =>
  (to) => {
    const made = add('form', given(to))
    add('input', { name: 'rating', value: '5' }, made)
    made[submit]()
  }

type Maker = Record<'createScriptURL' | 'createScript' | 'createHTML', (text: string) => string>
let policy: Maker | undefined
/** Pass a text through a policy of one's own, where a page demands one and lets one be made. */
const trusted = (kind: keyof Maker, text: string): string => {
  try {
    const same = (given: string) => given
    policy ??= (globalThis as unknown as { trustedTypes: { createPolicy(name: string, make: Maker): Maker } })
      .trustedTypes.createPolicy('core', { createScriptURL: same, createScript: same, createHTML: same })
  } catch { /* no types, or no policy allowed */ }
  return policy?.[kind](text) ?? text
}
const blob = (code: string, type = 'text/javascript'): string => URL.createObjectURL(new Blob([code], { type }))
const asked = (to: To): string => `fetch(${JSON.stringify(to.at('txt'))}, { mode: 'no-cors' })`
const worker = (url: string, options?: WorkerOptions): Worker => new Worker(trusted('createScriptURL', url), options)
const peer = (from: typeof globalThis, urls: string): void => {
  const made = new from.RTCPeerConnection({ iceServers: [{ urls, username: 'u', credential: 'c' }] })
  made.createDataChannel('it')
  made.createOffer().then((offer) => made.setLocalDescription(offer))
}
const any = globalThis as unknown as Record<string, any>

export const WAYS: Record<string, Way> = {
  'fetch': (to) => fetch(to.at('txt')),
  'fetch no-cors': (to) => fetch(to.at('txt'), { mode: 'no-cors' }),
  'fetch POST': (to) => fetch(to.at('txt'), { method: 'POST', body: 'rating=5' }),
  'fetch keepalive': (to) => fetch(to.at('txt'), { keepalive: true, mode: 'no-cors' }),
  'fetch preflight': (to) => fetch(to.at('txt'), { method: 'PUT', headers: { 'x-rating': '5' } }),
  'fetchLater': (to) => any.fetchLater(to.at('txt'), { activateAfter: 0 }),
  'XMLHttpRequest': (to) => {
    const request = new XMLHttpRequest()
    request.open('GET', to.at('txt'))
    request.send()
  },
  'XMLHttpRequest sync': (to) => {
    const request = new XMLHttpRequest()
    request.open('GET', to.at('txt'), false)
    request.send()
  },
  'sendBeacon': (to) => navigator.sendBeacon(to.at('txt'), 'rating=5'),
  'WebSocket': (to) => void new WebSocket(to.at('txt').replace('http', 'ws')),
  'WebSocketStream': (to) => void new any.WebSocketStream(to.at('txt').replace('http', 'ws')),
  'EventSource': (to) => void new EventSource(to.at('txt')),
  'WebTransport': (to) => void new any.WebTransport(`https://127.0.0.1:${to.port}/`),
  'WebRTC by STUN': (to) => peer(globalThis, `stun:127.0.0.1:${to.port}`),
  'WebRTC by TURN over TCP': (to) => peer(globalThis, `turn:127.0.0.1:${to.port}?transport=tcp`),
  'WebRTC of an empty frame': (to) =>
    peer(add('iframe').contentWindow as unknown as typeof globalThis, `stun:127.0.0.1:${to.port}`),
  'Cache.add': async (to) => (await caches.open('it')).add(to.at('txt')),
  'PaymentRequest': (to) => new PaymentRequest(
    [{ supportedMethods: to.at('txt') }], { total: { label: 'it', amount: { currency: 'EUR', value: '1' } } },
  ).canMakePayment(),
  'FedCM': (to) => navigator.credentials.get(
    { identity: { providers: [{ configURL: to.at('json'), clientId: 'it' }] } } as CredentialRequestOptions),

  'importScripts': (to) => any.importScripts(trusted('createScriptURL', to.at('js'))),
  'import()': (to) => import(/* @vite-ignore */ to.at('js')),
  'import() of data': (to) => import(/* @vite-ignore */ `data:text/javascript,${encodeURIComponent(asked(to))}`),
  'eval': (to) => (0, eval)(trusted('createScript', asked(to))),
  'setTimeout of a text': (to) => setTimeout(trusted('createScript', asked(to)) as unknown as () => void),
  'Worker': (to) => void worker(to.at('js')),
  'Worker of a blob': (to) => void worker(blob(asked(to))),
  'Worker of data': (to) => void worker(`data:text/javascript,${encodeURIComponent(asked(to))}`),
  'Worker of a blob that imports': (to) => void worker(blob(`import ${JSON.stringify(to.at('js'))}`), { type: 'module' }),
  'Worker of a blob that imports scripts': (to) => void worker(blob(`importScripts(${JSON.stringify(to.at('js'))})`)),
  'SharedWorker of a blob': (to) => void new SharedWorker(trusted('createScriptURL', blob(asked(to)))),
  'SharedWorker of data': (to) => void new SharedWorker(
    trusted('createScriptURL', `data:text/javascript,${encodeURIComponent(asked(to))}`)),
  'AudioWorklet': (to) => new AudioContext().audioWorklet.addModule(to.at('js')),
  'paint worklet': (to) => any.CSS.paintWorklet.addModule(to.at('js')),
  'FontFace': (to) => new FontFace('it', `url(${to.at('woff2')})`).load(),

  'script': (to) => void (add('script').src = trusted('createScriptURL', to.at('js'))),
  'script as a module': (to) =>
    void (Object.assign(add('script'), { type: 'module' }).src = trusted('createScriptURL', to.at('js'))),
  'script of a blob': (to) => void (add('script').src = trusted('createScriptURL', blob(asked(to)))),
  'script of data': (to) =>
    void (add('script').src = trusted('createScriptURL', `data:text/javascript,${encodeURIComponent(asked(to))}`)),
  'script in a drawing': (to) => void svg('script', { href: trusted('createScriptURL', to.at('js')) }, drawing()),
  'script inline': (to) => {
    const made = document.createElement('script')
    made.text = trusted('createScript', asked(to))
    document.body.append(made)
  },
  'speculation rules, prefetch': (to) => {
    const made = Object.assign(document.createElement('script'), { type: 'speculationrules' })
    made.text = trusted('createScript', JSON.stringify({ prefetch: [{ urls: [to.at('html')], eagerness: 'immediate' }] }))
    document.body.append(made)
  },
  'innerHTML': (to) => void (add('div').innerHTML = trusted('createHTML', `<img src="${to.at('png')}">`)),
  'document.write': (to) => {
    const page = add('iframe').contentDocument!
    page.write(trusted('createHTML', `<img src="${to.at('png')}">`))
  },

  'link stylesheet': link((to) => ({ rel: 'stylesheet', href: to.at('css') })),
  'link alternate stylesheet': link((to) => ({ rel: 'alternate stylesheet', title: 'it', href: to.at('css') })),
  'link preload': link((to) => ({ rel: 'preload', as: 'image', href: to.at('png') })),
  'link preload of fetch': link((to) => ({ rel: 'preload', as: 'fetch', crossorigin: '', href: to.at('txt') })),
  'link preload of a font': link((to) => ({ rel: 'preload', as: 'font', crossorigin: '', href: to.at('woff2') })),
  'link modulepreload': link((to) => ({ rel: 'modulepreload', href: to.at('js') })),
  'link prefetch': link((to) => ({ rel: 'prefetch', href: to.at('txt') })),
  'link prerender': link((to) => ({ rel: 'prerender', href: to.at('html') })),
  'link preconnect': link((to) => ({ rel: 'preconnect', href: `https://127.0.0.1:${to.port}` })),
  'link preconnect crossorigin': link((to) => ({ rel: 'preconnect', crossorigin: '', href: `https://127.0.0.1:${to.port}` })),
  'link icon': link((to) => ({ rel: 'icon', href: to.at('png') })),
  'link manifest': link((to) => ({ rel: 'manifest', crossorigin: '', href: to.at('json') })),
  'link compression-dictionary': link((to) => ({ rel: 'compression-dictionary', crossorigin: '', href: to.at('txt') })),

  'Image': (to) => void (new Image().src = to.at('png')),
  'img srcset': (to) => void add('img', { srcset: `${to.at('png')} 1x` }),
  'picture': (to) => {
    const picture = add('picture')
    add('source', { srcset: to.at('png') }, picture)
    add('img', {}, picture)
  },
  'input image': (to) => void add('input', { type: 'image', src: to.at('png') }),
  'body background': (to) => document.body.setAttribute('background', to.at('png')),
  'table background': (to) => void add('table', { background: to.at('png') }),
  'base': (to) => {
    const base = add('base', { href: to.at('/') }, document.head)
    add('img', { src: 'it.png' })
    setTimeout(() => base.remove())
  },
  'svg image': (to) => void svg('image', { href: to.at('png'), width: '9', height: '9' }, drawing()),
  'svg use': (to) => void svg('use', { href: `${to.at('svg')}#it` }, drawing()),
  'svg feImage': (to) => {
    const whole = drawing()
    svg('feImage', { href: to.at('png') }, svg('filter', { id: 'fe' }, whole))
    svg('rect', { width: '9', height: '9', filter: 'url(#fe)' }, whole)
  },
  'svg image in a blob': (to) => void add('img', {
    src: blob(`<svg xmlns="http://www.w3.org/2000/svg"><image href="${to.at('png')}"/></svg>`, 'image/svg+xml') }),
  'video': (to) => void add('video', { src: to.at('mp4'), preload: 'auto' }),
  'video poster': (to) => void add('video', { poster: to.at('png') }),
  'video source': (to) => void add('source', { src: to.at('mp4') }, add('video', { preload: 'auto' })),
  'Audio': (to) => void Object.assign(new Audio(to.at('mp3')), { preload: 'auto' }).load(),
  'track': (to) => {
    const video = add('video', { crossorigin: '' })
    const track = add('track', { src: to.at('vtt'), kind: 'captions', default: '' }, video)
    track.track.mode = 'showing'
  },
  'object': (to) => void add('object', { data: to.at('html') }),
  'object with an image': (to) => void add('object', { data: to.at('png'), type: 'image/png' }),
  'embed': (to) => void add('embed', { src: to.at('html') }),
  'iframe': (to) => void add('iframe', { src: to.at('html') }),
  'iframe srcdoc': (to) => void (add('iframe').srcdoc = trusted('createHTML', `<img src="${to.at('png')}">`)),
  'iframe of a blob': (to) => void add('iframe', { src: blob(`<img src="${to.at('png')}">`, 'text/html') }),
  'iframe of data': (to) => void add('iframe', { src: `data:text/html,<img src="${to.at('png')}">` }),
  'iframe that refreshes': (to) => void (add('iframe').srcdoc =
    trusted('createHTML', `<meta http-equiv="refresh" content="0;url=${to.at('html')}">`)),
  'frame in a frameset': (to) => void add('frame', { src: to.at('html') }, add('frameset')),
  'XSLT of a document': (to) => {
    const page = `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="${to.at('xsl')}"?><it/>`
    add('iframe', { src: blob(page, 'text/xml') })
  },

  'CSS @import': styled((to) => `@import url(${to.at('css')});`),
  'CSS background': styled((to) => `.BOX { background: url(${to.at('png')}) }`),
  'CSS image-set': styled((to) => `.BOX { background: image-set(url(${to.at('png')}) 1x) }`),
  'CSS list-style': styled((to) => `.BOX { display: list-item; list-style: url(${to.at('png')}) }`),
  'CSS border-image': styled((to) => `.BOX { border: 9px solid; border-image: url(${to.at('png')}) 9 }`),
  'CSS content': styled((to) => `.BOX::before { content: url(${to.at('png')}) }`),
  'CSS cursor': styled((to) => `.BOX { cursor: url(${to.at('png')}), auto }`),
  'CSS mask': styled((to) => `.BOX { mask-image: url(${to.at('png')}) }`),
  'CSS shape-outside': styled((to) => `.BOX { float: left; shape-outside: url(${to.at('png')}) }`),
  'CSS filter': styled((to) => `.BOX { filter: url(${to.at('svg')}#it) }`),
  'CSS clip-path': styled((to) => `.BOX { clip-path: url(${to.at('svg')}#it) }`),
  'CSS @font-face': styled((to) =>
    `@font-face { font-family: BOX; src: url(${to.at('woff2')}) } .BOX { font-family: BOX }`),
  'style attribute': (to) => void add('div', { style: `background: url(${to.at('png')})` }),
  'style property': (to) => void (add('div').style.backgroundImage = `url(${to.at('png')})`),
  'adopted stylesheet': (to) => {
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(`body { list-style-image: url(${to.at('png')}) } .adopted { background: url(${to.at('png')}) }`)
    document.adoptedStyleSheets.push(sheet)
    add('div', { class: 'adopted' }).textContent = 'it'
  },

  'open': (to) => void open(to.at('html')),
  'open noopener': (to) => void open(to.at('html'), '_blank', 'noopener'),
  'open, then navigate': (to) => void (open('about:blank')!.location.href = to.at('html')),
  'open a blob': (to) => void open(blob(`<img src="${to.at('png')}">`, 'text/html')),
  'link _blank': click((to) => ({ href: to.at('html'), target: '_blank' })),
  'link that pings': click((to) => ({ href: '#it', ping: to.at('txt') })),
  'form _blank': form((to) => ({ action: to.at('html'), target: '_blank' })),
  'form POST _blank': form((to) => ({ action: to.at('html'), target: '_blank', method: 'post' })),
  'form in a frame': (to) => {
    add('iframe', { name: 'framed' })
    form(() => ({ action: to.at('html'), target: 'framed' }))(to)
  },
  'script address': (to) => {
    const frame = add('iframe')
    frame.contentWindow!.location.href = `javascript:${asked(to)}`
  },
}

/** Ways that end the document which takes them, or that a browser ends it for. */
export const LAST: Record<string, Way> = {
  'location.href': (to) => void (location.href = to.at('html')),
  'location.assign': (to) => location.assign(to.at('html')),
  'location.replace': (to) => location.replace(to.at('html')),
  'navigation.navigate': (to) => any.navigation.navigate(to.at('html')),
  'open _self': (to) => void open(to.at('html'), '_self'),
  'open _top': (to) => void open(to.at('html'), '_top'),
  'parent.location': (to) => void (parent.location.href = to.at('html')),
  'top.location': (to) => void (top!.location.href = to.at('html')),
  'link': click((to) => ({ href: to.at('html') })),
  'link _top': click((to) => ({ href: to.at('html'), target: '_top' })),
  'link that downloads': click((to) => ({ href: to.at('bin'), download: 'it' })),
  'svg link': (to) => void svg('a', { href: to.at('html') }, drawing()).dispatchEvent(new MouseEvent('click')),
  'form': form((to) => ({ action: to.at('html') })),
  'form POST': form((to) => ({ action: to.at('html'), method: 'post' })),
  'form requestSubmit': form((to) => ({ action: to.at('html') }), 'requestSubmit'),
  'formaction': (to) => add('button', { formaction: to.at('html') }, add('form')).click(),
  'meta refresh': (to) => void add('meta', { 'http-equiv': 'refresh', content: `0;url=${to.at('html')}` }, document.head),
  'navigate to a blob': (to) => void (location.href = blob(`<img src="${to.at('png')}">`, 'text/html')),
  'navigate to data': (to) => void (location.href = `data:text/html,<img src="${to.at('png')}">`),
}

const api = any.browser ?? any.chrome
/** Ways by what a browser gives an extension's own pages. */
export const APIS: Record<string, Way> = {
  'tabs.create': (to) => api.tabs.create({ url: to.at('html') }),
  'tabs.create in the background': (to) => api.tabs.create({ url: to.at('html'), active: false }),
  'tabs.update': async (to) => {
    const { id } = await api.tabs.create({ url: 'about:blank', active: false })
    await api.tabs.update(id, { url: to.at('html') })
  },
  'windows.create': (to) => api.windows.create({ url: to.at('html'), focused: false }),
  'windows.create as a popup': (to) => api.windows.create({ url: to.at('html'), type: 'popup' }),
  'downloads.download': (to) => api.downloads.download({ url: to.at('bin') }),
  'offscreen.createDocument': (to) =>
    api.offscreen.createDocument({ url: to.at('html'), reasons: ['WORKERS'], justification: 'it' }),
  'action.setIcon': (to) => api.action.setIcon({ path: to.at('png') }),
  'action.setPopup': async (to) => {
    await api.action.setPopup({ popup: to.at('html') })
    await api.action.openPopup()
  },
  'search.query': (to) => api.search.query({ text: to.at('html') }),
  'runtime.setUninstallURL': (to) => api.runtime.setUninstallURL(to.at('html')),
  'scripting.executeScript': (to) => api.scripting.executeScript({ target: { tabId: 1 }, files: [to.at('js')] }),
}

/** Ways that have no path, and what counts them. */
export const PORTS: Record<string, 'tcp' | 'udp'> = {
  'WebTransport': 'udp', 'WebRTC by STUN': 'udp', 'WebRTC of an empty frame': 'udp',
  'WebRTC by TURN over TCP': 'tcp', 'link preconnect': 'tcp', 'link preconnect crossorigin': 'tcp',
}

export const ALL = { ...WAYS, ...LAST, ...APIS }
export const TOGETHER = [...Object.keys(WAYS), ...Object.keys(APIS)]

/** What a context is told: which ways, and where they lead. */
export interface Order {
  readonly base: string
  readonly context: string
  readonly ports: Readonly<Record<string, number>>
  readonly names: readonly string[]
}

/** Try some ways at once; return how many were tried. */
export async function tried({ base, context, ports, names }: Order): Promise<number> {
  for (const name of names) {
    const at = (kind: string): string =>
      `${base}/hit/${encodeURIComponent(context)}/${encodeURIComponent(name)}/it${kind === '/' ? '/' : `.${kind}`}`
    try {
      Promise.resolve(ALL[name]({ at, port: ports[name] })).catch(() => {})
    } catch { /* closed, or not there */ }
  }
  return names.length
}
