import js from "@eslint/js";
import globals from "globals";

const rules = {
  "max-len": ["error", { code: 120, ignoreRegExpLiterals: true }],
  "no-nested-ternary": "warn",
  "no-sequences": "error",
  "no-unused-vars": ["error", { ignoreRestSiblings: true }],
  eqeqeq: "error",
  "prefer-const": "error",
};

export default [
  js.configs.recommended,
  { files: ["src/**/*.js"], languageOptions: { globals: globals.browser }, rules },
  { files: ["tests/**/*.mjs"], languageOptions: { globals: globals.node }, rules },
];
