/** Light, dark, or as the system has it. `public/theme.js` applies the choice before first paint. */
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "splice.theme";

function stored(): Theme {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

export const theme = signal<Theme>(stored());

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // The choice then lasts as long as the page.
  }
}
