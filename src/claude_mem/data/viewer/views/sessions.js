// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "sessions", body: empty("Not here yet", "") });
