import { describe, expect, it } from "vitest";
import type { Trouble } from "../src/errors";
import type { ClientFrame, ServerFrame, SessionFrame, TurnEvent } from "../src/protocol";
import { readFrame } from "../src/protocol";
import { type Outgoing, State } from "../src/state";
import { Streams } from "../src/streams";
import { type Turn, turnFromResponse } from "../src/turn";
import { CONVERSATION, ended, events, response } from "./samples";

const DELTAS = ["one ", "two ", "three ", "four"];
const TEXT = DELTAS.join("");

function outgoing(more: Partial<Outgoing> = {}): Outgoing {
  return {
    id: "turn-1",
    session: CONVERSATION,
    parent: null,
    text: "Hello",
    regenerates: null,
    continues: null,
    stop: false,
    trouble: null,
    ...more,
  };
}

function setUp() {
  const state = new State();
  const sent: ClientFrame[] = [];
  const net = { up: true, holds: false };
  const flushes: (() => void)[] = [];
  const laters: (() => void)[] = [];
  const over: Turn[] = [];
  const troubles: Trouble[] = [];
  const heard: SessionFrame[] = [];
  const streams = new Streams({
    state,
    send: (frame) => {
      if (net.up) sent.push(frame);
      return net.up;
    },
    holds: () => net.holds,
    schedule: (flush) => void flushes.push(flush),
    onBegun: () => undefined,
    onEnded: (turn) => void over.push(turn),
    onSession: (frame) => void heard.push(frame),
    onTrouble: (what) => void troubles.push(what),
    later: (run) => void laters.push(run),
  });
  const receive = (...frames: ServerFrame[]) => {
    for (const frame of frames) streams.onFrame(frame);
    for (const flush of flushes.splice(0)) flush();
  };
  const text = (id = "resp_1") => state.turn(id)?.value.text;
  return { state, sent, net, flushes, laters, over, troubles, heard, streams, receive, text };
}

const row = () => events(DELTAS, response({ splice: { client_turn_id: "turn-1" } }));
const error = (code: string, event_id: string | null): ServerFrame => ({
  type: "error",
  status: 503,
  error: { type: "server_error", code, message: "so it is", param: null },
  event_id,
});
const upTo = (row: readonly TurnEvent[], number: number) => row.slice(0, number + 1);

describe("a turn over the socket", () => {
  it("is asked for with its client_turn_id and its parent", () => {
    const { streams, sent } = setUp();
    streams.request(outgoing({ parent: "resp_0" }));
    expect(sent).toEqual([
      {
        type: "response.create",
        conversation: CONVERSATION,
        input: "Hello",
        client_turn_id: "turn-1",
        parent: "resp_0",
        event_id: "turn-1",
      },
    ]);
  });

  it("takes the place of the message that waited for it", () => {
    const { streams, state, receive, text, over } = setUp();
    streams.request(outgoing());
    receive(...row());
    expect(state.outgoing.value).toEqual([]);
    expect(text()).toBe(TEXT);
    expect(state.live.value.size).toBe(0);
    expect(over.map((turn) => turn.id)).toEqual(["resp_1"]);
  });

  it("is told once a frame of the screen, however many events come", () => {
    const { streams, state, flushes } = setUp();
    for (const event of upTo(row(), 5)) streams.onFrame(event);
    expect(flushes.length).toBe(1);
    expect(state.turn("resp_1")).toBeUndefined();
    flushes[0]?.();
    const signal = state.turn("resp_1");
    let updates = -1;
    const stop = signal?.subscribe(() => void updates++);
    for (const event of row().slice(6)) streams.onFrame(event);
    flushes[1]?.();
    expect(updates).toBe(1);
    stop?.();
  });

  it("keeps conversations on one socket apart", () => {
    const { receive, text } = setUp();
    const other = events(["x", "y"], response({ id: "resp_2", conversation: { id: "conv_2" } }));
    const mixed = row().flatMap((event, i) => [event, ...other.slice(i, i + 1)]);
    receive(...mixed);
    expect(text()).toBe(TEXT);
    expect(text("resp_2")).toBe("xy");
  });

  it("settles the waiting message also when a snapshot told of the turn first", () => {
    const { streams, state, receive } = setUp();
    streams.request(outgoing());
    state.putTurns(CONVERSATION, [turnFromResponse(response(), CONVERSATION)]);
    receive(...row());
    expect(state.outgoing.value).toEqual([]);
  });
});

describe("a lost connection", () => {
  it("is resumed behind the last number seen, wherever it broke, to the same text", () => {
    for (let cut = 0; cut < row().length - 1; cut += 1) {
      const { streams, sent, receive, text } = setUp();
      streams.request(outgoing());
      receive(...upTo(row(), cut));
      sent.length = 0;
      streams.onOpen();
      expect(sent).toEqual([
        {
          type: "response.resume",
          response_id: "resp_1",
          starting_after: cut,
          event_id: "resume:resp_1",
        },
      ]);
      receive(...row().slice(cut + 1));
      expect(text()).toBe(TEXT);
    }
  });

  it("folds what had arrived before it says where to go on", () => {
    const { streams, sent, receive } = setUp();
    streams.request(outgoing());
    receive(...upTo(row(), 4));
    streams.onFrame(row()[5] as TurnEvent);
    streams.onOpen();
    expect(sent.at(-1)).toMatchObject({ type: "response.resume", starting_after: 5 });
  });

  it("has a create that was never confirmed sent again with the same client_turn_id", () => {
    const { streams, sent } = setUp();
    streams.request(outgoing());
    streams.onOpen();
    expect(sent.map((frame) => frame.type)).toEqual(["response.create", "response.create"]);
    expect(sent[1]).toEqual(sent[0]);
  });

  it("sends what was asked while there was none", () => {
    const { streams, sent, net } = setUp();
    net.up = false;
    streams.request(outgoing());
    net.up = true;
    streams.onOpen();
    expect(sent.map((frame) => frame.type)).toEqual(["response.create"]);
  });

  it("has a regeneration said again under the same client_turn_id", () => {
    const { streams, sent } = setUp();
    streams.request(outgoing({ regenerates: "resp_0" }));
    streams.onOpen();
    expect(sent[0]).toMatchObject({ type: "response.regenerate", client_turn_id: "turn-1" });
    expect(sent[1]).toEqual(sent[0]);
  });

  it("goes on with a cut turn by its id", () => {
    const { streams, sent } = setUp();
    streams.request(outgoing({ continues: "resp_0" }));
    expect(sent[0]).toEqual({
      type: "response.continue",
      response_id: "resp_0",
      client_turn_id: "turn-1",
      event_id: "turn-1",
    });
  });

  it("asks again to stop what was being stopped", () => {
    const { streams, sent, receive } = setUp();
    streams.request(outgoing());
    receive(...upTo(row(), 5));
    streams.cancel("resp_1");
    streams.onOpen();
    expect(sent.map((frame) => frame.type).slice(-2)).toEqual([
      "response.resume",
      "response.cancel",
    ]);
  });
});

describe("gaps and duplicates", () => {
  it("asks for what is missing once, and waits for it", () => {
    const { streams, sent, receive, text } = setUp();
    streams.request(outgoing());
    const [...all] = row();
    receive(...upTo(all, 4), ...all.slice(6, 8));
    expect(text()).toBe("one ");
    const resumes = sent.filter((frame) => frame.type === "response.resume");
    expect(resumes).toEqual([expect.objectContaining({ starting_after: 4 })]);
    receive(...all.slice(5));
    expect(text()).toBe(TEXT);
  });

  it("ignores everything after the end", () => {
    const { receive, text, over } = setUp();
    receive(...row(), ...row());
    expect(text()).toBe(TEXT);
    expect(over.length).toBe(1);
  });
});

describe("errors", () => {
  it("mark the message that asked, and a retry sends it again", () => {
    const { streams, state, sent, receive } = setUp();
    streams.request(outgoing());
    receive(error("engine_busy", "turn-1"));
    expect(state.outgoing.value[0]?.trouble).toMatchObject({
      code: "engine_busy",
      retryable: true,
    });
    streams.onOpen();
    expect(sent.length).toBe(1);
    streams.request(outgoing());
    expect(sent.length).toBe(2);
    expect(state.outgoing.value[0]?.trouble).toBeNull();
  });

  it("that nobody asked for are told all the same", () => {
    const { receive, troubles } = setUp();
    receive(error("internal", null));
    expect(troubles.map((what) => what.code)).toEqual(["internal"]);
  });

  it("end a turn that can't be resumed, and try again where it may be possible", () => {
    const { streams, state, sent, laters, receive } = setUp();
    streams.request(outgoing());
    receive(...upTo(row(), 4));
    receive(error("store_unavailable", "resume:resp_1"));
    for (const later of laters) later();
    expect(sent.at(-1)).toMatchObject({ type: "response.resume", starting_after: 4 });
    receive(error("turn_not_found", "resume:resp_1"));
    expect(state.turn("resp_1")?.value).toMatchObject({ status: "failed", text: "one " });
  });

  it("of a stop make it possible again", () => {
    const { streams, state, receive } = setUp();
    streams.cancel("resp_1");
    receive(error("store_unavailable", "cancel:resp_1"));
    expect(state.stopping.value.size).toBe(0);
  });

  it("of size fail what was on its way instead of repeating it for ever", () => {
    const { streams, state, sent } = setUp();
    streams.request(outgoing());
    streams.onTooLarge();
    streams.onOpen();
    expect(sent.length).toBe(1);
    expect(state.outgoing.value[0]?.trouble?.code).toBe("request_too_large");
  });
});

describe("stopping and waiting", () => {
  it("stops a turn as soon as it has an id when stop came before", () => {
    const { streams, state, sent, receive } = setUp();
    streams.request(outgoing());
    state.putOutgoing(outgoing({ stop: true }));
    receive(...upTo(row(), 0));
    expect(sent.at(-1)).toMatchObject({ type: "response.cancel", response_id: "resp_1" });
  });

  it("holds messages while the model loads, and lets them go once", () => {
    const { streams, sent, net } = setUp();
    net.holds = true;
    streams.request(outgoing());
    expect(sent).toEqual([]);
    net.holds = false;
    streams.release();
    streams.release();
    expect(sent.length).toBe(1);
  });

  it("shows a regenerated reply in its sibling's place", () => {
    const { streams, state, receive } = setUp();
    state.putTurns(CONVERSATION, [turnFromResponse(ended("old"), CONVERSATION)]);
    streams.request(outgoing({ regenerates: "resp_1" }));
    const made = response({ id: "resp_2", splice: { client_turn_id: "turn-1" } });
    receive(...upTo(events(DELTAS, made), 4));
    expect(state.outgoing.value).toEqual([]);
    expect(state.choices(CONVERSATION).value.get("")).toBe("resp_2");
  });
});

describe("the session on screen", () => {
  it("is watched, after a new connection too, and the one before is not", () => {
    const { streams, sent } = setUp();
    streams.watch("conv_1");
    streams.watch("conv_2");
    streams.onOpen();
    const said = sent.map((frame) => [frame.type, "conversation" in frame && frame.conversation]);
    expect(said).toEqual([
      ["session.subscribe", "conv_1"],
      ["session.unsubscribe", "conv_1"],
      ["session.subscribe", "conv_2"],
      ["session.subscribe", "conv_2"],
    ]);
  });

  it("is heard of, and a server that can't watch is no trouble", () => {
    const { receive, heard, troubles } = setUp();
    const frame = readFrame(
      '{"type":"splice:session.changed","conversation":"conv_1","revision":8,"session":null}',
    );
    if (frame) receive(frame, error("invalid_request", "watch:conv_1"));
    expect(heard.map((one) => one.revision)).toEqual([8]);
    expect(troubles).toEqual([]);
  });
});
