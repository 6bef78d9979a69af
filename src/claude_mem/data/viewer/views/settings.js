// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "settings", body: empty("Not here yet", "") });
