// What every page does with a script: it keeps itself up to date, tells times anew, and listens to keys.
// Everything works without it, by links and forms.
import "./live.js";
import "./times.js";
import "./keys.js";
