/** An empty chat: what this is, and a few ways to begin. */
import { useApp } from "../app";
import { Mark } from "./Mark";

const BEGINNINGS = [
  "Explain the tides to a child",
  "Write a haiku about frost",
  "Reverse a list in Python",
];

export function Welcome() {
  const { chat } = useApp();
  return (
    <div class="welcome">
      <Mark />
      <h2>Where shall we begin?</h2>
      <p>
        Chats are saved as you go. However long one becomes, a new message computes only its own
        words.
      </p>
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
