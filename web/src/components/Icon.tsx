/** The icons, drawn on one grid: 20 by 20, a line of 1.6. */

const PATHS = {
  plus: "M10 4.5v11M4.5 10h11",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h13",
  close: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  send: "M10 15.5v-11M5.2 9.2 10 4.5l4.8 4.7",
  trash: "M4 6h12M8 6V4.2h4V6M5.8 6l.7 9.8h7l.7-9.8M8.6 9v4M11.4 9v4",
  copy: "M7.5 7.5h8v8h-8zM12.5 7.5v-3h-8v8h3",
  check: "M4.5 10.5l3.6 3.6 7.4-8",
  again: "M15.8 10a5.8 5.8 0 1 1-1.9-4.3M16 3.5v3h-3",
  fork: "M5.5 4v12M5.5 10.5c5 0 8-1.4 8-5M11 7.2 13.5 4.6l2.5 2.6",
  edit: "M4 16l.7-3.2 8.5-8.5 2.5 2.5-8.5 8.5zM11.7 5.8l2.5 2.5",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  down: "M10 4.5v11M5.2 10.8 10 15.5l4.8-4.7",
  sun: "M10 6.7a3.3 3.3 0 1 0 0 6.6 3.3 3.3 0 0 0 0-6.6zM10 2.5v1.5M10 16v1.5M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M4.7 15.3l1-1M14.3 5.7l1-1",
  moon: "M16 11.8A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.8z",
  system: "M3.5 4.5h13v8.5h-13zM7 16h6M10 13v3",
  leave: "M8 4H4.5v12H8M8.5 10h8M13.2 6.7 16.5 10l-3.3 3.3",
  more: "M4.5 10h.1M10 10h.1M15.5 10h.1",
  search: "M8.8 3.8a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM12.5 12.5l3.7 3.7",
  pin: "M7 3.5h6l-.8 5 2.3 2.5h-9L7.8 8.5zM10 11v5.5",
  sliders: "M3.5 6.5h7M14.5 6.5h2M3.5 13.5h2M9.5 13.5h7M12.5 4.6v3.8M7.5 11.6v3.8",
  swap: "M4 7.2h11M12.2 4.4 15 7.2 12.2 10M16 12.8H5M7.8 10 5 12.8l2.8 2.8",
  save: "M10 3.5v9M6.3 9 10 12.7 13.7 9M4 16h12",
  open: "M10 12.5v-9M6.3 7.2 10 3.5l3.7 3.7M4 16h12",
  keys: "M7.3 7.4a2.7 2.7 0 1 1 3.8 2.6c-.8.4-1.1.8-1.1 1.7M10 14.2v.1M10 2.8a7.2 7.2 0 1 0 0 14.4 7.2 7.2 0 0 0 0-14.4z",
  alert: "M10 6.5v4.2M10 13.3v.2M10 2.8a7.2 7.2 0 1 0 0 14.4 7.2 7.2 0 0 0 0-14.4z",
} as const;

export type IconName = keyof typeof PATHS | "stop";

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      class={name === "more" ? "icon icon-dots" : "icon"}
      viewBox="0 0 20 20"
      aria-hidden="true"
      focusable="false"
    >
      {name === "stop" ? (
        <rect x="5.5" y="5.5" width="9" height="9" rx="2" class="icon-solid" />
      ) : (
        <path d={PATHS[name]} />
      )}
    </svg>
  );
}
