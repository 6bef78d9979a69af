// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "observation", body: empty("Not here yet", "") });
