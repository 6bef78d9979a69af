// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "projects", body: empty("Not here yet", "") });
