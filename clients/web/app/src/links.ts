/**
 * The pages outside that the app links to, whole: the shell opens no other. So what a click tells
 * is which of these was opened.
 */
export const LINKS: readonly string[] = []
