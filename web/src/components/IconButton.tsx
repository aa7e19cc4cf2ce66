/** A button with an icon alone: its label is spoken, and shown as the tooltip. */
import { Icon, type IconName } from "./Icon";

interface Props {
  icon: IconName;
  label: string;
  onClick(): void;
  disabled?: boolean;
  class?: string;
}

export function IconButton({ icon, label, onClick, disabled = false, class: extra = "" }: Props) {
  return (
    <button
      type="button"
      class={`icon-button ${extra}`}
      aria-label={label}
      title={label}
      disabled={disabled}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}
