/** Copies a text and says for a moment that it did. */
import { useEffect, useState } from "preact/hooks";
import { copyText } from "../clipboard";
import { IconButton } from "./IconButton";

const SHOWN_MS = 1_600;

export function CopyButton({ text, label }: { text(): string; label: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <IconButton
      icon={copied ? "check" : "copy"}
      label={copied ? "Copied" : label}
      onClick={() => void copyText(text()).then(setCopied)}
    />
  );
}
