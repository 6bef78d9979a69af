// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "context", body: empty("Not here yet", "") });
