/**
 * What each cell does before anything else in it: it gives up what its policy cannot forbid, and what
 * it needed to load itself.
 */

// No browser heeds a policy on WebRTC.
for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection', 'mozRTCPeerConnection']) {
  delete (globalThis as Record<string, unknown>)[name]
}
const shut = document.createElement('meta')
shut.httpEquiv = 'Content-Security-Policy'
shut.content = "default-src 'none'; img-src blob:; connect-src https:"
document.head.append(shut)
