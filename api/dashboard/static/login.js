// After a logout: this browser keeps no chat and no token.

import { forgetEverything } from "./chat-memory.js";

forgetEverything();
