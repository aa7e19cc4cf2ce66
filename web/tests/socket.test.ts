import { describe, expect, it } from "vitest";
import type { ServerFrame } from "../src/protocol";
import { type Link, Socket } from "../src/socket";
import { FakeSocket, FakeTimers, last } from "./fakes";

function connect(random = () => 0.5) {
  const raws: FakeSocket[] = [];
  const links: Link[] = [];
  const frames: ServerFrame[] = [];
  const timers = new FakeTimers();
  const counts = { opens: 0, tooLarge: 0, refused: 0 };
  const open = () => {
    raws.push(new FakeSocket());
    return last(raws);
  };
  const listener = {
    onOpen: () => void counts.opens++,
    onFrame: (frame: ServerFrame) => void frames.push(frame),
    onLink: (link: Link) => void links.push(link),
    onTooLarge: () => void counts.tooLarge++,
    onRefused: () => {
      counts.refused++;
      socket.stop();
    },
  };
  const socket = new Socket(open, listener, timers, random);
  socket.start();
  return { socket, raws, links, frames, timers, counts };
}

const CANCEL = { type: "response.cancel", response_id: "resp_1", event_id: "e" } as const;

describe("Socket", () => {
  it("connects, and sends only while it is open", () => {
    const { socket, raws, counts } = connect();
    expect(socket.send(CANCEL)).toBe(false);
    last(raws).accept();
    expect(counts.opens).toBe(1);
    expect(socket.send(CANCEL)).toBe(true);
    expect(last(raws).sent).toEqual([CANCEL]);
    last(raws).lose();
    expect(socket.send(CANCEL)).toBe(false);
  });

  it("comes back after a loss, later each time, and never later than the bound", () => {
    const { raws, timers } = connect(() => 1);
    const waits = [400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000];
    for (const wait of waits) {
      const before = raws.length;
      last(raws).lose();
      timers.pass(wait - 1);
      expect(raws.length).toBe(before);
      timers.pass(1);
      expect(raws.length).toBe(before + 1);
    }
  });

  it("draws half of the wait, so that pages do not come back together", () => {
    const { raws, timers } = connect(() => 0);
    last(raws).lose();
    timers.pass(199);
    expect(raws.length).toBe(1);
    timers.pass(1);
    expect(raws.length).toBe(2);
  });

  it("keeps backing off from a server that accepts and closes at once", () => {
    const { raws, timers } = connect(() => 1);
    for (const wait of [400, 800]) {
      last(raws).accept();
      last(raws).lose();
      timers.pass(wait);
    }
    expect(raws.length).toBe(3);
    last(raws).accept();
    timers.pass(5_000);
    last(raws).lose();
    timers.pass(400);
    expect(raws.length).toBe(4);
  });

  it("pings into silence and drops a connection that does not answer", () => {
    const { raws, timers, links } = connect();
    last(raws).accept();
    timers.pass(25_000);
    expect(last(raws).sent).toEqual([{ type: "ping", nonce: 1 }]);
    timers.pass(8_000);
    expect(raws[0]?.closed).toBe(true);
    expect(links).toContain("waiting");
  });

  it("takes any frame for a sign of life", () => {
    const { raws, timers, frames } = connect();
    last(raws).accept();
    timers.pass(25_000);
    last(raws).say({ type: "pong", nonce: 1 });
    timers.pass(24_000);
    expect(raws.length).toBe(1);
    expect(frames).toEqual([]);
  });

  it("tries at once when nudged while it waits, and checks when nudged while open", () => {
    const { socket, raws, timers } = connect();
    last(raws).lose();
    socket.nudge();
    expect(raws.length).toBe(2);
    last(raws).accept();
    socket.nudge();
    expect(last(raws).sent).toEqual([{ type: "ping", nonce: 1 }]);
    timers.pass(8_000);
    expect(raws[1]?.closed).toBe(true);
  });

  it("gives up a handshake that hangs", () => {
    const { raws, timers } = connect();
    timers.pass(17_000);
    expect(raws.length).toBe(2);
    expect(raws[0]?.closed).toBe(true);
  });

  it("hears nothing more from a connection it has dropped", () => {
    const { raws, frames, timers } = connect();
    const first = last(raws);
    first.lose();
    timers.pass(1_000);
    first.say({ type: "error", status: 500, error: {} });
    expect(frames).toEqual([]);
  });

  it("tells that a frame was too large, and ignores what is no frame", () => {
    const { raws, counts, frames } = connect();
    last(raws).accept();
    last(raws).say("nonsense");
    last(raws).say({ type: "response.created" });
    expect(frames).toEqual([]);
    last(raws).lose(1009);
    expect(counts.tooLarge).toBe(1);
  });

  it("says that its key was refused, and does not come back by itself", () => {
    const { raws, counts, timers, links } = connect();
    last(raws).accept();
    last(raws).lose(4401);
    timers.pass(60_000);
    expect(counts.refused).toBe(1);
    expect(raws.length).toBe(1);
    expect(last(links)).toBe("stopped");
  });

  it("waits for what it is opened with, and drops what comes too late", async () => {
    const timers = new FakeTimers();
    const waiting: ((raw: FakeSocket) => void)[] = [];
    const opened: string[] = [];
    const socket = new Socket(
      () => new Promise<FakeSocket>((resolve) => void waiting.push(resolve)),
      {
        onOpen: () => void opened.push("open"),
        onFrame: () => undefined,
        onLink: () => undefined,
        onTooLarge: () => undefined,
        onRefused: () => undefined,
      },
      timers,
      () => 0.5,
    );
    socket.start();
    timers.pass(17_000);
    expect(waiting.length).toBe(2);
    const [late, inTime] = [new FakeSocket(), new FakeSocket()];
    waiting[0]?.(late);
    waiting[1]?.(inTime);
    await Promise.resolve();
    inTime.accept();
    expect(late.closed).toBe(true);
    expect(opened).toEqual(["open"]);
  });

  it("tries again when what it is opened with can't be had", async () => {
    const timers = new FakeTimers();
    let tries = 0;
    const listener = {
      onOpen: () => undefined,
      onFrame: () => undefined,
      onLink: () => undefined,
      onTooLarge: () => undefined,
      onRefused: () => undefined,
    };
    const open = () => {
      tries++;
      return Promise.reject(new Error("offline"));
    };
    const socket = new Socket(open, listener, timers, () => 1);
    socket.start();
    await Promise.resolve();
    await Promise.resolve();
    expect(socket.link).toBe("waiting");
    timers.pass(400);
    expect(tries).toBe(2);
  });

  it("stays stopped once stopped", () => {
    const { socket, raws, timers } = connect();
    last(raws).lose();
    socket.stop();
    timers.pass(60_000);
    expect(raws.length).toBe(1);
  });
});
