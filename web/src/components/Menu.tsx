/**
 * A button that opens a menu. The menu is a popover: it lies over everything, and a click beside
 * it or Escape closes it. Arrow keys move within it.
 */
import { useId, useRef } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

export interface MenuItem {
  readonly icon: IconName;
  readonly label: string;
  readonly danger?: boolean;
  /** `byKeys`: it was chosen by keyboard. */
  run(byKeys: boolean): void;
}

interface Props {
  label: string;
  items: readonly MenuItem[];
}

const GAP_PX = 4;

export function Menu({ label, items }: Props) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const onToggle = (event: { newState: string }) => {
    if (event.newState !== "open" || !menu.current || !button.current) return;
    place(menu.current, button.current.getBoundingClientRect());
    itemsOf(menu.current)[0]?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const all = menu.current ? itemsOf(menu.current) : [];
    const to = target(event.key, all.indexOf(document.activeElement as HTMLElement), all.length);
    if (event.key === "Tab") menu.current?.hidePopover();
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    all[to]?.focus();
  };
  return (
    <>
      <button
        type="button"
        class="icon-button"
        ref={button}
        popovertarget={id}
        aria-haspopup="menu"
        aria-label={label}
        title={label}
      >
        <Icon name="more" />
      </button>
      <div
        class="menu"
        id={id}
        ref={menu}
        popover="auto"
        role="menu"
        tabIndex={-1}
        aria-label={label}
        onToggle={onToggle}
        onKeyDown={onKeyDown}
      >
        {items.map((item) => (
          <button
            type="button"
            role="menuitem"
            tabIndex={-1}
            key={item.label}
            class={item.danger ? "menu-item danger" : "menu-item"}
            onClick={(event) => {
              menu.current?.hidePopover();
              // A click that no pointer made counts none.
              item.run(event.detail === 0);
            }}
          >
            <Icon name={item.icon} />
            {item.label}
          </button>
        ))}
      </div>
    </>
  );
}

function itemsOf(menu: HTMLElement): HTMLElement[] {
  return [...menu.querySelectorAll<HTMLElement>('[role="menuitem"]')];
}

/** Below its button and within the window; by script, for the content policy allows no attribute. */
function place(menu: HTMLElement, button: DOMRect): void {
  const { width, height } = menu.getBoundingClientRect();
  const below = button.bottom + GAP_PX;
  const top = below + height > innerHeight ? button.top - height - GAP_PX : below;
  const left = Math.min(button.left, innerWidth - width - 2 * GAP_PX);
  menu.style.top = `${Math.max(GAP_PX, top)}px`;
  menu.style.left = `${Math.max(GAP_PX, left)}px`;
}

/** Where an arrow key leads in a list, around its ends; null for other keys. */
export function target(key: string, at: number, length: number): number | null {
  if (length === 0) return null;
  if (key === "ArrowDown") return (at + 1) % length;
  if (key === "ArrowUp") return (Math.max(at, 0) - 1 + length) % length;
  if (key === "Home") return 0;
  return key === "End" ? length - 1 : null;
}
