// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "health", body: empty("Not here yet", "") });
