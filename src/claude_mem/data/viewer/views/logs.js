// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "logs", body: empty("Not here yet", "") });
