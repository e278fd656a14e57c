/** What the build and browsers have that TypeScript's own declarations lack. */

declare module '*.css'

interface Window {
  readonly trustedTypes?: {
    createPolicy(name: string, make: { createScriptURL(url: string): string }): {
      createScriptURL(url: string): unknown
    }
  }
}
