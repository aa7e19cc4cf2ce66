/**
 * Markdown to a DOM fragment that is safe to show: parsed with HTML off, then sanitised against a
 * short list of tags and attributes.
 *
 * Invariants: nothing in a fragment loads anything (an image becomes a link to it), no attribute
 * carries style or script, and links go to http, https and mailto only.
 */
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";

const SAFE_URL = /^(?:https?:|mailto:)/i;
const TAGS = [
  ..."a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong".split(" "),
  ..."table tbody td th thead tr ul".split(" "),
];
const CLASS = /^(?:language-[\w+#.-]{1,40}|align-(?:left|center|right))$/;

const markdown = makeMarkdown();

function makeMarkdown(): InstanceType<typeof MarkdownIt> {
  const md = new MarkdownIt({ html: false, linkify: true, breaks: false });
  // Bare words such as "main.py" are no links in a chat about code.
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  // A definition far below would change blocks that are finished; its address is a link by itself.
  md.block.ruler.disable("reference");
  md.validateLink = (url) => SAFE_URL.test(url.trim());
  md.renderer.rules.image = (tokens, i) => {
    const token = tokens[i];
    const url = String(token?.attrGet("src") ?? "");
    const label = md.utils.escapeHtml(token?.content || url);
    return `<a href="${md.utils.escapeHtml(url)}">Image: ${label}</a>`;
  };
  for (const rule of ["th_open", "td_open"] as const) {
    // The table rule aligns by a style attribute, which the content policy refuses.
    md.renderer.rules[rule] = (tokens, i) => {
      const style = String(tokens[i]?.attrGet("style") ?? "");
      const align = /text-align:(left|center|right)/.exec(style)?.[1];
      return `<${rule.slice(0, 2)}${align ? ` class="align-${align}"` : ""}>`;
    };
  }
  md.core.ruler.push("tasks", ({ tokens }) => {
    tokens.forEach((token, i) => {
      const first = token.type === "inline" && tokens[i - 2]?.type === "list_item_open";
      const text = first ? token.children?.[0] : undefined;
      if (text?.type === "text") text.content = text.content.replace(TASK, taskBox);
    });
  });
  return md;
}

const TASK = /^\[([ xX])\](?= )/;

/** An item of a task list: a sign, for a box that could be ticked would be forgotten. */
function taskBox(_: string, mark: string): string {
  return mark === " " ? "☐" : "☑";
}

/** The offsets at which the top-level blocks of a text begin. */
export function parseBlocks(text: string): number[] {
  const lines = lineStarts(text);
  return markdown
    .parse(text, {})
    .filter((token) => token.level === 0 && token.nesting >= 0 && token.map !== null)
    .map((token) => lines[token.map?.[0] ?? 0] ?? 0);
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

export function renderMarkdown(source: string): DocumentFragment {
  const fragment = DOMPurify.sanitize(markdown.render(source), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "title", "class", "start"],
    // The rule for addresses would otherwise be applied to this number.
    ADD_URI_SAFE_ATTR: ["start"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: SAFE_URL,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const element of fragment.querySelectorAll("[class]")) {
    if (!CLASS.test(element.className)) element.removeAttribute("class");
  }
  for (const link of fragment.querySelectorAll("a")) openOutside(link);
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  for (const table of fragment.querySelectorAll("table")) frameTable(table);
  return fragment;
}

function openOutside(link: HTMLAnchorElement): void {
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
}

/** Language and copy button above the code; the button is served by `onCopyClick`. */
function frameCode(pre: HTMLPreElement): void {
  const document = pre.ownerDocument;
  const frame = document.createElement("div");
  frame.className = "code";
  const bar = document.createElement("div");
  bar.className = "code-bar";
  const language = document.createElement("span");
  language.textContent =
    /language-(\S+)/.exec(pre.firstElementChild?.className ?? "")?.[1] ?? "code";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "code-copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy code");
  bar.append(language, button);
  pre.replaceWith(frame);
  // A wide block scrolls by keyboard too.
  pre.tabIndex = 0;
  frame.append(bar, pre);
}

function frameTable(table: HTMLTableElement): void {
  const frame = table.ownerDocument.createElement("div");
  frame.className = "table";
  frame.tabIndex = 0;
  table.replaceWith(frame);
  frame.append(table);
}
