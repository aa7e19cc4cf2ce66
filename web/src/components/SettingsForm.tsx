/** Instructions, how replies are drawn, and what becomes of reasoning. Empty: as the server has it. */
import { useState } from "preact/hooks";
import type { Trouble } from "../errors";
import type { Settings } from "../library";
import type { Sampling } from "../protocol";
import { Problem } from "./Problem";

interface Props {
  before: Settings;
  /** `force`: over what another window has saved. What is wrong, or null. */
  onSave(after: Settings, force: boolean): Promise<Trouble | null>;
  onCancel(): void;
}

type NumberName =
  | "temperature"
  | "top_p"
  | "max_output_tokens"
  | "top_k"
  | "min_p"
  | "repetition_penalty"
  | "seed";

interface NumberField {
  readonly name: NumberName;
  readonly label: string;
  readonly min?: number;
  readonly max?: number;
  readonly step: number | "any";
}

const NUMBERS: readonly NumberField[] = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: "any" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: "any" },
  { name: "max_output_tokens", label: "Longest reply (tokens)", min: 1, step: 1 },
  { name: "top_k", label: "Top-k", min: 0, step: 1 },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: "any" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 10, step: "any" },
  { name: "seed", label: "Seed", step: 1 },
];

const REASONING: readonly [Settings["reasoning"], string][] = [
  ["template", "As the model’s template has it"],
  ["keep", "Keep it for later turns"],
  ["drop", "Drop it from later turns"],
];

export function SettingsForm({ before, onSave, onCancel }: Props) {
  const [instructions, setInstructions] = useState(before.instructions ?? "");
  const [sampling, setSampling] = useState<Sampling>(before.sampling);
  const [reasoning, setReasoning] = useState(before.reasoning);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const save = async (force: boolean) => {
    setBusy(true);
    setProblem(
      await onSave({ instructions: instructions.trim() || null, sampling, reasoning }, force),
    );
    setBusy(false);
  };
  const setNumber = (name: NumberName, text: string) => {
    const { [name]: _, ...rest } = sampling;
    setSampling(text.trim() === "" ? rest : { ...rest, [name]: Number(text) });
  };
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void save(false);
      }}
    >
      <label for="instructions">Instructions</label>
      <textarea
        id="instructions"
        rows={4}
        data-first
        placeholder="Answer briefly, in plain words."
        aria-describedby="instructions-hint"
        value={instructions}
        onInput={(event) => setInstructions(event.currentTarget.value)}
      />
      <p class="form-hint" id="instructions-hint">
        They stand before the whole conversation: after a change it is computed anew, once.
      </p>
      <div class="form-grid">
        {NUMBERS.map(({ name, label, ...limits }) => (
          <label key={name}>
            {label}
            <input
              type="number"
              inputMode="decimal"
              placeholder="default"
              {...limits}
              value={sampling[name] ?? ""}
              onInput={(event) => setNumber(name, event.currentTarget.value)}
            />
          </label>
        ))}
      </div>
      <label for="reasoning">Reasoning in replies</label>
      <select
        id="reasoning"
        value={reasoning}
        onChange={(event) => setReasoning(event.currentTarget.value as Settings["reasoning"])}
      >
        {REASONING.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      {problem && (
        <Problem trouble={problem}>
          {problem.code === "revision_conflict" && (
            <button type="button" class="button" onClick={() => void save(true)}>
              Save mine all the same
            </button>
          )}
        </Problem>
      )}
      <div class="form-actions">
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="button primary" disabled={busy}>
          Save
        </button>
      </div>
    </form>
  );
}
