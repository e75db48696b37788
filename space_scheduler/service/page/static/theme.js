// Light, dark, or as the system has it; kept in this browser where that is allowed.

const KEY = "cosched-theme";
const NEXT = { automatic: "light", light: "dark", dark: "automatic" };

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Set the theme up, and have its button change it; `changed` is called after each change. */
export function themes(button, changed) {
  let theme = kept() in NEXT ? kept() : "automatic";
  const show = () => {
    if (theme === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    changed();
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // it holds until the page is closed
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show();
}
