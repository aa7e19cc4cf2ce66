/**
 * Colours code blocks. A chunk of its own, loaded with the first code block, with the languages
 * that chats are about; other languages stay plain. Highlighting adds spans with classes, no more.
 */
import DOMPurify from "dompurify";
import highlighter from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = {
  ...{ bash, cpp, css, diff, go, java, javascript, json, markdown, python, rust, sql },
  ...{ typescript, xml, yaml },
};
for (const [name, language] of Object.entries(LANGUAGES))
  highlighter.registerLanguage(name, language);

/** Beyond this a block would hold up the page for longer than its colours are worth. */
const MAX_CHARS = 50_000;

/** Colours the text of a `<code class="language-…">` in place, where the language is known. */
export function highlight(code: Element): void {
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
  const text = code.textContent ?? "";
  if (!highlighter.getLanguage(language) || text.length > MAX_CHARS) return;
  const { value } = highlighter.highlight(text, { language, ignoreIllegals: true });
  code.replaceChildren(
    DOMPurify.sanitize(value, {
      ALLOWED_TAGS: ["span"],
      ALLOWED_ATTR: ["class"],
      RETURN_DOM_FRAGMENT: true,
    }),
  );
}
