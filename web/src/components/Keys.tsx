/** The keys that do something, for whoever asks with "?". */

const KEYS: readonly [string, readonly string[]][] = [
  ["Send the message", ["Enter"]],
  ["A new line in the message", ["Shift", "Enter"]],
  ["Edit the last message (in an empty box)", ["↑"]],
  ["Stop the reply", ["Esc"]],
  ["New chat", ["Ctrl", "Shift", "O"]],
  ["Look for words in all chats", ["Ctrl", "K"]],
  ["Go to the message box", ["/"]],
  ["Up and down in the list of chats", ["↑", "↓"]],
  ["Rename or delete the chat in the list", ["F2", "Delete"]],
  ["Bring a deleted chat back (outside of text)", ["Ctrl", "Z"]],
  ["Settings of the chat", ["Ctrl", ","]],
  ["This list (in the message box)", ["Ctrl", "/"]],
  ["This list (elsewhere)", ["?"]],
];

export function Keys() {
  return (
    <dl class="keys">
      {KEYS.map(([what, keys]) => (
        <div key={what}>
          <dt>{what}</dt>
          <dd>
            {keys.map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}
