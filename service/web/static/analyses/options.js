// The parameters of an analysis as fields.
import { el } from "../dom.js";
import { titleOf } from "./themes.js";

/**
 * Make a control for each parameter, from its JSON Schema. A default is in `data-default`.
 * @param {Record<string, ParameterSchema>} parameters
 * @param {Record<string, string>} values of the parameters that were changed
 */
export const parameterFields = (parameters, values) => Object.entries(parameters).map(([name, schema]) => field(name, schema, values[name]));

/**
 * @param {string} name
 * @param {ParameterSchema} schema
 * @param {string | undefined} chosen
 */
function field(name, schema, chosen) {
  const { description = "", default: preset = null } = schema;
  const kinds = [schema, ...(schema.anyOf ?? [])];
  const options = kinds.find((kind) => kind.enum)?.enum;
  const normal = preset === null ? "" : String(preset);
  const value = chosen ?? normal;
  const attributes = { name, title: description, "data-default": normal };
  if (kinds.some(({ type }) => type === "boolean")) return el("label", { title: description }, el("input", { type: "checkbox", checked: value === "true", ...attributes }), ` ${titleOf(name)}`);
  const control = options
    ? el("select", attributes, options.map((option) => el("option", { selected: option === value }, option)))
    : el("input", { type: "text", autocomplete: "off", value, ...attributes });
  return el("label", { title: description }, `${titleOf(name)} `, control);
}
