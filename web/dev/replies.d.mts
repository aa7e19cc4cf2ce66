export const TIDES: string;
export const CODE: string;
export const HOSTILE: string;
export const SHORT: string;
export function replyTo(text: string): string;
