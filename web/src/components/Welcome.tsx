/** An empty chat: what this is, and a few ways to begin. */
import { useApp } from "../app";
import { Mark } from "./Mark";

const BEGINNINGS = [
  "Explain how tides work to a ten-year-old",
  "Write a haiku about the first frost",
  "Show me a Python function that reverses a list",
];

export function Welcome() {
  const { chat } = useApp();
  return (
    <div class="welcome">
      <Mark />
      <h2>Where shall we begin?</h2>
      <p>This chat stays in memory, so each new message computes only its own tokens.</p>
      <ul>
        {BEGINNINGS.map((text) => (
          <li key={text}>
            <button type="button" onClick={() => chat.send(text)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
