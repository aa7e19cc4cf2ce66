/** Wire values as the server sends them, for the tests. */
import type { Metrics, Response, Session, TurnEvent } from "../src/protocol";

export const CONVERSATION = "conv_1";

export function session(more: Partial<Session> = {}): Session {
  return {
    id: CONVERSATION,
    title: null,
    instructions: null,
    model: "tiny",
    model_state: "loaded",
    reasoning: "template",
    sampling: {},
    pinned: false,
    listed: true,
    auto_title: true,
    kv: null,
    active: [],
    head: null,
    forked_from: null,
    revision: 1,
    created_at: 100,
    updated_at: 100,
    ...more,
  };
}

export const METRICS: Metrics = {
  ttft_ms: 84,
  tokens_per_second: 61.2,
  input_tokens: 120,
  output_tokens: 9,
  kv: { reused: 112, computed: 8, reason: null, diverged_at: null },
};

export function response(more: Partial<Response> = {}): Response {
  return {
    id: "resp_1",
    created_at: 100,
    status: "in_progress",
    error: null,
    incomplete_details: null,
    previous_response_id: null,
    conversation: { id: CONVERSATION },
    input: [{ type: "message", role: "user", content: [{ type: "input_text", text: "Hello" }] }],
    output: [],
    splice: { client_turn_id: null, metrics: null },
    ...more,
  };
}

export function ended(text: string, more: Partial<Response> = {}): Response {
  const content = [{ type: "output_text", text }];
  return response({
    status: "completed",
    output: [{ type: "message", role: "assistant", content }],
    splice: { client_turn_id: null, metrics: METRICS },
    ...more,
  });
}

/** A whole turn's events, numbered from 0 without a gap. */
export function events(deltas: readonly string[], created: Response = response()): TurnEvent[] {
  const text = deltas.join("");
  const at = { item_id: "msg_1", output_index: 0, content_index: 0 };
  const rows: Record<string, unknown>[] = [
    { type: "response.created", response: created },
    { type: "response.in_progress", response: created },
    { type: "response.output_item.added", output_index: 0, item: {} },
    { type: "response.content_part.added", ...at, part: {} },
    ...deltas.map((delta) => ({ type: "response.output_text.delta", ...at, delta, logprobs: [] })),
    { type: "response.output_text.done", ...at, text, logprobs: [] },
    { type: "response.content_part.done", ...at, part: {} },
    { type: "response.output_item.done", output_index: 0, item: {} },
    { type: "splice:metrics", ...METRICS },
    {
      type: "response.completed",
      response: { ...ended(text), ...created, status: "completed", output: ended(text).output },
    },
  ];
  return rows.map(
    (row, sequence_number) =>
      ({
        ...row,
        sequence_number,
        response_id: created.id,
        conversation: CONVERSATION,
      }) as TurnEvent,
  );
}
