// Not here yet.

import { empty } from "../parts.js";

export const show = async () => ({ title: "project", body: empty("Not here yet", "") });
