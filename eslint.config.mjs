import js from "@eslint/js";

export default [
  {
    ...js.configs.recommended,
    files: ["service/web/static/**/*.js"],
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      ...js.configs.recommended.rules,
      "no-undef": "off", // TypeScript knows the names of browsers
      eqeqeq: "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  { files: ["service/web/static/perfetto.js"], languageOptions: { sourceType: "script" } },
];
