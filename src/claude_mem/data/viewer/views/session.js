// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "session", body: empty("Not here yet", "") });
