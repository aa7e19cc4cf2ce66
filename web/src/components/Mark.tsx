/** The mark: two strands that become one line. A served file, as the content policy wants. */
import mark from "../mark.svg";

export function Mark() {
  return <img class="mark" src={mark} alt="" width="32" height="32" />;
}
