// The wire's types from the API's document: `python -m app.openapi_file | node dev/types.mjs`.
import { writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { compile } from "json-schema-to-typescript";

const OUT = fileURLToPath(new URL("../src/openapi.ts", import.meta.url));

const source = (await text(process.stdin)).replaceAll("#/components/schemas/", "#/$defs/");
// A title would become a type of its own for every single field.
const { components } = JSON.parse(source, (key, value) =>
  key === "title" && typeof value === "string" ? undefined : value,
);
const types = await compile({ $defs: components.schemas }, "Document", {
  bannerComment: "/** Generated from the API's document by `make page`. */",
  additionalProperties: false,
  unreachableDefinitions: true,
  format: false,
});
writeFileSync(OUT, types);
