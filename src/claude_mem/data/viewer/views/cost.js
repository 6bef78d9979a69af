// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "cost", body: empty("Not here yet", "") });
