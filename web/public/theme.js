// Runs before the first paint, as a file of its own (the content policy allows no inline script),
// so that a chosen theme never flashes in the other colours.
(() => {
  try {
    const chosen = localStorage.getItem("splice.theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage can be forbidden; the system's theme is then the theme.
  }
})();
