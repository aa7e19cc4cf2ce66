/** Hands the state and what can be done with it to the components. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Chat } from "./chat";
import type { Socket } from "./socket";
import type { State } from "./state";

export interface App {
  readonly state: State;
  readonly chat: Chat;
  readonly socket: Socket;
  navigate(session: string | null): void;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("components are rendered inside AppContext");
  return app;
}
