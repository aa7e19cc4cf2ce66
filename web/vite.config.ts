import { defineConfig } from "vitest/config";

const server = "http://127.0.0.1:8000";

export default defineConfig({
  // Relative, so that the page also works below a path prefix.
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../app/page",
    emptyOutDir: true,
    target: "es2022",
    // light-dark() and :has() as they are: rewritten they would not follow a chosen theme.
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    // The content policy has no data: sources, so every asset stays a file.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      "/v1/ws": { target: server, ws: true },
      "/v1": server,
      "/healthz": server,
      "/readyz": server,
    },
  },
  test: { environment: "jsdom", include: ["tests/**/*.test.{ts,tsx}"] },
});
