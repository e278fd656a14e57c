declare module '*/build.mjs' {
  export function buildAll(out: string, given: { entries: { carrier: string } }): Promise<Record<string, string>>
}
declare module '*/serve.mjs' {
  export function serve(folder: string, port?: number): Promise<{ address: string; close(): void }>
}
