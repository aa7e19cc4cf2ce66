/** The question for an API key, in place of everything else. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Asking } from "../access";
import { useApp } from "../app";
import { Mark } from "./Mark";

const WHY: Record<Asking, string> = {
  first: "This server asks for an API key.",
  refused: "The server no longer takes this key.",
  forbidden: "This key is good, but not for chatting.",
};

export function LogIn({ why }: { why: Asking }) {
  const { logIn } = useApp();
  const field = useRef<HTMLInputElement>(null);
  const [key, setKey] = useState("");
  const [keep, setKeep] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    document.title = "Log in · Splice";
    field.current?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || !key.trim()) return;
    setBusy(true);
    const trouble = await logIn(key.trim(), keep);
    setBusy(false);
    setProblem(trouble);
    if (trouble !== null) field.current?.focus();
  };
  return (
    <main class="log-in">
      <form onSubmit={(event) => void submit(event)}>
        <Mark />
        <h1>Log in</h1>
        <p>{WHY[why]}</p>
        <label for="key">API key</label>
        <input
          id="key"
          ref={field}
          type="password"
          autocomplete="off"
          spellcheck={false}
          placeholder="sk-splice-…"
          value={key}
          aria-invalid={problem !== null}
          aria-describedby={problem === null ? undefined : "key-problem"}
          onInput={(event) => setKey(event.currentTarget.value)}
        />
        {problem !== null && (
          <p id="key-problem" class="log-in-problem" role="alert">
            {problem}
          </p>
        )}
        <label class="log-in-keep">
          <input
            type="checkbox"
            checked={keep}
            onChange={(event) => setKeep(event.currentTarget.checked)}
          />
          Keep it until this tab is closed
        </label>
        <button type="submit" class="button primary" disabled={busy || !key.trim()}>
          {busy ? "One moment…" : "Log in"}
        </button>
      </form>
    </main>
  );
}
