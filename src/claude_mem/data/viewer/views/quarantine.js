// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "quarantine", body: empty("Not here yet", "") });
