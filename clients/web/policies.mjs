/** What the browser allows each document; a worker has its shell's. docs/threat-model.md says what is left. */

const NOTHING = {
  'default-src': "'none'",
  'connect-src': "'none'",
  'form-action': "'none'",
  'base-uri': "'none'",
  'object-src': "'none'",
  'require-trusted-types-for': "'script'",
}

const shell = {
  ...NOTHING,
  'script-src': "'self'",
  'style-src': "'self'",
  'frame-src': "'self'",
  'trusted-types': 'core',
}

export const POLICIES = {
  /** The worker is made from a blob: so it has this policy, whatever its host sends. */
  page: { ...shell, 'worker-src': 'blob:', 'manifest-src': "'self'", 'img-src': "'self'" },
  extension: { ...shell, 'worker-src': "'self'", 'img-src': "'self'" },
  ui: {
    ...NOTHING,
    'script-src': "'self'",
    'style-src': "'self'",
    'img-src': 'blob:',
    'frame-src': "'none'",
    'worker-src': "'none'",
    'trusted-types': "'none'",
  },
  carrier: {
    ...NOTHING,
    'script-src': "'self'",
    'connect-src': 'https:',
    'frame-src': "'none'",
    'worker-src': "'none'",
    'trusted-types': "'none'",
  },
}
