/** Hands the state and what can be done with it to the components. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Access } from "./access";
import type { Chat } from "./chat";
import type { Library } from "./library";
import type { Socket } from "./socket";
import type { State } from "./state";

export interface App {
  readonly state: State;
  readonly chat: Chat;
  readonly library: Library;
  readonly socket: Socket;
  readonly access: Access;
  navigate(session: string | null, turn?: string | null): void;
  /** Tries a key; null when the server has taken it, else what is wrong, in words. */
  logIn(key: string, keep: boolean): Promise<string | null>;
  logOut(): void;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("components are rendered inside AppContext");
  return app;
}
